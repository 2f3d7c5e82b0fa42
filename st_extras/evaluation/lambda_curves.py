"""RepAL over a grid of its two weights: the largest eigenvalue and the Spearman correlation.

Source: appendix C.2 of RepAL (Shen et al., 2023), whose figure is missing from the published text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.modules.lambda_search import (
    LAMBDA_1_GRID,
    LAMBDA_2_GRID,
    check_grid,
    check_pairs,
    pair_sides,
    spearman_surface,
)
from st_extras.modules.repal import RepALPostProcessor


def largest_eigenvalue(embeddings: Tensor) -> float:
    """Largest eigenvalue of the uncentred second moment (1/N) sum v v^T of ``embeddings`` (N, D).

    Uncentred on purpose: subtracting a constant vector does not change the covariance.

    Raises:
        ValueError: if the shape is not (N, D) with N >= 1.
    """
    if embeddings.ndim != 2 or len(embeddings) == 0:
        raise ValueError(f"embeddings must be (N, D) with N >= 1, got the shape {tuple(embeddings.shape)}.")
    values = embeddings.double()
    if not values.isfinite().all():
        raise ValueError("embeddings must be finite, got NaN or infinite values.")
    return float(torch.linalg.eigvalsh(values.T @ values / len(values))[-1])


@dataclass(frozen=True)
class EigenvaluePoint:
    """One point of the curve: ``largest_eigenvalue`` and Spearman correlation (-1 to 1) at ``lambda_2``."""

    lambda_2: float
    largest_eigenvalue: float
    spearman: float


def eigenvalue_curve(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    lambda_2_grid: Sequence[float],
    *,
    batch_size: int = 32,
) -> list[EigenvaluePoint]:
    """Largest eigenvalue and performance against lambda_2 (the figure that appendix C.2 describes).

    Args:
        model: has a fitted ``RepALPostProcessor``, whose ``lambda_1`` is used and whose weights are not changed.
        pairs: labelled pairs; the eigenvalue is that of the refined embeddings of all their sentences.
        scores: gold scores.
        lambda_2_grid: weights of the corpus term.
        batch_size: sentences per forward pass; each sentence is encoded once.

    Raises:
        ValueError: if the scores do not match the pairs or are all equal, a weight is not allowed, or the model has no
            fitted ``RepALPostProcessor``.
    """
    pairs, scores = check_pairs(pairs, scores)
    grid = _check_filled("lambda_2_grid", lambda_2_grid)
    v, redundant, mean, processor = _fitted_parts(model, pairs, batch_size)
    sides = pair_sides(v, redundant)
    spearman = spearman_surface(*sides, mean.numpy(), scores, [processor.lambda_1], grid)[0]
    refined = v - processor.lambda_1 * redundant
    return [
        EigenvaluePoint(value, largest_eigenvalue(refined - value * mean), float(rho))
        for value, rho in zip(grid, spearman, strict=True)
    ]


def lambda_surface(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    *,
    lambda_1_grid: Sequence[float] = LAMBDA_1_GRID,
    lambda_2_grid: Sequence[float] = LAMBDA_2_GRID,
    batch_size: int = 32,
) -> NDArray[np.float64]:
    """Spearman correlation at every pair of weights, as ``RepALPostProcessor.tune`` searches it, for a heat map.

    Args:
        model: has a fitted ``RepALPostProcessor``, whose own weights are neither used nor changed.
        pairs: labelled pairs.
        scores: gold scores, not all equal.
        lambda_1_grid: L1 weights of the sentence term.
        lambda_2_grid: L2 weights of the corpus term.
        batch_size: sentences per forward pass; each sentence is encoded once.

    Returns:
        (L1, L2), -1 to 1.

    Raises:
        ValueError: if the scores do not match the pairs or are all equal, or the model has no fitted
            ``RepALPostProcessor``.
    """
    pairs, scores = check_pairs(pairs, scores)
    lambda_1_grid = _check_filled("lambda_1_grid", lambda_1_grid)
    lambda_2_grid = _check_filled("lambda_2_grid", lambda_2_grid)
    v, redundant, mean, _ = _fitted_parts(model, pairs, batch_size)
    return spearman_surface(*pair_sides(v, redundant), mean.numpy(), scores, lambda_1_grid, lambda_2_grid)


def _check_filled(name: str, grid: Sequence[float]) -> list[float]:
    """Return the weights of a grid that holds at least one.

    Raises:
        ValueError: if it holds none, or one of them is not allowed.
    """
    weights = check_grid(name, grid)
    if not weights:
        raise ValueError(f"{name} must hold at least one weight, got none.")
    return weights


def _fitted_parts(
    model: SentenceTransformer, pairs: Sequence[tuple[str, str]], batch_size: int
) -> tuple[Tensor, Tensor, Tensor, RepALPostProcessor]:
    """Return f(x) and f(x*) of all first, then all second sentences (2N, D), the corpus mean (D,), the processor."""
    processor = next((module for module in model if isinstance(module, RepALPostProcessor)), None)
    if processor is None or not processor.corpus_size:
        raise ValueError("model must have a fitted RepALPostProcessor: RepALPostProcessor.attach(..., corpus=...).")
    texts = [x for x, _ in pairs] + [y for _, y in pairs]
    v, redundant = processor.parts(texts, batch_size=batch_size)
    return v.double(), redundant.double(), processor.corpus_mean.double().cpu(), processor
