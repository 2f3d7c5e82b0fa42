"""The shape of an embedding space: alignment, uniformity, isotropy, and cosines by gold-score level.

Wang and Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
Hypersphere", ICML 2020; used by AdCSE (eq. 10-11, fig. 3), PaSeR (table 10, appendix D) and SimCSE.

Every function takes plain embeddings (N, D) and scales the rows to length one itself. ``GeometryEvaluator`` and
``CosineLevelEvaluator`` compute the measures for a model, during training or after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from st_extras.checks import check_count, shown
from st_extras.evaluation.reporting import check_embeddings
from st_extras.modules.lambda_search import check_scores

_ROWS_AT_ONCE = 1024
_MOST_LEVELS = 1000


def alignment(x: Tensor, y: Tensor) -> float:
    """Alignment, mean_i ||x_i - y_i||^2 over positive pairs: 0 (equal) to 4 (opposite); lower is better.

    Args:
        x: (N, D), one side of the pairs.
        y: (N, D), the other side.

    Raises:
        ValueError: if the shapes differ, or a row is zero or not finite.
    """
    a, b = check_embeddings("x", x), check_embeddings("y", y)
    if a.shape != b.shape:
        raise ValueError(f"x and y must have the same shape, got {tuple(a.shape)} and {tuple(b.shape)}.")
    return float((a - b).square().sum(dim=1).mean())


def uniformity(x: Tensor) -> float:
    """Uniformity, log mean_{i<j} exp(-2 ||x_i - x_j||^2): 0 (collapsed) to about -4; lower is better.

    For points spread evenly over a sphere of many dimensions it tends to -4. It needs memory for N * 1024 scores.

    Args:
        x: (N, D), N >= 2.

    Raises:
        ValueError: if there are fewer than two rows, or a row is zero or not finite.
    """
    u = check_embeddings("x", x, at_least=2)
    total = 0.0
    for start in range(0, len(u), _ROWS_AT_ONCE):
        rows = u[start : start + _ROWS_AT_ONCE]
        squared = (2 - 2 * rows @ u.T).clamp_min(0.0)  # (rows, N)
        potential = torch.exp(-2 * squared)
        potential[torch.arange(len(rows)), torch.arange(start, start + len(rows))] = 0.0
        total += float(_on_cpu(potential.sum(dim=1)).sum())
    return math.log(total / (len(u) * (len(u) - 1)))


def mean_cosine(x: Tensor) -> float:
    """Mean cosine over ALL distinct pairs, in closed form: (||sum_i x_i||^2 - N) / (N (N - 1)); 1 is collapsed.

    It is the expected cosine of two random sentences, without drawing any.

    Args:
        x: (N, D), N >= 2.

    Raises:
        ValueError: if there are fewer than two rows, or a row is zero or not finite.
    """
    u = _on_cpu(check_embeddings("x", x, at_least=2))
    count = len(u)
    return float((u.sum(dim=0).square().sum() - u.square().sum()) / (count * (count - 1)))


def partition_ratio(x: Tensor) -> float:
    """Partition ratio, min_c Z(c) / max_c Z(c) with Z(c) = sum_i exp(c . x_i); 1 is isotropic.

    Mu and Viswanath, ICLR 2018. c runs over the eigenvectors of X^T X with both signs, because an eigenvector's sign is
    arbitrary. For unit vectors the ratio is at least exp(-2).

    Args:
        x: (N, D).

    Raises:
        ValueError: if a row is zero or not finite.
    """
    u = _on_cpu(check_embeddings("x", x))
    _, directions = torch.linalg.eigh(u.T @ u)
    projections = u @ directions  # (N, D)
    z = torch.cat([projections, -projections], dim=1).logsumexp(dim=0)
    return float((z.min() - z.max()).exp())


def iso_score(x: Tensor) -> float:
    """IsoScore (Rudman et al., Findings of ACL 2022): how evenly the variance spreads over the dimensions.

    1 if the covariance is a multiple of the identity, 0 if all variance lies in one direction or there is none. It
    looks at the centred embeddings: a common offset, which worsens every other measure here, does not change it.

    Args:
        x: (N, D), N >= 2 and D >= 2.

    Raises:
        ValueError: if there are fewer than two rows or dimensions, or a row is zero or not finite.
    """
    u = _on_cpu(check_embeddings("x", x, at_least=2))
    size = u.size(1)
    if size < 2:
        raise ValueError(f"x must have D >= 2 dimensions for IsoScore, got the shape {tuple(u.shape)}.")
    spectrum = torch.linalg.eigvalsh(torch.cov(u.T)).clamp_min(0.0)  # variances along the principal axes
    if float(spectrum.sum()) <= 1e-12:
        return 0.0
    scaled = math.sqrt(size) * spectrum / spectrum.norm()
    defect = float((scaled - 1).norm()) / math.sqrt(2 * (size - math.sqrt(size)))
    fraction = (size - defect**2 * (size - math.sqrt(size))) ** 2 / size**2
    return (size * fraction - 1) / (size - 1)


def effective_rank(x: Tensor) -> float:
    """Exponential of the entropy of the singular values' shares: 1 (collapsed) to min(N, D).

    Roy and Vetterli, EUSIPCO 2007. The matrix is not centred, so a direction common to all rows lowers the rank.

    Args:
        x: (N, D).

    Raises:
        ValueError: if a row is zero or not finite.
    """
    values = torch.linalg.svdvals(_on_cpu(check_embeddings("x", x)))
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


def top_eigenvalue_share(x: Tensor) -> float:
    """Share of the largest eigenvalue in the trace of the UNCENTRED second moment X^T X / N: 1/D (isotropic) to 1.

    Args:
        x: (N, D).

    Raises:
        ValueError: if a row is zero or not finite.
    """
    spectrum = torch.linalg.svdvals(_on_cpu(check_embeddings("x", x))).square()
    return float(spectrum[0] / spectrum.sum())


@dataclass(frozen=True)
class LevelCosines:
    """Cosines of the pairs whose gold score lies in [low, high); the last level includes ``high``.

    Attributes:
        low: lower bound of the score.
        high: upper bound of the score.
        count: number of pairs in the level.
        mean: mean cosine; NaN if the level is empty.
        variance: population variance of the cosines; NaN if the level is empty.
    """

    low: float
    high: float
    count: int
    mean: float
    variance: float


def _check_range(score_range: Any) -> tuple[float, float]:
    """Return the lowest and the highest score, or raise a ValueError if they are not two increasing, finite numbers."""
    pair: Any = score_range if isinstance(score_range, tuple | list) and len(score_range) == 2 else ("", "")
    real = all(type(end) is not bool and isinstance(end, Real) and math.isfinite(end) for end in pair)
    if not real or not pair[0] < pair[1]:
        raise ValueError(f"score_range must be (low, high) with low < high, got {score_range!r}.")
    return pair[0], pair[1]


def score_levels(scores: Tensor, levels: int, score_range: tuple[float, float]) -> Tensor:
    """Return the level 0..levels-1 of each gold score; levels have equal width, a bound belongs to the level above.

    Raises:
        ValueError: if there are fewer than two levels, the range is empty, a score lies outside of it, or all scores
            are equal.
    """
    low, high = _check_range(score_range)
    levels = check_count("levels", levels, 2, _MOST_LEVELS)
    outside = (scores < low) | (scores > high) | ~torch.isfinite(scores)
    if bool(outside.any()):
        value = float(scores[outside][0])
        raise ValueError(f"scores must lie in score_range={score_range!r}, got {value!r}.")
    if scores.numel() == 0 or bool((scores == scores[0]).all()):
        raise ValueError(f"scores must differ to form levels, got {scores.numel()} equal to {scores[:1].tolist()}.")
    return ((scores - low) * levels / (high - low)).floor().clamp(0, levels - 1).long()


def cosine_by_level(
    cosines: Sequence[float] | Tensor,
    scores: Sequence[float] | Tensor,
    *,
    levels: int = 5,
    score_range: tuple[float, float] = (0.0, 5.0),
) -> list[LevelCosines]:
    """Mean and variance of the cosines in each gold-score level (PaSeR, table 10).

    Args:
        cosines: (N,), the model's cosine of each pair.
        scores: (N,), the gold score of each pair.
        levels: number of levels of equal width.
        score_range: lowest and highest possible gold score.

    Raises:
        ValueError: if one of them is not a finite number, the lengths differ, a score lies outside the range, or all
            scores are equal.
    """
    x = torch.tensor(check_scores(cosines, "cosines"), dtype=torch.float64)
    gold = torch.tensor(check_scores(scores), dtype=torch.float64)
    if len(x) != len(gold):
        raise ValueError(
            f"cosines and scores must have the same length, got {len(x)} and {len(gold)}: {shown(cosines)} and "
            f"{shown(scores)}."
        )
    index = score_levels(gold, levels, score_range)
    levels = int(levels)
    width = (score_range[1] - score_range[0]) / levels
    result = []
    for level in range(levels):
        inside = x[index == level]
        low = score_range[0] + level * width
        mean, variance = float(inside.mean()), float((inside - inside.mean()).square().mean())
        result.append(LevelCosines(low, low + width, len(inside), mean, variance))
    return result


def level_separation(levels: Sequence[LevelCosines]) -> float:
    """Share of the cosines' variance that lies between the levels (eta squared): 0 to 1, higher is better.

    It combines PaSeR's two criteria, distant means and little variance within a level. 0 if all cosines are equal.
    """
    filled = [level for level in levels if level.count]
    count = sum(level.count for level in filled)
    mean = sum(level.count * level.mean for level in filled) / count
    between = sum(level.count * (level.mean - mean) ** 2 for level in filled) / count
    within = sum(level.count * level.variance for level in filled) / count
    return between / (between + within) if between + within > 0 else 0.0


def _on_cpu(u: Tensor) -> Tensor:
    """Return the rows on the CPU in float64, which some accelerators do not support."""
    return u.cpu().double()
