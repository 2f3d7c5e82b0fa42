"""What each plot function draws: the data in the artists, the labels, the legend."""

import numpy as np
import pytest
import torch

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from st_extras.evaluation.geometry import unrelated_cosines  # noqa: E402
from st_extras.plots import plot_changed_neighbors, plot_unrelated_cosines  # noqa: E402
from tests.helpers import draw  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_unrelated_cosines_are_shares_of_pairs():
    x = {"before": draw(60, 4) + 1, "after": draw(60, 4)}
    ax = plot_unrelated_cosines(x)
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
        (lambda: plot_unrelated_cosines({}), "embeddings"),
        (lambda: plot_unrelated_cosines({"before": x}), "before"),
        (lambda: plot_changed_neighbors("abcd", np.zeros((4, 1)), x, [0]), "before"),
        (lambda: plot_changed_neighbors("abcd", x, x[:3], [0]), "before, after and texts"),
    ):
        with pytest.raises(ValueError, match=rf"^{named} must"):
            call()
    assert not pyplot.get_fignums()


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_one_line_says_what_to_install():
    for draw_one in (
        lambda: plot_unrelated_cosines({"before": draw(60, 4)}),
        lambda: plot_changed_neighbors(list("abcd"), np.eye(4), np.eye(4), [0]),
    ):
        with pytest.raises(ImportError, match=r'pip install "st-extras\[plot\]"'):
            draw_one()


def cloud(rows: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, size))


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
