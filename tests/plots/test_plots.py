"""What each plot function draws: the data in the artists, the labels, the legend."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import gaussian_kde

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from st_extras import plots  # noqa: E402


def cloud(rows: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, size))


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_map_draws_the_principal_plane() -> None:
    x = cloud(40, 5) * [5, 3, 1, 1, 1]
    counts = np.arange(1, 41)
    ax = plots.plot_embedding_map(x, counts, value_label="count", log_values=True)
    (dots,) = ax.collections
    drawn = np.asarray(dots.get_offsets())
    assert drawn.var(axis=0, ddof=1) == pytest.approx(np.sort(np.linalg.eigvalsh(np.cov(x.T)))[::-1][:2])
    assert abs(np.corrcoef(drawn[:, 0], x[:, 0])[0, 1]) > 0.9
    assert np.asarray(dots.get_array()) == pytest.approx(counts)
    assert isinstance(dots.norm, matplotlib.colors.LogNorm)
    assert ax.figure.axes[1].get_ylabel() == "count"
    assert ax.get_xlabel() == "principal component 1"


def test_map_is_the_same_for_mirrored_axes_and_draws_without_values() -> None:
    x = cloud(20, 4)
    (first,) = plots.plot_embedding_map(x).collections
    (second,) = plots.plot_embedding_map(x[::-1].copy()).collections
    np.testing.assert_allclose(np.asarray(first.get_offsets()), np.asarray(second.get_offsets())[::-1], atol=1e-9)
    offsets = np.asarray(first.get_offsets())
    assert (offsets[np.abs(offsets).argmax(axis=0), [0, 1]] > 0).all()
    assert len(first.axes.figure.axes) == 1


def test_tsne_separates_two_clouds() -> None:
    x = np.concatenate([cloud(15, 4), cloud(15, 4, seed=1) + 50])
    ax = plots.plot_embedding_map(x, method="tsne")
    points = np.asarray(ax.collections[0].get_offsets())
    centres = points[:15].mean(axis=0), points[15:].mean(axis=0)
    own = np.linalg.norm(points[:15] - centres[0], axis=1)
    assert (own < np.linalg.norm(points[:15] - centres[1], axis=1)).all()
    assert ax.get_xlabel() == "t-SNE axis 1"


def test_attention_bars_stand_in_reading_order() -> None:
    ax = plots.plot_attention_received(["[CLS]", "flute", "flute"], [0.5, 0.3, 0.2])
    assert [bar.get_width() for bar in ax.patches] == [0.5, 0.3, 0.2]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["[CLS]", "flute", "flute"]
    top, bottom = ax.transData.transform([(0, 0), (0, 2)])[:, 1]
    assert top > bottom


def test_density_of_each_level() -> None:
    scores = [0.5, 0.2, 0.9, 4.5, 4.9, 2.5, 2.7, 3.5]
    cosines = [0.1, 0.2, 0.4, 0.8, 1.0, 0.5, 0.5, 0.6]
    ax = plots.plot_cosine_density(cosines, scores)
    assert texts(ax) == ["0-1 (0.23 / 0.016)", "2-3 (0.50 / 0.000)", "3-4 (0.60 / 0.000)", "4-5 (0.90 / 0.010)"]
    lowest, flat, single, highest = ax.get_lines()
    assert lowest.get_ydata() == pytest.approx(gaussian_kde([0.1, 0.2, 0.4])(lowest.get_xdata()))
    assert highest.get_ydata() == pytest.approx(gaussian_kde([0.8, 1.0])(highest.get_xdata()))
    assert (highest.get_xdata().min(), highest.get_xdata().max()) == (pytest.approx(0.01), 1.0)
    assert set(flat.get_xdata()) == {0.5}
    assert set(single.get_xdata()) == {0.6}
    assert ax.get_xlabel() == "cosine similarity"


def test_alignment_uniformity_scatter() -> None:
    points = {"BERT": (0.2, -1.5), "SimCSE": (0.3, -2.5)}
    ax = plots.plot_alignment_uniformity(points, {"BERT": 31.4, "SimCSE": 76.9, "other": 1.0})
    (dots,) = ax.collections
    assert np.asarray(dots.get_offsets()).tolist() == [[-1.5, 0.2], [-2.5, 0.3]]
    assert np.asarray(dots.get_array()).tolist() == [31.4, 76.9]
    assert [note.get_text() for note in ax.texts] == ["BERT (31.4)", "SimCSE (76.9)"]
    assert [note.xy for note in ax.texts] == [(-1.5, 0.2), (-2.5, 0.3)]
    assert [note.get_horizontalalignment() for note in ax.texts] == ["right", "left"]
    assert ax.get_xlabel().startswith("uniformity")
    assert ax.get_ylabel().startswith("alignment")
    plain = plots.plot_alignment_uniformity(points)
    assert [note.get_text() for note in plain.texts] == ["BERT", "SimCSE"]


def test_lambda_heatmap_stars_the_best_setting() -> None:
    table = np.array([[0.5, 0.6, 0.4], [0.3, 0.9, 0.2]])
    ax = plots.plot_lambda_heatmap([0.0, 0.5], [0.0, 1.0, 3.0], table)
    (mesh,) = ax.collections
    assert np.asarray(mesh.get_array()).reshape(2, 3) == pytest.approx(table)
    (star,) = ax.get_lines()
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (1.0, 0.5)
    assert texts(ax) == ["best: 0.9 at (0.5, 1)"]
    assert ax.get_xlabel().startswith("lambda_2")
    assert ax.get_ylabel().startswith("lambda_1")


def test_eigenvalue_curve_marks_its_minimum() -> None:
    ax = plots.plot_eigenvalue_curve([0, 1, 2], [9.0, 4.0, 5.0], [0.5, 0.6, 0.7])
    curve, mark = ax.get_lines()
    assert curve.get_xdata().tolist() == [0, 1, 2]
    assert curve.get_ydata().tolist() == [9, 4, 5]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (1, 4)
    right = ax.figure.axes[1]
    other, peak = right.get_lines()
    assert other.get_ydata().tolist() == [0.5, 0.6, 0.7]
    assert (peak.get_xdata()[0], peak.get_ydata()[0]) == (2, 0.7)
    assert texts(ax) == ["largest eigenvalue", "Spearman correlation"]
    assert len(plots.plot_eigenvalue_curve([0, 1], [2.0, 1.0]).figure.axes) == 1


def test_training_curves_mark_the_best_and_the_picked() -> None:
    curves = {"DCLR": ([0, 10, 20], [0.5, 0.8, 0.7]), "SimCSE": ([0, 10], [0.5, 0.6])}
    ax = plots.plot_training_curves(curves, ylabel="dev", picked={"DCLR": 20})
    first, best, cross, second, last = ax.get_lines()
    assert first.get_ydata().tolist() == [0.5, 0.8, 0.7]
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (10, 0.8)
    assert (cross.get_xdata()[0], cross.get_ydata()[0], cross.get_marker()) == (20, 0.7, "x")
    assert second.get_ydata().tolist() == [0.5, 0.6]
    assert last.get_xdata()[0] == 10
    assert first.get_color() == best.get_color() != second.get_color()
    assert texts(ax) == ["DCLR", "SimCSE"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "dev")
    lowest = plots.plot_training_curves({"loss": ([1, 2], [3.0, 1.0])}, best="min").get_lines()[1]
    assert lowest.get_ydata()[0] == 1.0
    assert len(plots.plot_training_curves({"loss": ([1, 2], [3.0, 1.0])}, best=None).get_lines()) == 1


def test_plots_draw_on_the_axes_they_are_given() -> None:
    _, (left, right) = pyplot.subplots(1, 2)
    assert plots.plot_training_curves({"a": ([1], [2.0])}, ax=left) is left
    assert plots.plot_attention_received(["a"], [1.0], ax=right) is right
    assert len(pyplot.get_fignums()) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.plot_embedding_map(cloud(2, 3)), r"embeddings must be \(N, D\) with N >= 3, got .*\(2, 3\)"),
        (lambda: plots.plot_embedding_map(cloud(3, 1)), "D >= 2 dimensions"),
        (lambda: plots.plot_embedding_map(cloud(3, 2), [1, 2]), r"values must have the shape \(3,\), got \(2,\)"),
        (lambda: plots.plot_embedding_map(cloud(3, 2), [0, 1, 2], log_values=True), "values must be > 0.*got 0"),
        (lambda: plots.plot_embedding_map(cloud(3, 2), method="umap"), "got 'umap'"),
        (lambda: plots.plot_embedding_map(cloud(3, 2) * math.inf), "embeddings must be finite"),
        (lambda: plots.plot_attention_received([], []), "at least one word"),
        (lambda: plots.plot_attention_received(["a"], [1, 2]), "weights must have the shape"),
        (lambda: plots.plot_cosine_density([0.1, 0.2], [1.0, 1.0]), "scores must differ"),
        (lambda: plots.plot_alignment_uniformity({}), "at least one model"),
        (lambda: plots.plot_alignment_uniformity({"a": (1, 2)}, {"b": 1}), "got none for a"),
        (lambda: plots.plot_alignment_uniformity({"a": (1, math.nan)}), "points must be finite, got nan"),
        (lambda: plots.plot_alignment_uniformity({"a": (1, 2, 3)}), r"points must be \(N, 2\)"),
        (lambda: plots.plot_lambda_heatmap([0, 1], [0, 1], [[1, 2]]), r"= \(2, 2\), got \(1, 2\)"),
        (lambda: plots.plot_lambda_heatmap([1, 0], [0, 1], [[1, 2], [1, 2]]), r"lambda_1 .*increasing, got \[1, 0\]"),
        (lambda: plots.plot_eigenvalue_curve([0, 1], [1.0]), "eigenvalues must have the shape"),
        (lambda: plots.plot_training_curves({}), "at least one run"),
        (lambda: plots.plot_training_curves({"a": ([1, 1], [1, 2])}), "steps of 'a' must be strictly increasing"),
        (lambda: plots.plot_training_curves({"a": ([1], [1])}, best="first"), "got 'first'"),
        (lambda: plots.plot_training_curves({"a": ([1], [1])}, picked={"b": 1}), "got b"),
        (lambda: plots.plot_training_curves({"a": ([1], [1])}, picked={"a": 2}), "a step of 'a', got 2"),
    ],
)
def test_bad_input_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_one_line_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r'pip install "st-extras\[plot\]"'):
        plots.plot_training_curves({"a": ([1], [1.0])})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.plot_embedding_map("abc"), "embeddings must be numbers"),
        (lambda: plots.plot_embedding_map([[1.0], [1.0, 2.0]]), "embeddings must be numbers"),
        (lambda: plots.plot_embedding_map(None), "embeddings must be"),
        (lambda: plots.plot_embedding_map(np.eye(3), values=["a", "b", "c"]), "values must be numbers"),
        (
            lambda: plots.plot_embedding_map(np.eye(3), [1, 2, 3], log_values="False"),
            "log_values must be True or False",
        ),
        (lambda: plots.plot_embedding_map(np.eye(3), seed="1"), "seed must be"),
        (lambda: plots.plot_embedding_map(np.eye(3), seed=1.5), "seed must be"),
        (lambda: plots.plot_embedding_map(np.eye(3), seed=-1, method="tsne"), "seed must be"),
        (lambda: plots.plot_attention_received("abc", [1, 2, 3]), "words must be a list"),
        (lambda: plots.plot_attention_received(3, [1, 2, 3]), "words must be a list"),
        (lambda: plots.plot_attention_received([1, 2], [0.5, 0.5]), "words must be a list"),
        (lambda: plots.plot_attention_received(["a"], ["b"]), "weights must be numbers"),
        (lambda: plots.plot_cosine_density(["a"], [1.0]), "cosines must be numbers"),
        (lambda: plots.plot_cosine_density([0.5, np.nan], [1.0, 2.0]), "cosines must be finite"),
        (lambda: plots.plot_cosine_density([0.5, 0.1], ["a", "b"]), "scores must be numbers"),
        (lambda: plots.plot_cosine_density([0.5, 0.1], [1.0, 2.0], levels=10**9), "levels must be"),
        (lambda: plots.plot_alignment_uniformity(["a"]), "points must be a mapping"),
        (lambda: plots.plot_alignment_uniformity({"a": 1.0}), "points must be"),
        (lambda: plots.plot_alignment_uniformity({"a": (1.0, 2.0), "b": (1.0,)}), "points must be"),
        (lambda: plots.plot_training_curves([1, 2]), "curves must be a mapping"),
        (lambda: plots.plot_training_curves({"a": 3}), "curves must hold"),
        (lambda: plots.plot_training_curves({"a": ([1, 2], ["x", "y"])}), "values of 'a' must be numbers"),
        (
            lambda: plots.plot_training_curves({"a": ([1, 2], [1, 2])}, picked={"a": "2"}),
            "picked must be a step of 'a'",
        ),
        (lambda: plots.plot_training_curves({"a": ([1, 2], [1, 2])}, best=True), "best must be one of"),
        (lambda: plots.plot_lambda_heatmap(["a"], [1.0], [[1.0]]), "lambda_1 must be numbers"),
        (lambda: plots.plot_lambda_heatmap([0.0], [1.0], [["a"]]), "spearman must be numbers"),
        (lambda: plots.plot_eigenvalue_curve([0.0, 1.0], [1.0, "x"]), "eigenvalues must be numbers"),
        (lambda: plots.plot_eigenvalue_curve([0.0, np.nan], [1.0, 2.0]), "lambda_2 must be finite"),
        (lambda: plots.plot_eigenvalue_curve([0.0, 1.0], [1.0, 2.0], ax="here"), "ax must be"),
    ],
)
def test_wrong_types_are_named_before_anything_is_drawn(call, message: str) -> None:
    pyplot.close("all")
    with pytest.raises(ValueError, match=message):
        call()
    assert not pyplot.get_fignums()


def test_curves_differ_in_style_too_and_none_is_drawn_twice() -> None:
    """Without colours, neighbours can be told apart; with them, all can, also past the ten colours."""
    curves = {str(number): ([0, 1], [number, 2]) for number in range(14)}
    lines = plots.plot_training_curves(curves, best=None).get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 14
    assert all(one.get_linestyle() != other.get_linestyle() for one, other in pairwise(lines))


def test_levels_differ_in_style_too() -> None:
    lines = plots.plot_cosine_density(np.random.default_rng(0).uniform(size=100), np.arange(100) / 20).get_lines()
    assert len(lines) == 5
    assert all(one.get_linestyle() != other.get_linestyle() for one, other in pairwise(lines))
