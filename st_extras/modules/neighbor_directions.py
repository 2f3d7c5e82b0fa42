"""The mathematics of a soft Locality Preserving Projection: the directions on which nearest neighbours agree."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import isotonic_regression
from torch import Tensor
from torch.nn.functional import normalize

from st_extras.functional import row_blocks
from st_extras.modules import pipeline
from st_extras.modules.corpus_statistics import MIN_RELATIVE_VARIANCE

_NEIGHBORS = 10  # of a text
_EPSILON = 0.1  # of the mean eigenvalue of C, added to each
_FOLDS = 5
_FEWEST_TEXTS = 50
_LOWEST_AGREEMENT = 1e-3  # so that no direction is removed altogether
_EQUAL = 1e-6  # centred embeddings with a cosine above 1 - _EQUAL are equal: rounding, and texts that differ in nothing
_SPREAD_ROWS = 256  # whose similarities with all give the standard deviations


class TooFewDifferentError(ValueError):
    """Too few embeddings differ to find directions on which neighbours agree."""


@dataclass(frozen=True)
class NeighborDirections:
    """Directions of an embedding space, ordered by how far texts and their nearest neighbours agree on them.

    Equation: the columns of ``whitener @ directions`` solve M w = rho C w, with the symbols of
    :func:`neighbor_directions`.

    Attributes:
        count: number of texts that they were computed from (N).
        mean: (D,) mean embedding (mu).
        variances: (R,) eigenvalues of C above 0, largest first (Lambda); R <= D.
        axes: (D, R) its eigenvectors (U).
        directions: (R, R) eigenvectors of M in the whitened space, those of most agreement first (Q).
        agreement: (R,) agreement of neighbours on each of them (rho), between 1e-3 and 1, descending.
    """

    count: int
    mean: Tensor
    variances: Tensor
    axes: Tensor
    directions: Tensor
    agreement: Tensor

    def kernel(self, recolor: float) -> Tensor:
        """Return W = U Lambda^{-1/2} Q diag(rho) Q^T Lambda^{recolor/2} U^T, (D, D) in float64.

        Args:
            recolor: how far directions get their variance back: 1 all of it, 0 leaves them whitened.
        """
        whitened = (self.axes * self.variances.rsqrt()) @ self.directions  # (D, R)
        back = (self.axes * self.variances ** (recolor / 2)) @ self.directions  # (D, R)
        return (whitened * self.agreement) @ back.T

    def blend(self, strength: float, recolor: float) -> Tensor:
        """Return X = (1 - t) I + t W, (D, D) in float64, with W scaled so that the embeddings keep their variance.

        Args:
            strength: t, with any amount of text; N texts have N / (N + 1000) of it, as few texts are weak evidence.
            recolor: of W, see :meth:`kernel`.
        """
        kernel = self.kernel(recolor)
        covariance = (self.axes * self.variances) @ self.axes.T
        kernel *= (covariance.trace() / (kernel.T @ covariance @ kernel).trace()).sqrt()
        t = strength * self.count / (self.count + 1000)
        return (1 - t) * torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device) + t * kernel


def neighbor_directions(embeddings: Tensor, *, tfidf: Any = None, seed: int = 0) -> NeighborDirections:
    """Return the directions of an embedding space and how far nearest neighbours agree on each.

    Equation: z = (e - mu) / |e - mu|, the rows of Z; y = mean of the z of the 10 nearest other texts by cosine, the
    rows of Y; C = Z^T Z / N + 0.1 (tr(Z^T Z) / ND) I = U Lambda U^T; M = (Z^T Y + Y^T Z) / 2N;
    Lambda^{-1/2} U^T M U Lambda^{-1/2} = Q diag(rho) Q^T.

    In few dimensions per text, the eigenvalues rho come out too high, and the first ones most, because Q was chosen on
    the same texts. So Q is computed without each of five folds in turn, and rho is the agreement that the fold's texts
    then show; the means over the folds are made to descend (isotonic regression).

    Args:
        embeddings: (N, D); a row that equals an earlier one, and one at the mean, is left out. All but TF-IDF is
            computed on their device.
        tfidf: (N, V) sparse rows of length 1 of the same texts, as ``st_extras.text.term_weights.character_tfidf``
            returns them. Then neighbours are nearest by the sum of both cosines, whose errors differ, each divided by
            its standard deviation (over pairs of all rows with some). None: by the embeddings alone.
        seed: random seed of the folds.

    Raises:
        TooFewDifferentError: a ValueError, if there are fewer than 50 different rows.
    """
    mean, unit, kept = _different_directions(embeddings.double())
    if len(unit) < _FEWEST_TEXTS:
        raise TooFewDifferentError(
            f"sentences must have at least {_FEWEST_TEXTS} different embeddings, got {len(unit)}: give more."
        )
    neighbor_means = _mean_neighbors(unit, None if tfidf is None else tfidf[kept.cpu().numpy()])
    covariance = unit.T @ unit / len(unit)
    variances, axes = (part.flip(-1) for part in torch.linalg.eigh(covariance))
    variances = variances.clamp(min=0) + _EPSILON * variances.mean()
    varies = variances > MIN_RELATIVE_VARIANCE * variances[0]
    variances, axes = variances[varies], axes[:, varies]  # (R,), (D, R)
    whitener = axes * variances.rsqrt()
    order = random.Random(seed).sample(range(len(unit)), len(unit))
    fold_rows = torch.tensor(order, device=unit.device).tensor_split(_FOLDS)
    products = torch.stack([(unit[rows] @ whitener).T @ (neighbor_means[rows] @ whitener) for rows in fold_rows])
    products = (products + products.mT) / 2  # (F, R, R): of each fold's texts, N times its part of M, whitened
    directions = torch.linalg.eigh(products.sum(dim=0) / len(unit)).eigenvectors.flip(-1)
    agreement = _held_out_agreement(products, [len(rows) for rows in fold_rows]).clamp(_LOWEST_AGREEMENT, 1)
    return NeighborDirections(len(unit), mean, variances, axes, directions, agreement)


def _mean_neighbors(unit: Tensor, tfidf: Any) -> Tensor:
    """Return the mean (N, D) of each row's nearest other rows; ``unit`` holds (N, D) unit rows.

    Nearest by cosine; with TF-IDF, (N, V) sparse unit rows, by the sum of both cosines in standard deviations.
    """
    searched = unit.float()

    def similarities(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return (B, N) cosines of some rows with all, of the embeddings and of TF-IDF."""
        if tfidf is None:
            return searched[rows] @ searched.T, searched.new_zeros(())
        shared = np.empty((len(rows), len(unit)), dtype=np.float32)
        for part in row_blocks(len(rows), 4 * len(unit)):  # a sparse product takes more than twice a dense one
            (tfidf[rows[part].numpy()] @ tfidf.T).toarray(out=shared[part])
        return searched[rows] @ searched.T, torch.from_numpy(shared).to(searched)

    some = torch.linspace(0, len(unit) - 1, min(_SPREAD_ROWS, len(unit))).long()  # evenly: the order may mean something
    scale = [1.0, 1.0] if tfidf is None else [float(part.std().clamp_min(_EQUAL)) for part in similarities(some)]
    means = torch.empty_like(unit)
    for block in row_blocks(len(unit), len(unit)):
        rows = torch.arange(block.start, block.stop)
        cosines, shared = similarities(rows)
        cosines.div_(scale[0]).add_(shared.div_(scale[1]))  # in place: a block has 64 MiB
        cosines[torch.arange(len(rows)), rows] = -torch.inf
        means[rows] = unit[cosines.topk(_NEIGHBORS, dim=1).indices].mean(dim=1)
    return means


def _different_directions(embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean (D,) of the different embeddings, their directions from it as unit rows, and their numbers."""
    shifted = embeddings - embeddings.mean(dim=0)
    rounding = pipeline.ROUNDING * embeddings.norm() / max(1, len(embeddings)) ** 0.5  # of the root mean square
    away = shifted.norm(dim=1) > rounding
    numbers = away.nonzero().squeeze(1)
    embeddings, searched = embeddings[away], normalize(shifted[away]).float()
    new = torch.ones(len(searched), dtype=torch.bool, device=searched.device)
    for rows in row_blocks(len(searched), len(searched)):
        equal = searched[rows] @ searched[: rows.stop].T > 1 - _EQUAL
        new[rows] = ~equal.tril(rows.start - 1).any(dim=1)  # to earlier rows
    different = embeddings[new]
    if not len(different):
        return embeddings.new_zeros(embeddings.size(1)), different, numbers[new]
    mean = different.mean(dim=0)
    return mean, normalize(different - mean), numbers[new]


def _held_out_agreement(products: Tensor, sizes: list[int]) -> Tensor:
    """Return rho (R,), descending: each fold's agreement along the directions of the other folds, averaged.

    Args:
        products: (F, R, R), a sum over the texts of each fold.
        sizes: F numbers of texts.
    """
    whole, held_out = products.sum(dim=0), []
    for fold, size in zip(products, sizes, strict=True):
        directions = torch.linalg.eigh(whole - fold)[1].flip(-1)  # (R, R)
        held_out.append((directions * (fold @ directions)).sum(dim=0) / size)
    mean = torch.stack(held_out).mean(dim=0)
    return torch.from_numpy(isotonic_regression(mean.cpu().numpy(), increasing=False).x.copy()).to(mean)
