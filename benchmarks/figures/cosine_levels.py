"""Cosines of graded pairs by level of their gold score: mean, variance and density (PaSeR, table 10 and figure 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import gaussian_kde
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim
from torch import Tensor

from st_extras.checks import check_count, check_finite, shown
from st_extras.evaluation.reporting import ReportingEvaluator, check_sentences
from st_extras.modules.lambda_search import check_scores
from st_extras.plots.axes import check_array, line_styles, new_axes, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LEVELS = 1000


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


def score_levels(scores: Tensor, levels: int, score_range: tuple[float, float]) -> Tensor:
    """Return the level 0..levels-1 of each gold score; levels have equal width, a bound belongs to the level above.

    Raises:
        ValueError: if there are fewer than two levels, the range is empty, a score lies outside of it, or all scores
            are equal.
    """
    levels = check_count("levels", levels, 2, _MOST_LEVELS)
    pair = score_range if isinstance(score_range, tuple | list) and len(score_range) == 2 else (0.0, 0.0)
    low, high = (check_finite("score_range: each end", end) for end in pair)
    if low >= high:
        raise ValueError(f"score_range must be (low, high) with low < high, got {shown(score_range)}.")
    outside = scores[(scores < low) | (scores > high)]
    if len(outside):
        raise ValueError(f"scores must lie in score_range={score_range!r}, got {float(outside[0])!r}.")
    if len(scores.unique()) < 2:
        raise ValueError(f"scores must differ to form levels, got {len(scores)} equal to {scores[:1].tolist()}.")
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
        raise ValueError(f"cosines and scores must have the same length, got {len(x)} and {len(gold)}.")
    index = score_levels(gold, levels, score_range)
    width = (score_range[1] - score_range[0]) / levels
    result = []
    for level in range(int(levels)):
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


class CosineLevelEvaluator(ReportingEvaluator):
    """Mean and variance of the cosines in each level of the gold score (PaSeR, table 10).

    Metrics: ``separation`` (the primary one: share of the cosines' variance that lies between the levels, 0 to 1,
    higher is better), and ``mean_<low>-<high>`` and ``variance_<low>-<high>`` for each level that has pairs.

    Args:
        sentences1: N first sentences.
        sentences2: N second sentences.
        scores: N gold scores.
        levels: number of levels of equal width (5 in the paper).
        score_range: lowest and highest possible score.
        name: prefix of the metrics and part of the CSV file's name.
        batch_size: sentences per forward pass.
        show_progress_bar: whether to show the progress of encoding.
        write_csv: whether to append a row to ``cosine_level_evaluation[_name]_results.csv`` in the output path.

    Raises:
        ValueError: if the lengths differ, a score lies outside the range, or all scores are equal.
    """

    def __init__(
        self,
        sentences1: Iterable[str],
        sentences2: Iterable[str],
        scores: Sequence[float],
        *,
        levels: int = 5,
        score_range: tuple[float, float] = (0.0, 5.0),
        name: str = "",
        batch_size: int = 32,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__("cosine_level_evaluation", "separation", name, batch_size, show_progress_bar, write_csv)
        self.sentences1 = check_sentences("sentences1", sentences1, at_least=2)
        self.sentences2 = check_sentences("sentences2", sentences2, at_least=2)
        self.scores = check_scores(scores)
        if not len(self.sentences1) == len(self.sentences2) == len(self.scores):
            raise ValueError(
                f"sentences1, sentences2 and scores must have the same length, got {len(self.sentences1)}, "
                f"{len(self.sentences2)} and {len(self.scores)}."
            )
        cosine_by_level([0.0] * len(self.scores), self.scores, levels=levels, score_range=score_range)
        self.levels = int(levels)
        self.score_range = score_range

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        """Return the metrics by name."""
        first, second = self.encode(model, self.sentences1 + self.sentences2).float().chunk(2)
        cosines = pairwise_cos_sim(first, second)
        table = cosine_by_level(cosines, self.scores, levels=self.levels, score_range=self.score_range)
        metrics = {"separation": level_separation(table)}
        for level in table:
            if level.count:
                metrics[f"mean_{level.low:g}-{level.high:g}"] = level.mean
                metrics[f"variance_{level.low:g}-{level.high:g}"] = level.variance
        return metrics

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Cosine by Gold-Score Level"

    def get_config_dict(self) -> dict[str, Any]:
        """Settings in the model card."""
        return {"levels": self.levels, "score_range": list(self.score_range)}


def plot_cosine_density(
    cosines: ArrayLike,
    scores: ArrayLike,
    *,
    levels: int = 5,
    score_range: tuple[float, float] = (0.0, 5.0),
    ax: Axes | None = None,
) -> Axes:
    """Draw the density of the cosines in each gold-score level (PaSeR, figure 5); the legend has mean and variance.

    A level with fewer than two different cosines has no density and gets a dashed line at its mean; an empty one gets
    nothing.

    Args:
        cosines: (N,), the model's cosine of each pair.
        scores: (N,), the gold score of each pair.
        levels: number of levels of equal width.
        score_range: lowest and highest possible gold score.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: as for :func:`cosine_by_level`.
    """
    x, gold = check_array("cosines", cosines, "N"), torch.as_tensor(check_array("scores", scores, "N"))
    table = cosine_by_level(torch.as_tensor(x), gold, levels=levels, score_range=score_range)
    index = score_levels(gold, levels, score_range).numpy()
    ax = new_axes(ax)
    margin = 0.1 * (float(x.max() - x.min()) or 1.0)
    grid = np.linspace(max(x.min() - margin, -1.0), min(x.max() + margin, 1.0), 200)  # a cosine is at most 1
    looks = zip(shades(len(table)), line_styles(len(table)), strict=True)
    for level, (row, (colour, style)) in enumerate(zip(table, looks, strict=True)):
        inside = x[index == level]
        label = f"{row.low:g}-{row.high:g} ({row.mean:.2f} / {row.variance:.3f})"
        if len(np.unique(inside)) > 1:
            ax.plot(grid, gaussian_kde(inside)(grid), color=colour, linestyle=style, label=label)
        elif len(inside):
            ax.axvline(row.mean, color=colour, label=label, linestyle="--")
    ax.set_xlabel("cosine similarity")
    ax.set_ylabel("density")
    ax.legend(title="gold score (mean / variance)", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax
