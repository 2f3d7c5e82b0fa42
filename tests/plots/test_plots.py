"""What each plot function draws: the data in the artists, the labels, the legend; maps and neighbours that changed."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from st_extras import plots  # noqa: E402
from st_extras.evaluation.geometry import unrelated_cosines  # noqa: E402
from st_extras.plots import plot_changed_neighbors, plot_embedding_map  # noqa: E402
from tests.helpers import draw  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_alignment_uniformity_scatter():
    points = {"BERT": (0.2, -1.5), "SimCSE": (0.3, -2.5)}
    ax = plots.plot_alignment_uniformity(points, {"BERT": 31.4, "SimCSE": 76.9, "other": 1.0})
    (dots,) = ax.collections
    assert np.asarray(dots.get_offsets()).tolist() == [[-1.5, 0.2], [-2.5, 0.3]]
    assert np.asarray(dots.get_array()).tolist() == [31.4, 76.9]
    assert [note.get_text() for note in ax.texts] == ["BERT (31.4)", "SimCSE (76.9)"]
    assert [note.xy for note in ax.texts] == [(-1.5, 0.2), (-2.5, 0.3)]
    assert (ax.get_xlabel()[:10], ax.get_ylabel()[:9]) == ("uniformity", "alignment")


def test_training_curves_mark_the_best_and_the_picked():
    curves = {"DCLR": ([0, 10, 20], [0.5, 0.8, 0.7]), "SimCSE": ([0, 10], [0.5, 0.6])}
    ax = plots.plot_training_curves(curves, ylabel="dev", picked={"DCLR": 20})
    first, best, cross, second, last = ax.get_lines()
    assert first.get_ydata().tolist() == [0.5, 0.8, 0.7]
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (10, 0.8)
    assert (cross.get_xdata()[0], cross.get_ydata()[0], cross.get_marker()) == (20, 0.7, "x")
    assert (second.get_ydata().tolist(), last.get_xdata()[0]) == ([0.5, 0.6], 10)
    assert texts(ax) == ["DCLR", "SimCSE"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "dev")
    lowest = plots.plot_training_curves({"loss": ([1, 2], [3.0, 1.0])}, best="min").get_lines()[1]
    assert lowest.get_ydata()[0] == 1.0


def test_unrelated_cosines_are_shares_of_pairs():
    x = {"before": draw(60, 4) + 1, "after": draw(60, 4)}
    ax = plots.plot_unrelated_cosines(x)
    curves = [line for line in ax.get_lines() if not line.get_label().startswith("_")]
    for line, rows in zip(curves, x.values(), strict=True):
        unit = rows / rows.norm(dim=1, keepdim=True)
        cosines = [float(unit[i] @ unit[j]) for i in range(60) for j in range(i)]
        for cosine, share in zip(line.get_xdata()[::40], line.get_ydata()[::40], strict=True):
            assert share == pytest.approx(np.mean([one > cosine - 1e-6 for one in cosines]))
    marks = [box.lines[0].get_xydata()[0].tolist() for box in ax.containers]
    assert marks == [[pytest.approx(unrelated_cosines(rows)[100][0], abs=1e-6), 0.01] for rows in x.values()]
    assert texts(ax) == ["before", "after"]
    assert ax.get_yticklabels()[2].get_text() == "1 in 100"


def test_bad_input_is_refused_before_anything_is_drawn():
    x = np.eye(4)
    for call, named in (
        (lambda: plots.plot_alignment_uniformity({"a": (1, math.nan)}), "points"),
        (lambda: plots.plot_training_curves({"a": ([1, 1], [1, 2])}), "steps of 'a'"),
        (lambda: plots.plot_training_curves({"a": ([1], [1])}, picked={"a": 2}), "picked"),
        (lambda: plot_embedding_map(x[:, :1]), "embeddings"),
        (lambda: plot_embedding_map(x, [1, 2]), "values"),
        (lambda: plot_changed_neighbors("abcd", np.ones((4, 1)), x, [0]), "before"),
        (lambda: plot_changed_neighbors("abcd", x, x[:3], [0]), "before, after and texts"),
    ):
        with pytest.raises(ValueError, match=rf"^{named} must"):
            call()
    assert not pyplot.get_fignums()


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_one_line_says_what_to_install():
    for draw_one in (
        lambda: plots.plot_training_curves({"a": ([1], [1.0])}),
        lambda: plots.plot_changed_neighbors(list("abcd"), np.eye(4), np.eye(4), [0]),
    ):
        with pytest.raises(ImportError, match=r'pip install "st-extras\[plot\]"'):
            draw_one()


def test_curves_differ_in_style_too_and_are_drawn_on_the_axes_given():
    """Without colours, neighbours can be told apart; with them, all can, also past the ten colours."""
    curves = {str(number): ([0, 1], [number, 2]) for number in range(14)}
    _, axes = pyplot.subplots()
    assert plots.plot_training_curves(curves, best=None, ax=axes) is axes
    lines = axes.get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 14
    assert all(one.get_linestyle() != other.get_linestyle() for one, other in pairwise(lines))
    assert len(pyplot.get_fignums()) == 1


# --- maps ---


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
    assert not np.allclose(drawn, np.asarray(plot_embedding_map(x, method="tsne").collections[0].get_offsets()))


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
