"""Maps of embeddings: places and colours; neighbours before and after, with lines, groups, titles and the turn."""

import warnings

import numpy as np
import pytest
import torch

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from st_extras.plots import plot_changed_neighbors, plot_embedding_map, plot_neighborhoods  # noqa: E402
from st_extras.plots.maps import MARKERS  # noqa: E402


def cloud(rows: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, size))


def nearest(x: np.ndarray) -> list[int]:
    """Each row's nearest neighbour by cosine, as a plain loop."""
    found = []
    for i, row in enumerate(x):
        cosines = [row @ y / np.linalg.norm(row) / np.linalg.norm(y) if j != i else -2 for j, y in enumerate(x)]
        found.append(int(np.argmax(cosines)))
    return found


def points(panel, groups: list[str]) -> np.ndarray:
    """Where each row was drawn, from the dots of each group."""
    dots = panel.collections[1:]
    drawn = np.full((len(groups), 2), np.nan)
    for one in dots:
        drawn[[group == one.get_label() for group in groups]] = one.get_offsets()
    return drawn


def test_map_draws_the_principal_plane():
    x = cloud(40, 5) * [5, 3, 1, 1, 1]
    counts = np.arange(1, 41)
    ax = plot_embedding_map(x, counts, value_label="count", log_values=True)
    (dots,) = ax.collections
    drawn = np.asarray(dots.get_offsets())
    assert drawn.var(axis=0, ddof=1) == pytest.approx(np.sort(np.linalg.eigvalsh(np.cov(x.T)))[::-1][:2])
    assert abs(np.corrcoef(drawn[:, 0], x[:, 0])[0, 1]) > 0.9
    assert np.asarray(dots.get_array()) == pytest.approx(counts)
    assert isinstance(dots.norm, matplotlib.colors.LogNorm)
    assert ax.figure.axes[1].get_ylabel() == "count"
    assert ax.get_xlabel() == "principal component 1"


def test_lines_go_to_the_nearest_neighbours_and_are_black_between_groups():
    before, after = cloud(30, 6), cloud(30, 4, seed=1)
    groups = [f"group {number % 3}" for number in range(30)]
    pair = plot_neighborhoods(before, after, groups)
    for panel, x in zip(pair, (before, after), strict=True):
        near, drawn = nearest(x), points(panel, groups)
        lines = panel.collections[0]
        for i, (begin, end) in enumerate(lines.get_segments()):
            assert begin == pytest.approx(drawn[i])
            assert end == pytest.approx(drawn[near[i]])
        leaves = [groups[i] != groups[near[i]] for i in range(30)]
        assert 0 < sum(leaves) < 30
        assert [tuple(colour) == (0, 0, 0, 1) for colour in lines.get_colors()] == leaves
        assert min(colour[0] for colour in lines.get_colors()[~np.array(leaves)]) > 0.5


def test_titles_give_the_share_in_the_same_group():
    before, after = cloud(40, 6), cloud(40, 6, seed=1)
    groups = np.arange(40) % 4
    pair = plot_neighborhoods(torch.tensor(before), after, groups)
    for name, panel, x in zip(("before", "after"), pair, (before, after), strict=True):
        share = sum(groups[i] == groups[j] for i, j in enumerate(nearest(x))) / 40
        assert panel.get_title() == f"{name}: {share:.0%} of nearest neighbours\nare in the same group"
    assert pair[0].get_title()[6:] != pair[1].get_title()[5:]


def test_groups_differ_in_shape_and_in_darkness():
    x = cloud(40, 6)
    _, panel = plot_neighborhoods(x, x, [f"{number % 10}" for number in range(40)])
    dots = panel.collections[1:]
    assert len({one.get_paths()[0].vertices.tobytes() for one in dots}) == 10
    greys = [one.get_facecolors()[0][:3] @ [0.299, 0.587, 0.114] for one in dots]
    assert (np.diff(greys) > 0.02).all()
    assert [text.get_text() for text in panel.get_legend().get_texts()] == [f"{number}" for number in range(10)]


def test_many_groups_have_no_legend():
    x = cloud(40, 6)
    _, panel = plot_neighborhoods(x, x, range(40))
    assert panel.get_legend() is None
    assert len(panel.collections) == 1 + 40
    assert len({one.get_paths()[0].vertices.tobytes() for one in panel.collections[1:]}) == len(MARKERS)


def test_without_groups_the_clusters_are_those_of_after_and_the_title_is_fair():
    before, side = cloud(20, 5), 9 * np.eye(5)[0]
    after = np.concatenate([cloud(10, 5, seed=1) + side, cloud(10, 5, seed=2) - side])
    pair = plot_neighborhoods(before, after, clusters=2)
    for name, panel, x in zip(("before", "after"), pair, (before, after), strict=True):
        _, one, two = panel.collections
        assert len(one.get_offsets()) == len(two.get_offsets()) == 10
        near = nearest(x)
        share = sum(near[near[i]] == i for i in range(20)) / 20
        ending = "of texts are the nearest\nneighbour of their nearest neighbour"
        assert panel.get_title() == f"{name}: {share:.0%} {ending}"
        assert panel.get_legend() is None
    sides = [np.asarray(dots.get_offsets())[:, 0] for dots in pair[1].collections[1:]]
    assert max(sides[0]) < min(sides[1]) or max(sides[1]) < min(sides[0])


def test_the_second_panel_is_turned_to_the_first():
    before = cloud(25, 5) * [3, 2, 1, 1, 1]
    turn = np.linalg.qr(cloud(5, 5, seed=3))[0]
    groups = [str(number % 2) for number in range(25)]
    lengths = np.linspace(0.1, 7, 25)[:, None]  # nothing depends on them
    left, right = plot_neighborhoods(before, before @ -turn * lengths, groups)
    np.testing.assert_allclose(points(left, groups), points(right, groups), atol=1e-6)
    other = points(plot_neighborhoods(before[:, :4], before @ turn, groups)[0], groups)
    assert np.abs(points(left, groups) - other).max() > 0.01  # the first panel is that of before


def test_axes_that_change_places_are_turned_back():
    flat = 0.1 * np.linalg.qr(cloud(25, 2) - cloud(25, 2).mean(axis=0))[0]
    before, after = (np.column_stack([flat * widths, np.ones(25)]) for widths in ([1.3, 1.0], [1.0, 1.3]))
    groups = ["one"] * 25
    left, right = (points(panel, groups) for panel in plot_neighborhoods(before, after, groups))
    assert np.corrcoef(left[:, 0], right[:, 0])[0, 1] > 0.99
    assert np.corrcoef(left[:, 1], right[:, 1])[0, 1] > 0.99


def test_tsne_keeps_clouds_apart():
    x = np.concatenate([cloud(15, 4) + 20 * np.eye(4)[0], cloud(15, 4, seed=1) + 20 * np.eye(4)[1]])
    groups = ["a"] * 15 + ["b"] * 15
    for panel in plot_neighborhoods(x, x, groups, method="tsne"):
        drawn = points(panel, groups)
        centres = drawn[:15].mean(axis=0), drawn[15:].mean(axis=0)
        own, other = (np.linalg.norm(drawn[:15] - centre, axis=1) for centre in centres)
        assert (own < other).all()


def test_changed_neighbours_are_drawn_with_their_places():
    before, after = cloud(30, 6), cloud(30, 4, seed=1)
    texts = [f"$_$ text\n{number}" + 200 * "." for number in range(30)]
    ax = plot_changed_neighbors(texts, torch.tensor(before), after, [3, 7])
    arrows = [note for note in ax.texts if note.get_text() == ""]
    lines = [note.get_text() for note in ax.texts if note.get_text()]
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (before, after)]
    for place, row in enumerate((3, 7)):
        orders = [sorted((j for j in range(30) if j != row), key=lambda j: -(unit @ unit[row])[j]) for unit in units]
        numbers = [row, orders[0][0], orders[1][0]]
        for line, said, j in zip(lines[3 * place :], ("", "was: ", "is: "), numbers, strict=False):
            assert line == said + f"$_$ text {j}{200 * '.'}"[:100]
        for arrow, j in zip(arrows[2 * place :], numbers[1:], strict=False):
            assert [arrow.xyann[0], arrow.xy[0]] == [order.index(j) + 1 for order in orders]
    same = plot_changed_neighbors(texts, before, 2 * before, [0])
    assert [note.get_text()[:4] for note in same.texts if note.get_text()] == ["$_$ ", "is: "]
    ax.figure.canvas.draw()


@pytest.mark.parametrize("method", ["pca", "tsne"])
@pytest.mark.parametrize(
    "x", [np.ones((3, 2)), np.ones((50, 4)), np.eye(7), np.eye(3, 2) + 1e-30, np.repeat(np.eye(5), 9, axis=0)]
)
def test_strange_embeddings_are_drawn_without_a_warning(x, method):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for panel in plot_neighborhoods(x, x[::-1].copy(), method=method):
            drawn = np.concatenate([dots.get_offsets() for dots in panel.collections[1:]])
            assert drawn.shape == (len(x), 2)
            assert np.isfinite(drawn).all()


X = np.eye(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_embedding_map(X[:2]), r"embeddings must have the shape \(N, D\) with at least 3 rows"),
        (lambda: plot_embedding_map(X[:, :1]), "D >= 2 dimensions"),
        (lambda: plot_embedding_map(X, [1, 2]), r"values must have the shape \(4\) .*, got \(2,\)"),
        (lambda: plot_embedding_map(X, [0, 1, 2, 3], log_values=True), "values must be > 0.*got 0"),
        (lambda: plot_embedding_map(X + np.inf), "embeddings must be finite"),
        (lambda: plot_neighborhoods(X, X[:3]), "after must have a row for each of the 4 rows of before, got 3"),
        (lambda: plot_neighborhoods(np.ones((4, 1)), X), r"before must have D >= 2 dimensions, got .*\(4, 1\)"),
        (lambda: plot_changed_neighbors(["a"], X, X, [0]), "before, after and texts must be as many, got 4, 4 and 1"),
        (lambda: plot_neighborhoods(X, X * 0), "after must have a direction in each row"),
        (lambda: plot_neighborhoods(X, X, ["a", "b"]), "groups must have one label .*, got 2 for 4"),
        (lambda: plot_neighborhoods(X, X, [0.5] * 4), "a label must be a string or a whole number, got 0.5"),
        (lambda: plot_neighborhoods(X, X, method="umap"), "method must be one of 'pca', 'tsne', got 'umap'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_drawn(call, message):
    with pytest.raises(ValueError, match=rf"{message}.*[.?]$"):
        call()
    assert not pyplot.get_fignums()
