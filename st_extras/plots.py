"""Pictures of embedding spaces and trainings: functions that draw on Axes and return them.

They need matplotlib (``pip install "st-extras[plot]"``), imported at the first call. Each takes ``ax=None``: the axes
to draw on, or None for a new figure. They take plain arrays and decide nothing: the figures drawn are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gaussian_kde

from st_extras.evaluation.geometry import cosine_by_level, score_levels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = "viridis"
_Floats = NDArray[np.float64]


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
    """Embeddings in two dimensions, coloured by a value of each (SLT-FAI, figures 5 and 6).

    Tokens coloured by their frequency show whether frequency shapes the space; sentences show its isotropy.

    Args:
        embeddings: (N, D), N >= 3: tokens or sentences.
        values: (N,), the colour of each point, for instance token counts; None draws one colour.
        value_label: the colour bar's label.
        log_values: colour by the logarithm; values must be > 0.
        method: "pca" (the two directions of largest variance, the same picture every time) or "tsne".
        seed: of t-SNE.
        ax: axes to draw on.

    Raises:
        ValueError: shapes that do not fit, values that are not finite or have no logarithm, an unknown method.
    """
    x = _matrix("embeddings", embeddings, least_rows=3)
    colours = None if values is None else _vector("values", values, len(x))
    if colours is not None and log_values and bool((colours <= 0).any()):
        raise ValueError(f"values must be > 0 for log_values=True, got {colours.min():g}.")
    if method not in ("pca", "tsne"):
        raise ValueError(f'method must be "pca" or "tsne", got {method!r}.')
    ax = _axes(ax)
    points = _principal_plane(x) if method == "pca" else _tsne(x, seed)
    size = 30.0 if len(x) < 500 else 6.0
    if colours is None:
        ax.scatter(points[:, 0], points[:, 1], s=size, alpha=0.7, linewidths=0)
    else:
        norm = "log" if log_values else None
        dots = ax.scatter(points[:, 0], points[:, 1], c=colours, s=size, cmap=_COLOURS, norm=norm, linewidths=0)
        ax.figure.colorbar(dots, ax=ax, label=value_label)
    name = "principal component" if method == "pca" else "t-SNE axis"
    ax.set_xlabel(f"{name} 1")
    ax.set_ylabel(f"{name} 2")
    return ax


def plot_attention_received(words: Sequence[str], weights: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Self-attention received by each word of one sentence (SLT-FAI, figure 7), as horizontal bars, first word on top.

    Args:
        words: L words, from `attention_received`.
        weights: (L,), shares that sum to 1.
        ax: axes to draw on.

    Raises:
        ValueError: as many weights as words are needed, at least one.
    """
    if not words:
        raise ValueError("words must hold at least one word, got [].")
    shares = _vector("weights", weights, len(words))
    ax = _axes(ax)
    places = np.arange(len(words))
    ax.barh(places, shares, color=_shades(1)[0])
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
    """Density of the cosines in each gold-score level (PaSeR, figure 5), with mean and variance in the legend.

    A level with fewer than two different cosines has no density: a dashed line at its mean; an empty one nothing.

    Args:
        cosines: (N,), the model's cosine of each pair.
        scores: (N,), the gold score of each pair.
        levels: number of levels of equal width.
        score_range: lowest and highest possible gold score.
        ax: axes to draw on.

    Raises:
        ValueError: as `st_extras.evaluation.geometry.cosine_by_level`.
    """
    import torch

    x = np.asarray(cosines, dtype=float)
    gold = torch.as_tensor(np.asarray(scores, dtype=float))
    table = cosine_by_level(torch.as_tensor(x), gold, levels=levels, score_range=score_range)
    index = score_levels(gold, levels, score_range).numpy()
    ax = _axes(ax)
    margin = 0.1 * (float(x.max() - x.min()) or 1.0)
    grid = np.linspace(max(x.min() - margin, -1.0), min(x.max() + margin, 1.0), 200)  # no cosine lies beyond
    for level, (row, colour) in enumerate(zip(table, _shades(levels), strict=True)):
        inside = x[index == level]
        label = f"{row.low:g}-{row.high:g} ({row.mean:.2f} / {row.variance:.3f})"
        if len(np.unique(inside)) > 1:
            ax.plot(grid, gaussian_kde(inside)(grid), color=colour, label=label)
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
    """Models by uniformity (x) and alignment (y), the lower the better (AdCSE, figure 3; PaSeR, figure 6).

    Args:
        points: model -> (alignment, uniformity).
        scores: model -> score, for every model: its colour and the figure in brackets.
        score_label: the colour bar's label.
        ax: axes to draw on.

    Raises:
        ValueError: no point, a point that is no finite pair, or a model without score.
    """
    if not points:
        raise ValueError("points must hold at least one model, got {}.")
    names = list(points)
    missing = [] if scores is None else [name for name in names if name not in scores]
    if missing:
        raise ValueError(f"scores must have every model of points, got none for {', '.join(missing)}.")
    table = _matrix("points", [points[name] for name in names], columns=2)
    ax = _axes(ax)
    if scores is None:
        ax.scatter(table[:, 1], table[:, 0])
    else:
        values = _vector("scores", [scores[name] for name in names], len(names))
        dots = ax.scatter(table[:, 1], table[:, 0], c=values, cmap=_COLOURS)
        ax.figure.colorbar(dots, ax=ax, label=score_label)
    rank = table[:, 1].argsort().argsort()
    for name, (align, uniform), place in zip(names, table, rank, strict=True):
        text = name if scores is None else f"{name} ({scores[name]:.1f})"
        below = place % 2 == 1  # and to the left, the others above to the right: neighbours do not overlap
        offset, across, up = ((-5, -2), "right", "top") if below else ((5, 2), "left", "bottom")
        ax.annotate(
            text, (uniform, align), xytext=offset, textcoords="offset points", fontsize="small", ha=across, va=up
        )
    ax.margins(0.18)
    ax.set_xlabel("uniformity (lower is better)")
    ax.set_ylabel("alignment (lower is better)")
    return ax


def plot_lambda_heatmap(
    lambda_1: ArrayLike, lambda_2: ArrayLike, spearman: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """RepAL's Spearman correlation over its two weights, the best setting starred.

    Args:
        lambda_1: (A,), strictly increasing: weights of the partial mask, upwards.
        lambda_2: (B,), strictly increasing: weights of the corpus mean, to the right.
        spearman: (A, B).
        ax: axes to draw on.

    Raises:
        ValueError: a grid that does not increase, or a shape that does not fit.
    """
    first, second = _increasing("lambda_1", lambda_1), _increasing("lambda_2", lambda_2)
    table = _matrix("spearman", spearman)
    if table.shape != (len(first), len(second)):
        raise ValueError(f"spearman must be (lambda_1, lambda_2) = {(len(first), len(second))}, got {table.shape}.")
    ax = _axes(ax)
    mesh = ax.pcolormesh(second, first, table, shading="nearest", cmap=_COLOURS)
    ax.figure.colorbar(mesh, ax=ax, label="Spearman correlation")
    row, column = np.unravel_index(table.argmax(), table.shape)
    label = f"best: {table[row, column]:.4g} at ({first[row]:g}, {second[column]:g})"
    ax.plot([second[column]], [first[row]], "*", color="white", markeredgecolor="black", markersize=14, label=label)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    ax.set_xlabel("lambda_2 (corpus mean)")
    ax.set_ylabel("lambda_1 (partial mask)")
    return ax


def plot_eigenvalue_curve(
    lambda_2: ArrayLike, eigenvalues: ArrayLike, spearman: ArrayLike | None = None, *, ax: Axes | None = None
) -> Axes:
    """The largest eigenvalue of the refined embeddings against RepAL's lambda_2 (appendix C), its minimum marked.

    Args:
        lambda_2: (B,), strictly increasing.
        eigenvalues: (B,), largest eigenvalue of the uncentred second moment at each.
        spearman: (B,), drawn on a second axis at the right.
        ax: axes to draw on.

    Raises:
        ValueError: a grid that does not increase, or lengths that differ.
    """
    grid = _increasing("lambda_2", lambda_2)
    values = _vector("eigenvalues", eigenvalues, len(grid))
    quality = None if spearman is None else _vector("spearman", spearman, len(grid))
    ax = _axes(ax)
    dark, light = _shades(3)[0], _shades(3)[1]
    (line,) = ax.plot(grid, values, color=dark, label="largest eigenvalue")
    lowest = int(values.argmin())
    ax.plot([grid[lowest]], [values[lowest]], "o", color=dark)
    ax.set_xlabel("lambda_2 (corpus mean)")
    ax.set_ylabel("largest eigenvalue", color=dark)
    if quality is not None:
        right = ax.twinx()
        (other,) = right.plot(grid, quality, color=light, linestyle="--", label="Spearman correlation")
        right.plot([grid[int(quality.argmax())]], [quality.max()], "o", color=light)
        right.set_ylabel("Spearman correlation", color=light)
        ax.legend(handles=[line, other], loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False)
    return ax


def plot_training_curves(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    ylabel: str = "STS-B dev Spearman",
    best: str | None = "max",
    picked: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A measure over the steps of one or several trainings.

    Args:
        curves: run -> (steps (T,) strictly increasing, values (T,)).
        ylabel: what is measured.
        best: which point of each curve is marked with a circle: "max", "min" or None.
        picked: run -> step of the checkpoint that was chosen, marked with a cross.
        ax: axes to draw on.

    Raises:
        ValueError: no curve, steps that do not increase, lengths that differ, a picked step that is not in its run.
    """
    if not curves:
        raise ValueError("curves must hold at least one run, got {}.")
    if best not in ("max", "min", None):
        raise ValueError(f'best must be "max", "min" or None, got {best!r}.')
    unknown = [name for name in picked or {} if name not in curves]
    if unknown:
        raise ValueError(f"picked must name runs of curves, got {', '.join(unknown)}.")
    ax = _axes(ax)
    for (name, (steps, values)), colour in zip(curves.items(), _distinct(len(curves)), strict=True):
        x = _increasing(f"steps of {name!r}", steps)
        y = _vector(f"values of {name!r}", values, len(x))
        ax.plot(x, y, color=colour, label=name)
        if best is not None:
            at = int(y.argmax() if best == "max" else y.argmin())
            ax.plot([x[at]], [y[at]], "o", color=colour)
        if picked is not None and name in picked:
            at = int(np.searchsorted(x, picked[name]))
            if at == len(x) or x[at] != picked[name]:
                raise ValueError(f"picked must be a step of {name!r}, got {picked[name]!r}.")
            ax.plot([x[at]], [y[at]], "x", color=colour, markersize=10, markeredgewidth=2)
    ax.set_xlabel("step")
    ax.set_ylabel(ylabel)
    ax.legend(frameon=False)
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError('The plots need matplotlib: pip install "st-extras[plot]".') from None
    _, ax = pyplot.subplots(layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _shades(count: int) -> list[Any]:
    """``count`` colours, dark to light, without the palest ones."""
    import matplotlib

    return [matplotlib.colormaps[_COLOURS](place) for place in np.linspace(0.1, 0.85, count)]


def _distinct(count: int) -> list[Any]:
    """``count`` colours without an order, ten different ones before they repeat."""
    import matplotlib

    return [matplotlib.colormaps["tab10"](number % 10) for number in range(count)]


def _principal_plane(x: _Floats) -> _Floats:
    """(N, 2): the two leading principal components, each signed so that its largest coordinate is positive."""
    centred = x - x.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    points: _Floats = centred @ directions[:2].T
    if points.shape[1] < 2:
        raise ValueError(f"embeddings must have D >= 2 dimensions, got {x.shape}.")
    signs = np.sign(points[np.abs(points).argmax(axis=0), [0, 1]])
    return points * np.where(signs == 0, 1, signs)


def _tsne(x: _Floats, seed: int) -> _Floats:
    from sklearn.manifold import TSNE

    return np.asarray(TSNE(perplexity=min(30, (len(x) - 1) / 3), random_state=seed).fit_transform(x), dtype=float)


def _matrix(name: str, values: Any, *, least_rows: int = 1, columns: int | None = None) -> _Floats:
    x = np.asarray(values, dtype=float)
    if x.ndim != 2 or len(x) < least_rows or (columns is not None and x.shape[1] != columns):
        expected = f"(N, {columns or 'D'}) with N >= {least_rows}"
        raise ValueError(f"{name} must be {expected}, got the shape {x.shape}.")
    return _finite(name, x)


def _vector(name: str, values: Any, length: int) -> _Floats:
    x = np.asarray(values, dtype=float)
    if x.shape != (length,):
        raise ValueError(f"{name} must have the shape ({length},), got {x.shape}.")
    return _finite(name, x)


def _increasing(name: str, values: Any) -> _Floats:
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or len(x) == 0 or bool((np.diff(x) <= 0).any()):
        raise ValueError(f"{name} must be strictly increasing, got {np.asarray(values).tolist()}.")
    return _finite(name, x)


def _finite(name: str, x: _Floats) -> _Floats:
    if not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite, got {x[~np.isfinite(x)][0]}.")
    return x
