"""Maps of embeddings in two dimensions: coloured by a value, and before and after a change."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import orthogonal_procrustes

from st_extras.checks import check_bool, check_choice
from st_extras.evaluation.label_scores import check_labels
from st_extras.evaluation.reporting import check_embeddings
from st_extras.plots.axes import COLOURS, Floats, check_array, new_axes, new_pair, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "os^DvPX<>*"
_LARGEST_LEGEND = len(MARKERS)
_LONGEST_TEXT = 100  # characters


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
    x = check_array("embeddings", embeddings, "N", "D", at_least=3)
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


def plot_neighborhoods(
    before: Any,
    after: Any,
    groups: Any = None,
    *,
    clusters: int = 6,
    method: str = "pca",
    seed: int = 42,
    ax: Sequence[Axes] | None = None,
) -> tuple[Axes, Axes]:
    """Draw the same texts before and after a change of the encoder, each with a line to its nearest neighbour.

    Each text has the colour and the shape of its group; the line is grey if its nearest neighbour is of the same group
    and black if not. Nearest neighbours are those by cosine in all dimensions, not in the picture's two. The second
    panel is turned, or mirrored, so that it resembles the first as far as that is possible.

    The titles say how many nearest neighbours are in the same group. If no groups are given, those of the picture are
    clusters of the embeddings *after* the change, on which it would always look good; so the titles say instead how
    many texts are the nearest neighbour of their own nearest neighbour.

    Args:
        before: (N, D) embeddings, N >= 3, D >= 2.
        after: (N, D') embeddings of the same texts in the same order, D' >= 2.
        groups: N strings or whole numbers, such as known labels; up to 10 of them get a legend. Shapes repeat after 10
            groups. None: clusters of ``after`` by k-means of its directions.
        clusters: how many clusters, if no ``groups`` are given; at most N are made.
        method: "pca" (the two directions of largest variance) or "tsne", which keeps neighbours together, takes
            seconds for a thousand texts, and shows clumps even in noise.
        seed: seed of k-means and t-SNE.
        ax: two axes to draw on; None makes a new figure.

    Raises:
        ValueError: if a shape does not fit, an embedding is zero or not finite, the groups do not match the texts, or
            a setting is not allowed.

    Example:
        >>> import torch
        >>> from st_extras.plots import plot_neighborhoods
        >>> before = torch.tensor([[1.0, 0.2], [0.9, -0.1], [0.8, 0.3], [-0.1, 1.0]])
        >>> after = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]])
        >>> left, right = plot_neighborhoods(before, after, ["tea", "tea", "rain", "rain"])
        >>> right.get_title()
        'after: 100% of nearest neighbours\\nare in the same group'
    """
    start, end = unit_rows("before", before), unit_rows("after", after)
    if len(start) != len(end):
        raise ValueError(f"after must have a row for each of the {len(start)} rows of before, got {len(end)}.")
    check_choice("method", method, ("pca", "tsne"))
    labels = None if groups is None else check_labels("groups", groups, len(end), "rows of before")
    pair = new_pair(ax)
    drawn = clustered(end, clusters, seed) if labels is None else np.asarray(labels)
    layout = side_by_side(start, end, method, seed)
    for name, panel, unit, points in zip(("before", "after"), pair, (start, end), layout, strict=True):
        nearest = nearest_rows(unit)
        draw_neighborhood(panel, points, nearest, drawn)
        if labels is None:
            share = (nearest[nearest] == np.arange(len(nearest))).mean()
            panel.set_title(f"{name}: {share:.0%} of texts are the nearest\nneighbour of their nearest neighbour")
        else:
            share = (drawn == drawn[nearest]).mean()
            panel.set_title(f"{name}: {share:.0%} of nearest neighbours\nare in the same group")
    if labels is not None and len(set(labels)) <= _LARGEST_LEGEND:
        pair[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return pair


def plot_changed_neighbors(
    texts: Sequence[str], before: Any, after: Any, rows: Sequence[int], *, ax: Axes | None = None
) -> Axes:
    """Draw some texts with the nearest neighbour that each had before a change of the encoder, and has after it.

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
    """Return each line of :func:`plot_changed_neighbors` with the neighbour's places; those of the text are 0."""
    start, end = unit_rows("before", before), unit_rows("after", after)
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
        said = {row: ""} | {int(order[1]): verb for order, verb in zip(orders, ("was: ", "is: "), strict=True)}
        for number, verb in said.items():
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


def unit_rows(name: str, embeddings: Any) -> Floats:
    """Return the (N, D) rows scaled to length one."""
    unit = check_embeddings(name, embeddings, at_least=3)
    if unit.size(1) < 2:
        raise ValueError(f"{name} must have D >= 2 dimensions, got the shape {tuple(unit.shape)}.")
    return np.asarray(unit.detach().cpu().double().numpy())


def side_by_side(start: Floats, end: Floats, method: str, seed: int) -> tuple[Floats, Floats]:
    """Return where to draw the rows of both, (N, 2) each; the second is turned so that it resembles the first."""
    places = [in_two_dimensions(unit, method, seed) for unit in (start, end)]
    first, second = (points - points.mean(axis=0) for points in places)
    return first, second @ orthogonal_procrustes(second, first)[0]


def clustered(unit: Floats, clusters: int, seed: int) -> NDArray[Any]:
    """Return the number of each row's cluster (N,)."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different embeddings than clusters
        means = KMeans(min(clusters, len(unit)), n_init=3, random_state=seed)
        return np.asarray(means.fit_predict(unit))


def nearest_rows(unit: Floats) -> NDArray[Any]:
    """Return the row of each row's nearest neighbour (N,)."""
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    return np.asarray(cosines.argmax(axis=1))


def draw_neighborhood(panel: Axes, points: Floats, nearest: NDArray[Any], groups: NDArray[Any]) -> None:
    """Draw points (N, 2) by their groups (N,), each with a line to its nearest neighbour (N,), a row of ``points``."""
    from matplotlib.collections import LineCollection

    ends = np.stack([points, points[nearest]], axis=1)  # (N, 2 ends, 2 coordinates)
    colours = np.where(groups == groups[nearest], "0.75", "0.0").tolist()
    panel.add_collection(LineCollection(list(ends), colors=colours, linewidths=0.5, zorder=0))
    names = np.unique(groups)
    for number, (name, colour) in enumerate(zip(names, shades(len(names)), strict=True)):
        x, y = points[groups == name].T
        size = 30.0 if len(points) < 200 else 10.0
        marker = MARKERS[number % len(MARKERS)]
        panel.scatter(x, y, s=size, marker=marker, color=[colour], edgecolors="white", linewidths=0.3, label=str(name))
    panel.set_xticks([])
    panel.set_yticks([])
