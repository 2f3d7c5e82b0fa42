"""Search of RepAL's two weights on cached embeddings: thousands of settings in seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Array = NDArray[np.float64]

LAMBDA_1_GRID = tuple(round(0.05 * i, 2) for i in range(31))  # 0 to 1.5
LAMBDA_2_GRID = tuple(round(0.05 * i, 2) for i in range(121))  # 0 to 6


@dataclass(frozen=True)
class TuningResult:
    """What a search found.

    Attributes:
        lambda_1: weight of the sentence term.
        lambda_2: weight of the corpus term.
        spearman: Spearman correlation of cosine and gold score at those weights, -1 to 1; of a search with groups,
            the mean over them.
        plain_spearman: that at 0 / 0.
        at_edge: whether a weight is the largest of its grid: then search further.
        settings: how many settings were compared.
    """

    lambda_1: float
    lambda_2: float
    spearman: float
    plain_spearman: float
    at_edge: bool
    settings: int


def check_pairs(pairs: Sequence[object], scores: Sequence[float]) -> list[float]:
    """The scores as numbers.

    Raises:
        ValueError: fewer than two pairs, scores that do not match them, are not finite or are all equal.
    """
    scores = [math.nan if score is None else float(score) for score in scores]
    if not all(map(math.isfinite, scores)):
        raise ValueError("scores must be finite numbers: leave pairs without a gold score out")
    if len(pairs) != len(scores) or len(set(scores)) < 2:
        raise ValueError(
            f"pairs and scores must be at least two pairs and one score for each, not all equal; got {len(pairs)} "
            f"pairs, {len(scores)} scores, {len(set(scores))} distinct"
        )
    return scores


def check_groups(groups: Sequence[object], scores: Sequence[float]) -> None:
    """ValueError for groups that do not match the scores, or one without two different scores."""
    if len(groups) != len(scores):
        raise ValueError(f"groups must be one for each pair; got {len(groups)} groups, {len(scores)} pairs")
    constant = [group for group in set(groups) if len({scores[i] for i in _members(groups, group)}) < 2]
    if constant:
        raise ValueError(f"groups must each hold two different scores; {sorted(map(str, constant))} do not")


def _members(groups: Sequence[object], group: object) -> list[int]:
    return [i for i, other in enumerate(groups) if other == group]


def _gram(first: Array, second: Array) -> Array:
    """Inner products of the three parts of each row: (N, 3, D), (N, 3, D) -> (3, 3, N)."""
    return np.ascontiguousarray(np.einsum("nid,njd->ijn", first, second, optimize=True))


def _parts(embeddings: Array, redundant: Array, corpus_mean: Array) -> Array:
    mean = np.broadcast_to(corpus_mean, np.shape(embeddings))
    return np.stack([embeddings, redundant, mean], axis=1).astype(np.float64)  # (N, 3, D)


def spearman_surface(
    first: tuple[Array, Array],
    second: tuple[Array, Array],
    corpus_mean: Array,
    scores: Sequence[float],
    lambda_1_grid: Sequence[float],
    lambda_2_grid: Sequence[float],
    groups: Sequence[object] | None = None,
) -> Array:
    """Spearman correlation of cos(v'_1, v'_2) with the scores for every pair of weights.

    Each cosine is a ratio of quadratic forms in (1, -lambda_1, -lambda_2), so one setting costs O(N), whatever D.

    Args:
        first: embeddings and redundant embeddings of the first sentences, each (N, D).
        second: those of the second sentences.
        corpus_mean: (D,).
        scores: N gold scores.
        lambda_1_grid: L1 weights of the sentence term.
        lambda_2_grid: L2 weights of the corpus term.
        groups: N labels: the mean over the groups of Spearman within each.

    Returns:
        (L1, L2). A vanishing embedding has cosine 0.
    """
    if groups is not None:
        within = []
        for group in dict.fromkeys(groups):
            rows = _members(groups, group)
            one, other = ((part[0][rows], part[1][rows]) for part in (first, second))
            gold_scores = [scores[i] for i in rows]
            within.append(spearman_surface(one, other, corpus_mean, gold_scores, lambda_1_grid, lambda_2_grid))
        return np.asarray(np.mean(within, axis=0))
    a, b = _parts(*first, corpus_mean), _parts(*second, corpus_mean)
    forms = [_gram(a, b), _gram(a, a), _gram(b, b)]
    gold = rankdata(scores)
    gold = (gold - gold.mean()) / gold.std()
    two = np.asarray(lambda_2_grid, dtype=np.float64)
    surface = np.empty((len(lambda_1_grid), len(two)))
    for row, weight in enumerate(lambda_1_grid):
        weights = np.stack([np.ones_like(two), np.full_like(two, -weight), -two], axis=1)  # (L2, 3)
        outer = (weights[:, :, None] * weights[:, None, :]).reshape(len(two), 9)
        dot, aa, bb = (outer @ form.reshape(9, -1) for form in forms)  # (L2, N)
        length = np.sqrt(np.clip(aa, 0, None) * np.clip(bb, 0, None))
        cosine = np.divide(dot, length, out=np.zeros_like(dot), where=length > 1e-12)
        ranks = rankdata(cosine, axis=1)
        ranks -= ranks.mean(axis=1, keepdims=True)
        deviation = ranks.std(axis=1)
        correlation = np.divide(
            (ranks @ gold) / len(gold), deviation, out=np.zeros_like(deviation), where=deviation > 0
        )
        surface[row] = correlation
    return surface


def search_lambdas(
    first: tuple[Array, Array],
    second: tuple[Array, Array],
    corpus_mean: Array,
    scores: Sequence[float],
    lambda_1_grid: Sequence[float] = LAMBDA_1_GRID,
    lambda_2_grid: Sequence[float] = LAMBDA_2_GRID,
    groups: Sequence[object] | None = None,
) -> TuningResult:
    """The best weights of the grid by Spearman; 0 / 0 is always compared, and wins a tie.

    Args: as for ``spearman_surface``.
    """
    one, two = sorted({0.0, *map(float, lambda_1_grid)}), sorted({0.0, *map(float, lambda_2_grid)})
    surface = spearman_surface(first, second, corpus_mean, scores, one, two, groups)
    i, j = np.unravel_index(int(surface.argmax()), surface.shape)  # the first of equals: the smallest weights
    at_edge = (len(one) > 1 and i == len(one) - 1) or (len(two) > 1 and j == len(two) - 1)
    return TuningResult(one[i], two[j], float(surface[i, j]), float(surface[0, 0]), bool(at_edge), surface.size)
