"""What each plot function draws: the data in the artists, the labels, the legend."""

import math
from itertools import pairwise

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from st_extras import plots  # noqa: E402
from st_extras.evaluation.geometry import unrelated_cosines  # noqa: E402
from tests.helpers import draw  # noqa: E402


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
    assert [note.get_horizontalalignment() for note in ax.texts] == ["right", "left"]
    assert ax.get_xlabel().startswith("uniformity")
    assert ax.get_ylabel().startswith("alignment")
    plain = plots.plot_alignment_uniformity(points)
    assert [note.get_text() for note in plain.texts] == ["BERT", "SimCSE"]


def test_training_curves_mark_the_best_and_the_picked():
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
    with pytest.raises(ValueError, match=r"^points must"):
        plots.plot_alignment_uniformity({"a": (1, math.nan)})
    with pytest.raises(ValueError, match=r"^steps of 'a' must"):
        plots.plot_training_curves({"a": ([1, 1], [1, 2])})
    with pytest.raises(ValueError, match=r"^picked must"):
        plots.plot_training_curves({"a": ([1], [1])}, picked={"a": 2})
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
