"""Cosines of graded pairs by level of their gold score: mean, variance and density (PaSeR, table 10 and figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gaussian_kde
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim

from st_extras.plots.axes import line_styles, new_axes, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = 5
"""Gold scores are 0 to 5: level 0 is [0, 1), and the last one includes 5."""


@dataclass(frozen=True)
class LevelCosines:
    """Cosines of the pairs of a level.

    Attributes:
        name: lowest and highest score, as "0-1".
        count: number of pairs.
        mean: mean cosine; NaN if the level is empty.
        variance: population variance of the cosines; NaN if the level is empty.
    """

    name: str
    count: int
    mean: float
    variance: float


def level_of(scores: ArrayLike) -> NDArray[np.int64]:
    """Return the level of each gold score, (N,)."""
    return np.minimum(np.asarray(scores, dtype=float).astype(int), LEVELS - 1)


def cosine_by_level(cosines: ArrayLike, scores: ArrayLike) -> list[LevelCosines]:
    """Return mean and variance of the cosines in each level of the gold score (PaSeR, table 10).

    Args:
        cosines: (N,), the model's cosine of each pair.
        scores: (N,), the gold score of each pair, 0 to 5.
    """
    found, levels = np.asarray(cosines, dtype=float), level_of(scores)
    result = []
    for level in range(LEVELS):
        inside = found[levels == level]
        mean, variance = (float(inside.mean()), float(inside.var())) if len(inside) else (np.nan, np.nan)
        result.append(LevelCosines(f"{level}-{level + 1}", len(inside), mean, variance))
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


def model_levels(
    model: SentenceTransformer, sentences1: Sequence[str], sentences2: Sequence[str], scores: Sequence[float]
) -> list[LevelCosines]:
    """Return the same of a model on N graded pairs."""
    first, second = (model.encode(list(side), convert_to_tensor=True) for side in (sentences1, sentences2))
    return cosine_by_level(pairwise_cos_sim(first, second).cpu(), scores)


def plot_cosine_density(cosines: ArrayLike, scores: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the density of the cosines in each gold-score level (PaSeR, figure 5); the legend has mean and variance.

    A level with fewer than two different cosines has no density and gets a dashed line at its mean; an empty one gets
    nothing.

    Args:
        cosines: (N,), the model's cosine of each pair.
        scores: (N,), the gold score of each pair, 0 to 5.
        ax: axes to draw on; None makes a new figure.
    """
    x, levels = np.asarray(cosines, dtype=float), level_of(scores)
    table = cosine_by_level(x, scores)
    ax = new_axes(ax)
    margin = 0.1 * (float(x.max() - x.min()) or 1.0)
    grid = np.linspace(max(x.min() - margin, -1.0), min(x.max() + margin, 1.0), 200)  # a cosine is at most 1
    looks = zip(shades(len(table)), line_styles(len(table)), strict=True)
    for level, (row, (colour, style)) in enumerate(zip(table, looks, strict=True)):
        inside = x[levels == level]
        label = f"{row.name} ({row.mean:.2f} / {row.variance:.3f})"
        if len(np.unique(inside)) > 1:
            ax.plot(grid, gaussian_kde(inside)(grid), color=colour, linestyle=style, label=label)
        elif len(inside):
            ax.axvline(row.mean, color=colour, label=label, linestyle="--")
    ax.set_xlabel("cosine similarity")
    ax.set_ylabel("density")
    ax.legend(title="gold score (mean / variance)", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax
