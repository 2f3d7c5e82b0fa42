"""What the plot functions share: axes, colours and checks of the arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from st_extras.checks import shown

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
    _, ax = _pyplot().subplots(layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError('The plots need matplotlib: pip install "st-extras[plot]".') from None
    return pyplot


def shades(count: int) -> list[Any]:
    """Return ``count`` colours from dark to light, without the palest ones."""
    import matplotlib

    return [matplotlib.colormaps[COLOURS](place) for place in np.linspace(0.1, 0.85, count)]


def line_styles(count: int) -> list[str]:
    """Return ``count`` line styles, so that neighbours differ without colours, too; they repeat after four.

    Beside matplotlib's ten colours, no pair of colour and style comes twice before the twentieth line.
    """
    return [("-", "--", ":", "-.")[number % 4] for number in range(count)]


def check_array(name: str, values: Any, *shape: int | str, at_least: int = 1) -> Floats:
    """Return finite numbers of a shape, in which a letter stands for any size; the first size is ``at_least`` that.

    Raises:
        ValueError: if they are not; it names the argument. Text is not read as numbers.
    """
    try:
        x = np.asarray(values)
    except ValueError:  # rows of different lengths
        x = np.asarray("")
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, all rows of one length, got {shown(values)}.")
    fits = x.ndim == len(shape) and all(
        isinstance(size, str) or size == n for size, n in zip(shape, x.shape, strict=True)
    )
    if not fits or len(x) < at_least:
        expected = f"({', '.join(map(str, shape))}) with at least {at_least} rows"
        raise ValueError(f"{name} must have the shape {expected}, got {x.shape}.")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite, got {x[~np.isfinite(x)][0]}.")
    return x.astype(float)


def check_increasing(name: str, values: Any) -> Floats:
    """Return a finite, strictly increasing vector, or raise a ValueError that names the argument."""
    x = check_array(name, values, "N")
    if bool((np.diff(x) <= 0).any()):
        raise ValueError(f"{name} must be strictly increasing, got {x.tolist()}.")
    return x
