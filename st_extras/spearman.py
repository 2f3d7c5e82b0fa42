"""Graded pairs of texts: what they have to be, and how well similarities order them (Spearman's correlation)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from st_extras.checks import check_finite, counted, shown

ROUNDING = 1e-6
"""Similarities that differ by less are equal: the rounding of float32, in batches of other sizes."""


def check_text_pairs(name: str, pairs: Any) -> list[tuple[str, str]]:
    """Return pairs of sentences as a list of tuples.

    Raises:
        ValueError: if ``pairs`` holds anything but pairs of strings.
    """
    listed = list(pairs)
    for pair in listed:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise ValueError(f"{name} must hold pairs of sentences, got {shown(pair)}.")
    return [(first, second) for first, second in listed]


def check_pairs(
    pairs: Any, scores: Any, groups: Sequence[object] | None = None
) -> tuple[list[tuple[str, str]], list[float]]:
    """Return the pairs as tuples and the scores as floats, one for each pair.

    Raises:
        ValueError: if there are fewer than two pairs, or one is not a pair of strings; the scores do not match them,
            are not finite numbers or are all equal; or the groups do not match them, or one of the groups has no two
            different scores.
    """
    pairs = check_text_pairs("pairs", pairs)
    scores = scores.tolist() if isinstance(scores, Tensor) else list(scores)
    scores = [check_finite("each number in scores", score) for score in scores]
    if len(pairs) != len(scores) or len(set(scores)) < 2:
        raise ValueError(
            "pairs and scores must be at least two pairs and one score for each, not all equal, "
            f"got {counted(len(pairs), 'pair')}, {counted(len(scores), 'score')}, {len(set(scores))} distinct."
        )
    if groups is None:
        return pairs, scores
    if len(groups) != len(scores):
        raise ValueError(
            f"groups must be one for each pair, got {counted(len(groups), 'group')} for {counted(len(scores), 'pair')}."
        )
    by_group: dict[object, set[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        by_group.setdefault(group, set()).add(score)
    constant = [group for group, different in by_group.items() if len(different) < 2]
    if constant:
        raise ValueError(f"groups must each hold two different scores, but {sorted(map(str, constant))} do not.")
    return pairs, scores


def tied_ranks(similarities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return mean ranks along the last axis; similarities that differ by no more than ``ROUNDING`` are tied."""
    order = similarities.argsort(axis=-1, kind="stable")
    steps = np.diff(np.take_along_axis(similarities, order, axis=-1), axis=-1) > ROUNDING
    groups = np.zeros(similarities.shape)
    groups[..., 1:] = steps.cumsum(axis=-1)
    tied = np.empty_like(groups)
    np.put_along_axis(tied, order, groups, axis=-1)
    return np.asarray(rankdata(tied, axis=-1))


def spearman(similarities: Any, scores: Any) -> float:
    """Return the Spearman correlation of N similarities with N scores; NaN if one of the two is constant.

    Similarities that differ by no more than 1e-6 are equal: the rounding of float32 would order them, and another batch
    size would order them otherwise. Scores are equal only if they are the same.
    """
    x, y = tied_ranks(np.asarray(similarities, dtype=np.float64)), rankdata(scores)
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / spread if spread > 0 else math.nan


def spearman_of_pairs(embeddings: Tensor, scores: Sequence[float]) -> float:
    """Return 100 times the Spearman correlation of the cosines of N pairs with their scores; NaN as :func:`spearman`.

    Args:
        embeddings: (2N, D), those of the N first sentences before those of the second ones.
        scores: N gold scores.
    """
    first, second = embeddings.detach().chunk(2)
    return 100 * spearman(torch.cosine_similarity(first, second).cpu().double().numpy(), scores)
