"""Signals of an encoder's quality that need no labels: functions of plain embeddings; higher is better.

``clean`` holds the embeddings (N, D) of N sentences, ``perturbed`` (N, D) those of a perturbed form of each, in the
same order. Rows are scaled to length one inside. ``benchmarks.selection_signals`` returns all of them.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import skew
from torch import Tensor

from st_extras.evaluation.geometry import alignment, nearest, uniformity
from st_extras.evaluation.reporting import check_embeddings
from st_extras.modules.lambda_search import rank_correlation


def agreement_margin(clean: Tensor, perturbed: Tensor) -> float:
    """Mean margin over the hardest confusion, mean_i [ cos(p_i, z_i) - max_{j != i} cos(p_i, z_j) ]; -2 to 2."""
    own, others = _own_and_others(clean, perturbed)
    return float((own - others.max(dim=1).values).mean())


def recovery(clean: Tensor, perturbed: Tensor) -> float:
    """Mean reciprocal rank of a sentence among all N, with its perturbed form as the query; ties count against it."""
    own, others = _own_and_others(clean, perturbed)
    rank = 1 + (others >= own.unsqueeze(1)).sum(dim=1)
    return float((1.0 / rank).mean())


def discriminability(clean: Tensor, perturbed: Tensor) -> float:
    """Sensitivity index d', (mean cos(p_i, z_i) - mean cos(p_i, z_j)) / std cos(p_i, z_j) over j != i.

    Scale and offset of the cosines do not matter. 0 if all cosines with other sentences are equal.
    """
    own, others = _own_and_others(clean, perturbed)
    rest = others[others != -torch.inf]
    spread = float(rest.std(correction=0))
    return float(own.mean() - rest.mean()) / spread if spread > 1e-6 else 0.0


def structure_agreement(clean: Tensor, perturbed: Tensor) -> float:
    """Spearman correlation of cos(z_i, z_j) with cos(p_i, p_j) over all pairs i < j: does similarity survive?"""
    z, p = _two_clouds(clean, perturbed)
    i, j = torch.triu_indices(len(z), len(z), offset=1)
    return rank_correlation((z @ z.T)[i, j], (p @ p.T)[i, j])


def graded_agreement(clean: Tensor, perturbed: Tensor, kept: Tensor) -> float:
    """Spearman correlation of cos(z_i, p_i) with the share of the sentence that its perturbed form kept.

    Args:
        clean: (N, D).
        perturbed: (N, D), forms that keep different shares of their sentences.
        kept: (N,), the shares, 0 to 1.
    """
    z, p = _two_clouds(clean, perturbed)
    return rank_correlation((z * p).sum(dim=1), kept)


def lexical_agreement(clean: Tensor, pairs: Tensor, overlap: Tensor) -> float:
    """Spearman correlation of the cosines of sentence pairs with the overlap of their words.

    Args:
        clean: (N, D).
        pairs: (P, 2) indices into the rows.
        overlap: (P,), for instance TF-IDF cosines.
    """
    z = check_embeddings("clean", clean, at_least=2)
    return rank_correlation((z[pairs[:, 0]] * z[pairs[:, 1]]).sum(dim=1), overlap)


def alignment_uniformity(clean: Tensor, perturbed: Tensor) -> float:
    """Minus (alignment of the sentences with their perturbed forms + uniformity of the sentences)."""
    return -(alignment(clean, perturbed) + uniformity(clean))


def neighbor_stability(clean: Tensor, previous: Tensor, neighbors: int = 10) -> float:
    """Mean share of a sentence's nearest neighbours that were its neighbours at the previous checkpoint; 0 to 1."""
    now = nearest(clean, neighbors)
    before = nearest(previous, neighbors)
    return float((now.unsqueeze(2) == before.unsqueeze(1)).any(dim=2).double().mean())


def hub_freeness(clean: Tensor, neighbors: int = 10) -> float:
    """Minus the skewness of how often a sentence is a nearest neighbour of others; hubs lower it."""
    found = nearest(clean, neighbors)
    counts = torch.bincount(found.flatten(), minlength=len(found)).numpy()
    return -float(skew(counts)) if np.ptp(counts) > 0 else 0.0


def _two_clouds(clean: Tensor, perturbed: Tensor) -> tuple[Tensor, Tensor]:
    z, p = check_embeddings("clean", clean, at_least=2), check_embeddings("perturbed", perturbed)
    if z.shape != p.shape:
        raise ValueError(f"clean and perturbed must have the same shape, got {tuple(z.shape)} and {tuple(p.shape)}.")
    return z, p


def _own_and_others(clean: Tensor, perturbed: Tensor) -> tuple[Tensor, Tensor]:
    """Return cos(p_i, z_i), (N,), and cos(p_i, z_j), (N, N) with -inf on the diagonal."""
    z, p = _two_clouds(clean, perturbed)
    cosines = p @ z.T
    own = cosines.diagonal().clone()
    return own, cosines.fill_diagonal_(-torch.inf)
