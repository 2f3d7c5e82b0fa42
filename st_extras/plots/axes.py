"""What the plot functions share: axes, colours and checks of the arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        ValueError: if ``ax`` is neither Axes nor None.
        ImportError: if matplotlib is needed and not installed.
    """
    if ax is not None:
        if not hasattr(ax, "get_lines"):
            raise ValueError(f"ax must be matplotlib Axes or None, got {shown(ax)}.")
        return ax
    _, ax = _pyplot().subplots(layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def new_pair(ax: Sequence[Axes] | None) -> tuple[Axes, Axes]:
    """Return the two axes of ``ax``, or those of a new figure, side by side, if it is None.

    Raises:
        ValueError: if ``ax`` is neither two Axes nor None.
        ImportError: if matplotlib is needed and not installed.
    """
    if ax is None:
        _, ax = _pyplot().subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    elif not hasattr(ax, "__len__") or [hasattr(one, "get_lines") for one in ax] != [True, True]:
        raise ValueError(f"ax must be two matplotlib Axes or None, got {shown(ax)}.")
    return ax[0], ax[1]


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


def distinct_colours(count: int) -> list[Any]:
    """Return ``count`` colours without an order; they repeat after ten."""
    import matplotlib

    return [matplotlib.colormaps["tab10"](number % 10) for number in range(count)]


def line_styles(count: int) -> list[str]:
    """Return ``count`` line styles, so that neighbours can be told apart without colours; they repeat after four.

    Beside the ten distinct colours, no pair of colour and style comes twice before the twentieth line.
    """
    return [("-", "--", ":", "-.")[number % 4] for number in range(count)]


def check_matrix(name: str, values: Any, *, least_rows: int = 1, columns: int | None = None) -> Floats:
    """Return a finite matrix, or raise a ValueError that names the argument."""
    x = _numbers(name, values)
    if x.ndim != 2 or len(x) < least_rows or (columns is not None and x.shape[1] != columns):
        expected = f"(N, {columns or 'D'}) with N >= {least_rows}"
        raise ValueError(f"{name} must be {expected}, got the shape {x.shape}.")
    return _check_finite(name, x)


def check_vector(name: str, values: Any, length: int | None = None) -> Floats:
    """Return a finite vector of this length (None: of any), or raise a ValueError that names the argument."""
    x = _numbers(name, values)
    if x.ndim != 1 or len(x) != (len(x) if length is None else length):
        raise ValueError(f"{name} must have the shape ({'N' if length is None else length},), got {x.shape}.")
    return _check_finite(name, x)


def check_increasing(name: str, values: Any) -> Floats:
    """Return a finite, strictly increasing vector, or raise a ValueError that names the argument."""
    x = _numbers(name, values)
    if x.ndim != 1 or len(x) == 0 or bool((np.diff(x) <= 0).any()):
        raise ValueError(f"{name} must be strictly increasing, got {np.asarray(values).tolist()}.")
    return _check_finite(name, x)


def check_mapping(name: str, values: Any, what: str) -> None:
    """Raise a ValueError unless ``values`` is a mapping with at least one ``what``."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a mapping from names, got {shown(values)}.")
    if not values:
        raise ValueError(f"{name} must hold at least one {what}, got {{}}.")


def _numbers(name: str, values: Any) -> Floats:
    """Return numbers as an array; text is not read as numbers."""
    try:
        x = np.asarray(values)
    except ValueError:  # rows of different lengths
        x = np.asarray("")
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, all rows of one length, got {shown(values)}.")
    return x.astype(float)


def _check_finite(name: str, x: Floats) -> Floats:
    if not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite, got {x[~np.isfinite(x)][0]}.")
    return x
