"""Pictures of embedding spaces and of attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import gaussian_kde

from st_extras.checks import check_bool, check_choice, check_count
from st_extras.evaluation.geometry import cosine_by_level, score_levels
from st_extras.evaluation.reporting import LARGEST_SEED
from st_extras.plots.axes import (
    COLOURS,
    Floats,
    check_mapping,
    check_matrix,
    check_vector,
    check_words,
    line_styles,
    new_axes,
    shades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_embedding_map(
    embeddings: ArrayLike,
    values: ArrayLike | None = None,
    *,
    value_label: str = "",
    log_values: bool = False,
    method: str = "pca",
    seed: int = 42,
    ax: Axes | None = None,
) -> Axes:
    """Draw embeddings in two dimensions, coloured by a value of each (SLT-FAI, figures 5 and 6).

    Tokens coloured by frequency show whether frequency shapes the space; sentences show how isotropic it is.

    Args:
        embeddings: (N, D), N >= 3: tokens or sentences.
        values: (N,), the value that colours each point, for instance a token count; None draws one colour.
        value_label: label of the colour bar.
        log_values: whether to colour by the logarithm; values must then be > 0.
        method: "pca" (the two directions of largest variance, always the same picture) or "tsne".
        seed: seed of t-SNE.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if a shape does not fit, a value is not finite or has no logarithm, or the method is unknown.
    """
    x = check_matrix("embeddings", embeddings, least_rows=3)
    check_bool("log_values", log_values)
    colours = None if values is None else check_vector("values", values, len(x))
    if colours is not None and log_values and bool((colours <= 0).any()):
        raise ValueError(f"values must be > 0 for log_values=True, got {colours.min():g}.")
    check_choice("method", method, ("pca", "tsne"))
    seed = check_count("seed", seed, 0, LARGEST_SEED)
    points = in_two_dimensions(x, method, seed)
    ax = new_axes(ax)
    size = 30.0 if len(x) < 500 else 6.0
    if colours is None:
        ax.scatter(points[:, 0], points[:, 1], s=size, alpha=0.7, linewidths=0)
    else:
        norm = "log" if log_values else None
        dots = ax.scatter(points[:, 0], points[:, 1], c=colours, s=size, cmap=COLOURS, norm=norm, linewidths=0)
        ax.figure.colorbar(dots, ax=ax, label=value_label)
    name = "principal component" if method == "pca" else "t-SNE axis"
    ax.set_xlabel(f"{name} 1")
    ax.set_ylabel(f"{name} 2")
    return ax


def in_two_dimensions(x: Floats, method: str, seed: int) -> Floats:
    """Return (N, 2) points for (N, D) embeddings, D >= 2, by "pca" or "tsne"."""
    return _principal_plane(x) if method == "pca" else _tsne(x, seed)


def _principal_plane(x: Floats) -> Floats:
    """Return the two leading principal components (N, 2), each signed so that its largest value is positive."""
    centred = x - x.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    points: Floats = centred @ directions[:2].T
    if points.shape[1] < 2:
        raise ValueError(f"embeddings must have D >= 2 dimensions, got {x.shape}.")
    signs = np.sign(points[np.abs(points).argmax(axis=0), [0, 1]])
    return points * np.where(signs == 0, 1, signs)


def _tsne(x: Floats, seed: int) -> Floats:
    from sklearn.manifold import TSNE

    if float(np.ptp(x, axis=0).max()) <= 1e-12 * float(np.abs(x).max()):  # all rows equal, which ends scikit-learn
        return np.zeros((len(x), 2))
    return np.asarray(TSNE(perplexity=min(30, (len(x) - 1) / 3), random_state=seed).fit_transform(x), dtype=float)


def plot_attention_received(words: Sequence[str], weights: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the self-attention that each word of a sentence receives as bars, the first on top (SLT-FAI, figure 7).

    Args:
        words: L words, from ``attention_received``.
        weights: (L,), shares that sum to 1.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if there are no words, or not as many weights as words.
    """
    words = check_words(words)
    shares = check_vector("weights", weights, len(words))
    ax = new_axes(ax)
    places = np.arange(len(words))
    ax.barh(places, shares, color=shades(1)[0])
    ax.set_yticks(places, labels=list(words))
    ax.invert_yaxis()
    ax.set_xlabel("share of self-attention received")
    return ax


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
        ValueError: as for ``st_extras.evaluation.geometry.cosine_by_level``.
    """
    import torch

    x = check_vector("cosines", cosines)
    gold = torch.as_tensor(check_vector("scores", scores))
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


def plot_alignment_uniformity(
    points: Mapping[str, tuple[float, float]],
    scores: Mapping[str, float] | None = None,
    *,
    score_label: str = "Spearman",
    ax: Axes | None = None,
) -> Axes:
    """Draw models by uniformity (x) and alignment (y); lower is better (AdCSE, figure 3; PaSeR, figure 6).

    Args:
        points: model -> (alignment, uniformity).
        scores: model -> score, which gives the model its colour and the number in brackets; None draws one colour.
        score_label: label of the colour bar.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if there are no points, a point is not a pair of finite numbers, or a model has no score.
    """
    check_mapping("points", points, "model")
    if scores is not None:
        check_mapping("scores", scores, "model")
    names = list(points)
    missing = [] if scores is None else [name for name in names if name not in scores]
    if missing:
        raise ValueError(f"scores must have a score for every model of points, got none for {', '.join(missing)}.")
    table = check_matrix("points", [points[name] for name in names], columns=2)
    ax = new_axes(ax)
    if scores is None:
        ax.scatter(table[:, 1], table[:, 0])
    else:
        values = check_vector("scores", [scores[name] for name in names], len(names))
        dots = ax.scatter(table[:, 1], table[:, 0], c=values, cmap=COLOURS)
        ax.figure.colorbar(dots, ax=ax, label=score_label)
    rank = table[:, 1].argsort().argsort()
    for name, (align, uniform), place in zip(names, table, rank, strict=True):
        text = name if scores is None else f"{name} ({scores[name]:.1f})"
        below = place % 2 == 1  # alternate between lower left and upper right, so that neighbours do not overlap
        offset, across, up = ((-5, -2), "right", "top") if below else ((5, 2), "left", "bottom")
        ax.annotate(
            text, (uniform, align), xytext=offset, textcoords="offset points", fontsize="small", ha=across, va=up
        )
    ax.margins(0.18)
    ax.set_xlabel("uniformity (lower is better)")
    ax.set_ylabel("alignment (lower is better)")
    return ax
