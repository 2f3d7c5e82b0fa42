"""What the plot functions share: axes, colours and checks of the arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = "viridis"
Floats = NDArray[np.float64]


def new_axes(ax: Axes | None) -> Axes:
    """Return ``ax``, or the axes of a new figure if it is None.

    Raises:
        ImportError: if matplotlib is needed and not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError('The plots need matplotlib: pip install "st-extras[plot]".') from None
    _, ax = pyplot.subplots(layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def shades(count: int) -> list[Any]:
    """Return ``count`` colours from dark to light, without the palest ones."""
    import matplotlib

    return [matplotlib.colormaps[COLOURS](place) for place in np.linspace(0.1, 0.85, count)]


def distinct_colours(count: int) -> list[Any]:
    """Return ``count`` colours without an order; they repeat after ten."""
    import matplotlib

    return [matplotlib.colormaps["tab10"](number % 10) for number in range(count)]


def check_matrix(name: str, values: Any, *, least_rows: int = 1, columns: int | None = None) -> Floats:
    """Return a finite matrix, or raise a ValueError that names the argument."""
    x = np.asarray(values, dtype=float)
    if x.ndim != 2 or len(x) < least_rows or (columns is not None and x.shape[1] != columns):
        expected = f"(N, {columns or 'D'}) with N >= {least_rows}"
        raise ValueError(f"{name} must be {expected}, got the shape {x.shape}.")
    return _check_finite(name, x)


def check_vector(name: str, values: Any, length: int) -> Floats:
    """Return a finite vector of this length, or raise a ValueError that names the argument."""
    x = np.asarray(values, dtype=float)
    if x.shape != (length,):
        raise ValueError(f"{name} must have the shape ({length},), got {x.shape}.")
    return _check_finite(name, x)


def check_increasing(name: str, values: Any) -> Floats:
    """Return a finite, strictly increasing vector, or raise a ValueError that names the argument."""
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or len(x) == 0 or bool((np.diff(x) <= 0).any()):
        raise ValueError(f"{name} must be strictly increasing, got {np.asarray(values).tolist()}.")
    return _check_finite(name, x)


def _check_finite(name: str, x: Floats) -> Floats:
    if not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite, got {x[~np.isfinite(x)][0]}.")
    return x
