"""How well the cosines of pairs order them: Spearman's correlation with gold scores, wherever it is taken.

The metric of ``STSEvaluator`` and ``adapt``, its interval and RepAL's search of weights share these functions: cosines
are computed in float64 from the embeddings as they come. Only equal cosines are tied, as in ``scipy.stats.spearmanr``,
but all are where they lie within 1e-9 of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

Floats = NDArray[np.float64]

SAME_COSINE = 1e-9
"""Cosines that all lie within this are equal: float32 embeddings have no direction left that would tell them apart."""
_BLOCK = 2**20  # numbers of one side that are held in float64 at a time: 8 MiB


def cosines_of_pairs(first: Tensor, second: Tensor) -> Floats:
    """Return the cosines (N,) of N pairs in float64; those of equal embeddings are exactly 1, of a zero row 0.

    A pair has the same cosine in either order, to the bit, wherever it stands.

    Args:
        first: (N, D).
        second: (N, D).
    """
    found = [np.empty(0)]
    size = max(1, _BLOCK // max(1, first.size(1)))
    for start in range(0, len(first), size):
        a, b = (side[start : start + size].detach().cpu().double().numpy() for side in (first, second))
        dot, aa, bb = (np.einsum("nd,nd->n", left, right) for left, right in ((a, b), (a, a), (b, b)))
        length = np.sqrt(aa * bb)  # sqrt(x * x) is x, so equal rows have the cosine x / x
        found.append(np.divide(dot, length, out=np.zeros_like(dot), where=length > 0))
    return np.concatenate(found)


def cosine_ranks(cosines: NDArray[Any]) -> Floats:
    """Return mean ranks along the last axis; all are the same where the cosines lie within 1e-9."""
    ranks: Floats = rankdata(cosines, axis=-1)
    ranks[np.ptp(cosines, axis=-1) <= SAME_COSINE] = (cosines.shape[-1] + 1) / 2
    return ranks


def correlation(left: NDArray[Any], right: NDArray[Any]) -> Floats:
    """Return Pearson's correlation along the last axis, of ranks Spearman's; NaN where one side is constant."""
    left, right = (side - side.mean(axis=-1, keepdims=True) for side in (left, right))
    spread = np.sqrt((left * left).sum(axis=-1) * (right * right).sum(axis=-1))
    products = np.asarray((left * right).sum(axis=-1))
    found: Floats = np.divide(products, spread, out=np.full_like(products, np.nan), where=spread > 0)
    return found


def spearman(cosines: Any, scores: Any) -> Floats:
    """Return the Spearman correlation, -1 to 1, of cosines (..., N) with N gold scores.

    NaN where the cosines lie within 1e-9 of each other, or the scores are equal.
    """
    return correlation(cosine_ranks(np.asarray(cosines, dtype=np.float64)), rankdata(scores))


def spearman_of_pairs(embeddings: Tensor, scores: Sequence[float]) -> float:
    """Return 100 times the Spearman correlation of the cosines of N pairs with their scores; NaN as :func:`spearman`.

    Args:
        embeddings: (2N, D), those of the N first sentences before those of the second ones.
        scores: N gold scores.
    """
    return 100 * float(spearman(cosines_of_pairs(*embeddings.chunk(2)), scores))
