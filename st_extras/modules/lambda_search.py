"""Search for RepAL's two weights on cached embeddings: thousands of settings in seconds."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from st_extras.correlation import spearman

logger = logging.getLogger(__name__)

Array = NDArray[np.float64]

_VANISHED = 1e-12  # of a squared length: embeddings in float32 have six digits
_ROUNDING = 1e-12  # of a correlation of ranks
LAMBDA_1_GRID = tuple(round(0.05 * i, 2) for i in range(31))  # 0 to 1.5
LAMBDA_2_GRID = tuple(round(0.05 * i, 2) for i in range(121))  # 0 to 6


@dataclass(frozen=True)
class TuningResult:
    """The best weights that a search found, and how good they are.

    Attributes:
        lambda_1: weight of the sentence term.
        lambda_2: weight of the corpus term.
        spearman: Spearman correlation of cosine and gold score at those weights, -1 to 1.
        plain_spearman: the same at weights 0 and 0.
        at_edge: whether a weight is the largest of its grid, so that a wider grid may do better.
        settings: number of settings compared.
    """

    lambda_1: float
    lambda_2: float
    spearman: float
    plain_spearman: float
    at_edge: bool
    settings: int


def pair_sides(embeddings: Tensor, redundant: Tensor) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Split f(x) and f(x*) of 2N sentences, the first ones of N pairs before the second ones, into those two sides.

    Args:
        embeddings: (2N, D).
        redundant: (2N, D).

    Returns:
        For each side, its embeddings and redundant embeddings, each (N, D) in float64.
    """
    v_1, v_2 = embeddings.double().numpy().reshape(2, -1, embeddings.size(1))
    r_1, r_2 = redundant.double().numpy().reshape(2, -1, redundant.size(1))
    return (v_1, r_1), (v_2, r_2)


def spearman_surface(
    first: tuple[Array, Array],
    second: tuple[Array, Array],
    corpus_mean: Array,
    scores: Sequence[float],
    lambda_1_grid: Sequence[float],
    lambda_2_grid: Sequence[float],
) -> Array:
    """Spearman correlation of cos(v'_1, v'_2) with the scores, for every pair of weights.

    Each cosine is a ratio of quadratic forms in (1, -lambda_1, -lambda_2), so one setting costs O(N), whatever D.

    Args:
        first: embeddings and redundant embeddings of the first sentences, each (N, D).
        second: the same for the second sentences.
        corpus_mean: (D,).
        scores: N gold scores.
        lambda_1_grid: L1 weights of the sentence term.
        lambda_2_grid: L2 weights of the corpus term.

    Returns:
        (L1, L2); 0 where all cosines are equal. An embedding that vanishes but for rounding has cosine 0.
    """
    a, b = (np.stack(np.broadcast_arrays(*side, corpus_mean), axis=1) for side in (first, second))  # (N, 3, D)
    # inner products of the three parts of each row, (3, 3, N)
    forms = [
        np.ascontiguousarray(np.einsum("nid,njd->ijn", left, right, optimize=True))
        for left, right in ((a, b), (a, a), (b, b))
    ]
    # w' F w of a symmetric sum: six terms, the same for a pair in either order, to the bit
    terms = [(i, j) for i in range(3) for j in range(i, 3)]
    dots, firsts, seconds = (
        np.stack([form[i, j] if i == j else form[i, j] + form[j, i] for i, j in terms]) for form in forms
    )  # (6, N)
    lambda_2 = np.asarray(lambda_2_grid, dtype=np.float64)
    surface = np.empty((len(lambda_1_grid), len(lambda_2)))
    for row, lambda_1 in enumerate(lambda_1_grid):
        weights = np.stack([np.ones_like(lambda_2), np.full_like(lambda_2, -lambda_1), -lambda_2], axis=1)  # (L2, 3)
        factors = np.stack([weights[:, i] * weights[:, j] for i, j in terms], axis=1)  # (L2, 6)
        dot, aa, bb = (_weighted_sum(factors, form) for form in (dots, firsts, seconds))  # (L2, N)
        # of the parts' float32 precision nothing is left where a sum is 1e-12 of its terms
        left = (aa > _VANISHED * _weighted_sum(abs(factors), abs(firsts))) & (
            bb > _VANISHED * _weighted_sum(abs(factors), abs(seconds))
        )
        cosine = np.divide(dot, np.sqrt(np.where(left, aa * bb, 1)), out=np.zeros_like(dot), where=left)
        surface[row] = np.nan_to_num(spearman(cosine, scores))
    return surface


def _weighted_sum(factors: Array, terms: Array) -> Array:
    """Return (L2, K) @ (K, N) term by term, so that equal columns have equal sums, to the bit."""
    total = np.zeros((len(factors), terms.shape[1]))
    for factor, term in zip(factors.T, terms, strict=True):
        total += factor[:, None] * term
    return total


def search_lambdas(
    first: tuple[Array, Array],
    second: tuple[Array, Array],
    corpus_mean: Array,
    scores: Sequence[float],
    lambda_1_grid: Sequence[float] = LAMBDA_1_GRID,
    lambda_2_grid: Sequence[float] = LAMBDA_2_GRID,
) -> TuningResult:
    """Find the weights of the grid with the highest Spearman correlation; 0 and 0 are always tried, and win a tie.

    Args: as for ``spearman_surface``.
    """
    lambda_1 = sorted({0.0, *map(float, lambda_1_grid)})
    lambda_2 = sorted({0.0, *map(float, lambda_2_grid)})
    surface = spearman_surface(first, second, corpus_mean, scores, lambda_1, lambda_2)
    best = surface >= surface.max() - _ROUNDING
    i, j = np.unravel_index(int(best.argmax()), surface.shape)  # the first of equals: the smallest weights
    at_edge = (len(lambda_1) > 1 and i == len(lambda_1) - 1) or (len(lambda_2) > 1 and j == len(lambda_2) - 1)
    result = TuningResult(
        lambda_1=lambda_1[i],
        lambda_2=lambda_2[j],
        spearman=float(surface[i, j]),
        plain_spearman=float(surface[0, 0]),
        at_edge=bool(at_edge),
        settings=surface.size,
    )
    if result.at_edge:
        logger.warning("The best weights lie on the edge of the grid (%s): try a wider one.", result)
    return result
