"""Maps of embeddings: places and colours; neighbours that changed, with their places."""

import warnings

import numpy as np
import pytest
import torch

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from st_extras.plots import plot_changed_neighbors, plot_embedding_map  # noqa: E402


def cloud(rows: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, size))


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


def test_tsne_keeps_clouds_apart():
    x = np.concatenate([cloud(15, 4) + 20 * np.eye(4)[0], cloud(15, 4, seed=1) + 20 * np.eye(4)[1]])
    drawn = np.asarray(plot_embedding_map(x, method="tsne").collections[0].get_offsets())
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
        drawn = np.asarray(plot_embedding_map(x, method=method).collections[0].get_offsets())
    assert drawn.shape == (len(x), 2)
    assert np.isfinite(drawn).all()


X = np.eye(4)


def test_bad_input_is_refused_before_anything_is_drawn():
    for given, named in (((X[:, :1],), "embeddings"), ((X, [1, 2]), "values")):
        with pytest.raises(ValueError, match=rf"^{named} must"):
            plot_embedding_map(*given)
    for before, after, named in (
        (np.ones((4, 1)), X, "before"),
        (X, X[:3], "before, after and texts"),
        (X, X * 0, "after"),
    ):
        with pytest.raises(ValueError, match=rf"^{named} must"):
            plot_changed_neighbors("abcd", before, after, [0])
    assert not pyplot.get_fignums()
