"""Charts of measures: alignment and uniformity of models, a measure over training steps, cosines of unrelated texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from st_extras.checks import check_choice
from st_extras.evaluation.geometry import sorted_cosines, unrelated_cosines
from st_extras.evaluation.reporting import check_embeddings
from st_extras.plots.axes import COLOURS, Floats, check_array, check_increasing, line_styles, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

_FEWEST_TEXTS = 46  # a thousand pairs


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
        ValueError: if there are no points, or a point is not a pair of finite numbers.
        KeyError: if a model has no score.
    """
    names = list(points)
    table = check_array("points", list(points.values()), "N", 2)
    ax = new_axes(ax)
    if scores is None:
        ax.scatter(table[:, 1], table[:, 0])
    else:
        values = check_array("scores", [scores[name] for name in names], "N")
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


def plot_training_curves(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    ylabel: str = "STS-B dev Spearman",
    best: str | None = "max",
    picked: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a measure over the steps of one or several training runs.

    Args:
        curves: run -> (steps (T,), strictly increasing, and values (T,)).
        ylabel: what is measured.
        best: which point of each curve to mark with a circle: "max", "min" or None.
        picked: run -> step of the chosen checkpoint, marked with a cross.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if steps do not increase, lengths differ, or a picked step is not in its run.
    """
    check_choice("best", best, ("max", "min", None))
    points: dict[str, tuple[Floats, Floats]] = {}
    for name, (steps, values) in curves.items():
        x = check_increasing(f"steps of {name!r}", steps)
        points[name] = x, check_array(f"values of {name!r}", values, len(x))
    for name, step in (picked or {}).items():
        if name not in points or step not in points[name][0].tolist():
            raise ValueError(f"picked must be a step of a run in curves, got {step!r} of {name!r}.")
    ax = new_axes(ax)
    styles = line_styles(len(points))
    for number, (name, (x, y)) in enumerate(points.items()):
        colour = f"C{number % 10}"
        ax.plot(x, y, color=colour, linestyle=styles[number], label=name)
        if best is not None:
            at = int(y.argmax() if best == "max" else y.argmin())
            ax.plot([x[at]], [y[at]], "o", color=colour)
        if picked is not None and name in picked:
            at = int(np.searchsorted(x, picked[name]))
            ax.plot([x[at]], [y[at]], "x", color=colour, markersize=10, markeredgewidth=2)
    ax.set_xlabel("step")
    ax.set_ylabel(ylabel)
    ax.legend(frameon=False)
    return ax


def plot_unrelated_cosines(
    embeddings: Mapping[str, Any],
    *,
    queries: Mapping[str, Any] | None = None,
    related: Tensor | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw which share of the pairs of different texts lies above each cosine: where a threshold keeps them out.

    Dots mark the cosines above which one in 100, 1,000 and 10,000 pairs lies, with the 95 % intervals of
    :func:`~st_extras.evaluation.geometry.unrelated_cosines`.

    Args:
        embeddings: encoder -> (N, D) of different texts in random order, N >= 46; all pairs are held.
        queries: encoder -> (Q, D), each compared with all N texts. None: the texts are compared with each other.
        related: (Q, N) bool, pairs of a query and a text that are left out.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if there are no encoders or too few rows, or a row is zero or not finite.

    Example:
        >>> import torch
        >>> from st_extras.plots import plot_unrelated_cosines
        >>> rows = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
        >>> plot_unrelated_cosines({"before": rows, "after": rows - rows[:50].mean(dim=0)}).get_xlabel()
        'cosine'
    """
    if not embeddings:
        raise ValueError("embeddings must hold those of one encoder at least, got none.")
    units = {name: check_embeddings(name, x, at_least=_FEWEST_TEXTS).detach().cpu() for name, x in embeddings.items()}
    ax = new_axes(ax)
    for number, (name, unit) in enumerate(units.items()):
        sides: Any = {"queries": None if queries is None else torch.as_tensor(queries[name]).cpu(), "related": related}
        cosines = sorted_cosines(unit, **sides).numpy()
        places = np.unique(np.geomspace(1, len(cosines), 500).astype(int))  # as many on each part of the scale
        colour = f"C{number % 10}"
        ax.plot(cosines[places - 1], places / len(cosines), color=colour, label=name, linestyle=("-", "--")[number % 2])
        for share, (value, low, high) in unrelated_cosines(unit, **sides).items():
            ax.errorbar(value, 1 / share, xerr=[[value - low], [high - value]], fmt="o", color=colour, capsize=3)
            ax.annotate(f"{value:.2f}", (value, 1 / share), (3, 5), textcoords="offset points", fontsize="small")
    ax.set_yscale("log")
    ax.set_yticks([1, 0.1, 0.01, 1e-3, 1e-4], ["all", "1 in 10", "1 in 100", "1 in 1,000", "1 in 10,000"])
    ax.set_ylim(bottom=5e-5)
    ax.set_xlabel("cosine")
    ax.set_ylabel(f"pairs of unrelated {'texts' if queries is None else 'queries and documents'} above it")
    ax.legend(frameon=False)
    return ax
