"""Maps of embeddings in two dimensions: coloured by a value, and before and after a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from st_extras.checks import check_bool, check_choice, check_rows
from st_extras.evaluation.reporting import check_embeddings
from st_extras.plots.axes import COLOURS, Floats, check_array, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_TEXT = 100  # characters


def plot_embedding_map(
    embeddings: Any,
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
    x = np.asarray(check_rows("embeddings", embeddings, at_least=3).detach().cpu(), dtype=float)
    check_bool("log_values", log_values)
    colours = None if values is None else check_array("values", values, len(x))
    if colours is not None and log_values and bool((colours <= 0).any()):
        raise ValueError(f"values must be > 0 for log_values=True, got {colours.min():g}.")
    check_choice("method", method, ("pca", "tsne"))
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
    """Return (N, 2) points for (N, D) embeddings, D >= 2: by "tsne" or, each signed so that its largest value is
    positive, the two leading principal components, "pca".
    """
    if method == "tsne":
        from sklearn.manifold import TSNE

        if float(np.ptp(x, axis=0).max()) <= 1e-12 * float(np.abs(x).max()):  # equal rows, which end scikit-learn
            return np.zeros((len(x), 2))
        tsne = TSNE(perplexity=min(30, (len(x) - 1) / 3), random_state=seed)
        return np.asarray(tsne.fit_transform(x), dtype=float)
    centred = x - x.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    points: Floats = centred @ directions[:2].T
    if points.shape[1] < 2:
        raise ValueError(f"embeddings must have D >= 2 dimensions, got {x.shape}.")
    signs = np.sign(points[np.abs(points).argmax(axis=0), [0, 1]])
    return points * np.where(signs == 0, 1, signs)


def plot_changed_neighbors(
    texts: Sequence[str], before: Any, after: Any, rows: Sequence[int], *, ax: Axes | None = None
) -> Axes:
    """Draw some texts with their nearest neighbours before and after a change of the encoder.

    Below a text stand its nearest neighbour before and, if it is another one, that after. An arrow shows how near that
    neighbour was and is: from its place before to its place after among all texts, by cosine; 1 is the nearest.

    Args:
        texts: N texts, N >= 3; of long ones, the beginning is shown.
        before: (N, D) embeddings, D >= 2.
        after: (N, D') embeddings of the same texts in the same order, D' >= 2.
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
    moves = neighbor_moves(texts, before, after, rows)
    return draw_moves(new_axes(ax), moves, len(texts))


def neighbor_moves(texts: Sequence[str], before: Any, after: Any, rows: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return the lines of :func:`plot_changed_neighbors` with places before and after; 0 and 0 for a text itself."""
    start, end = unit_array("before", before), unit_array("after", after)
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


def draw_moves(ax: Axes, moves: Sequence[tuple[str, int, int]], count: int) -> Axes:
    """Draw what :func:`neighbor_moves` returns for ``count`` texts."""
    height = 0.0
    for text, old, new in moves:
        height += 1.0 if old else 1.5
        ax.text(1, height, text, fontsize="small", va="bottom", weight="normal" if old else "bold", parse_math=False)
        if old:
            arrow = {"arrowstyle": "->", "color": "C0" if new < old else "0.6"}
            ax.annotate("", (new, height + 0.2), (old, height + 0.2), arrowprops=arrow)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlim=(0.9, max(2, count)), ylim=(height + 1, 0), yticks=[])
    ax.set_xlabel("place of the neighbour among all texts, from before to after; 1: the nearest")
    return ax


def unit_array(name: str, embeddings: Any) -> Floats:
    """Return embeddings, (N, D) with D >= 2, scaled to length one, as an array of float64."""
    unit = check_embeddings(name, embeddings, at_least=3)
    if unit.size(1) < 2:
        raise ValueError(f"{name} must have D >= 2 dimensions, got the shape {tuple(unit.shape)}.")
    return np.asarray(unit.detach().cpu().double().numpy())
