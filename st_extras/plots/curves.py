"""Pictures of a score over RepAL's weights or over training steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from st_extras.checks import check_choice, shown
from st_extras.plots.axes import (
    COLOURS,
    Floats,
    check_increasing,
    check_mapping,
    check_matrix,
    check_vector,
    distinct_colours,
    line_styles,
    new_axes,
    shades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_lambda_heatmap(
    lambda_1: ArrayLike, lambda_2: ArrayLike, spearman: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw RepAL's Spearman correlation over its two weights, with a star at the best setting.

    Args:
        lambda_1: (A,), strictly increasing weights of the partial mask, drawn upwards.
        lambda_2: (B,), strictly increasing weights of the corpus mean, drawn to the right.
        spearman: (A, B), from ``lambda_surface``.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if a grid does not increase, or a shape does not fit.
    """
    first, second = check_increasing("lambda_1", lambda_1), check_increasing("lambda_2", lambda_2)
    table = check_matrix("spearman", spearman)
    if table.shape != (len(first), len(second)):
        raise ValueError(f"spearman must be (lambda_1, lambda_2) = {(len(first), len(second))}, got {table.shape}.")
    ax = new_axes(ax)
    mesh = ax.pcolormesh(second, first, table, shading="nearest", cmap=COLOURS)
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
    """Draw the largest eigenvalue of the refined embeddings against RepAL's lambda_2, with its minimum marked.

    Args:
        lambda_2: (B,), strictly increasing.
        eigenvalues: (B,), the largest eigenvalue of the uncentred second moment at each weight.
        spearman: (B,), drawn on a second axis on the right, with its maximum marked; None draws no second axis.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if the grid does not increase, or the lengths differ.
    """
    grid = check_increasing("lambda_2", lambda_2)
    values = check_vector("eigenvalues", eigenvalues, len(grid))
    quality = None if spearman is None else check_vector("spearman", spearman, len(grid))
    ax = new_axes(ax)
    dark, light = shades(3)[0], shades(3)[1]
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
    """Draw a measure over the steps of one or several training runs.

    Args:
        curves: run -> (steps (T,), strictly increasing, and values (T,)).
        ylabel: what is measured.
        best: which point of each curve to mark with a circle: "max", "min" or None.
        picked: run -> step of the chosen checkpoint, marked with a cross.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if there are no curves, steps do not increase, lengths differ, or a picked step is not in its run.
    """
    check_mapping("curves", curves, "run")
    check_choice("best", best, ("max", "min", None))
    unknown = [name for name in picked or {} if name not in curves]
    if unknown:
        raise ValueError(f"picked must name runs of curves, got {', '.join(unknown)}.")
    points = {name: _checked_curve(name, curve) for name, curve in curves.items()}
    for name, step in (picked or {}).items():
        if step not in points[name][0].tolist():
            raise ValueError(f"picked must be a step of {name!r}, got {step!r}.")
    ax = new_axes(ax)
    looks = zip(distinct_colours(len(points)), line_styles(len(points)), strict=True)
    for (name, (x, y)), (colour, style) in zip(points.items(), looks, strict=True):
        ax.plot(x, y, color=colour, linestyle=style, label=name)
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


def _checked_curve(name: str, curve: Any) -> tuple[Floats, Floats]:
    """Return the steps and the values of a run, or raise a ValueError that names it."""
    if not isinstance(curve, tuple | list) or len(curve) != 2:
        raise ValueError(f"curves must hold (steps, values) for each run, got {shown(curve)} for {name!r}.")
    x = check_increasing(f"steps of {name!r}", curve[0])
    return x, check_vector(f"values of {name!r}", curve[1], len(x))
