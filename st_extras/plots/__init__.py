"""Pictures of what a change of an encoder does: neighbours that changed, and cosines of unrelated texts.

They need matplotlib (``pip install "st-extras[plot]"``), which is imported at the first call. Each function takes
``ax``, the axes to draw on, and returns it; None makes a new figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from st_extras.evaluation.geometry import sorted_cosines, unrelated_cosines
from st_extras.evaluation.reporting import check_embeddings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

__all__ = ["plot_changed_neighbors", "plot_unrelated_cosines"]

_FEWEST_TEXTS = 46  # a thousand pairs
_LONGEST_TEXT = 100  # characters


def plot_changed_neighbors(
    texts: Sequence[str], before: Any, after: Any, rows: Sequence[int], *, ax: Axes | None = None
) -> Axes:
    """Draw some texts with their nearest neighbours before and after a change of the encoder.

    Below a text stand its nearest neighbour before and, if it is another one, that after. An arrow shows how near that
    neighbour was and is: from its place before to its place after among all texts, by cosine; 1 is the nearest.

    Args:
        texts: N texts, N >= 3; of long ones, the beginning is shown.
        before: (N, D) embeddings.
        after: (N, D') embeddings of the same texts in the same order.
        rows: numbers of the texts to draw, best less than ten.
        ax: axes to draw on; None makes a new figure.

    Raises:
        ValueError: if a shape does not fit, or an embedding is zero or not finite.

    Example:
        >>> import torch
        >>> from st_extras.plots import plot_changed_neighbors
        >>> before = torch.tensor([[1.0, 0.1], [0.9, 0.2], [0.0, 1.0]])
        >>> after = torch.tensor([[0.1, 1.0], [0.9, 0.2], [0.0, 1.0]])
        >>> ax = plot_changed_neighbors(["a cup", "a mug", "a glass"], before, after, [0])
        >>> [text.get_text() for text in ax.texts if text.get_text()]
        ['a cup', 'was: a mug', 'is: a glass']
    """
    moves = _moves(texts, before, after, rows)
    ax = new_axes(ax)
    height = 0.0
    for text, old, new in moves:
        height += 1.0 if old else 1.5
        ax.text(1, height, text, fontsize="small", va="bottom", weight="normal" if old else "bold", parse_math=False)
        if old:
            arrow = {"arrowstyle": "->", "color": "C0" if new < old else "0.6"}
            ax.annotate("", (new, height + 0.2), (old, height + 0.2), arrowprops=arrow)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlim=(0.9, max(2, len(texts))), ylim=(height + 1, 0), yticks=[])
    ax.set_xlabel("place of the neighbour among all texts, from before to after; 1: the nearest")
    return ax


def _moves(texts: Sequence[str], before: Any, after: Any, rows: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return the lines of the picture with places before and after; 0 and 0 for a text itself."""
    start, end = (
        check_embeddings(name, rows, at_least=3).detach().cpu().double().numpy()
        for name, rows in {"before": before, "after": after}.items()
    )
    if not len(start) == len(end) == len(texts):
        raise ValueError(f"before, after and texts must be as many, got {len(start)}, {len(end)} and {len(texts)}.")
    moves = []
    for row in rows:
        orders = []
        for unit in (start, end):
            cosines = unit @ unit[row]
            cosines[row] = np.inf
            orders.append((-cosines).argsort(kind="stable"))
        old, new = (order.argsort() for order in orders)
        shown = {row: ""} | {int(order[1]): verb for order, verb in zip(orders, ("was: ", "is: "), strict=True)}
        for number, verb in shown.items():
            moves.append((verb + " ".join(texts[number].split())[:_LONGEST_TEXT], int(old[number]), int(new[number])))
    return moves


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


def new_axes(ax: Axes | None = None) -> Axes:
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
