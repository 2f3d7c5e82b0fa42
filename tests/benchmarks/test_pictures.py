"""What the pictures draw equals the records."""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from benchmarks import pictures  # noqa: E402
from benchmarks.pictures import curves, spaces  # noqa: E402
from benchmarks.records import records  # noqa: E402

DOCS = Path(__file__).resolve().parents[2] / "docs"
LARGEST = 200_000  # bytes


@pytest.fixture(autouse=True)
def _figures_closed():
    yield
    plt.close("all")


def drawn(ax: Any) -> list[tuple[list[float], list[float]]]:
    """The points of the lines of a panel."""
    return [tuple(np.asarray(data, dtype=float).tolist() for data in line.get_data()) for line in ax.get_lines()]


def titled(figure: Any) -> dict[str, Any]:
    return {ax.get_title().split("\n")[0]: ax for ax in figure.axes}


def test_curves_are_the_means_of_the_records():
    steps, values = curves.mean_curves()["SimCSE"]
    found = [
        dict(record["curve"]) for study in ("foundation", "more_seeds") for record in records(study, "simcse-[0-9]")
    ]
    assert steps[:2] == [0, 25]
    assert values[1] == pytest.approx(statistics.mean(curve[25] for curve in found))


def test_each_method_has_a_panel_with_its_curves_and_the_baselines():
    found = curves.mean_curves()
    figure = curves.draw_families(found, "step")
    panels = titled(figure)
    assert panels.keys() - {""} == {label.split(",")[0] for label in found}
    own = [line for line in panels["AdCSE"].get_lines() if line.get_color() == "black" and len(line.get_xdata()) > 1]
    assert [drawn_line(line) for line in own] == [found[label] for label in found if label.startswith("AdCSE")]
    assert len({line.get_linestyle() for line in own}) == len(own) > 1
    level = {record["kind"]: record["dev"] for record in records("floors") if record["text"] == "sts"}
    flat = [y[0] for x, y in drawn(panels["AdCSE"]) if x == [0.0, 1.0]]
    assert flat == [level["characters"], sif_of_minilm(), curves.base_dev()]


def drawn_line(line: Any) -> tuple[list[float], list[float]]:
    return [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]


def sif_of_minilm() -> float:
    wanted = ("sif_removed", "minilm", "sts")
    return next(r["dev"] for r in records("floors") if (r["kind"], r["encoder"], r["text"]) == wanted)


def test_changed_neighbours_are_drawn_from_their_record():
    (ax,) = spaces.draw_neighborhoods({"count": 9, "moves": [["a", 0, 0], ["was: b", 1, 7], ["is: c", 4, 1]]}).axes
    assert [note.xy[0] for note in ax.texts if not note.get_text()] == [7, 1]


def test_the_texts_shown_are_those_whose_nearest_neighbour_changed():
    record: dict[str, Any] = {"topics": list("aabb"), "held_out": ["one", "two", "three", "four"]}
    record["before"] = {"map_at_r": 10.0, "cosines": [0.1, 0.5, 0.2, 0.3, 0.2, 0.15]}  # 01 02 03 12 13 23
    record["after"] = {"map_at_r": 20.0, "cosines": [0.6, 0.5, 0.1, 0.3, 0.0, 0.25]}
    assert spaces.changed_neighbours(record) == [(1, 2, 0), (3, 0, 2), (0, 2, 1)]
    left, right, listed = spaces.draw_topics(record).axes
    assert (left.get_title(), right.get_title()) == ("base model: MAP@R 10.0", "after adapt: MAP@R 20.0")
    words = [text.get_text() for text in listed.texts]
    assert words[0].startswith("3 of 4 texts have another neighbour, 3 more")
    assert words[2:4] == ["two", "before (another topic): three"]


@pytest.mark.slow
def test_every_picture_is_written_small_and_the_same_each_time(tmp_path, monkeypatch):
    written = []
    for name in ("first", "second"):
        monkeypatch.setattr(pictures, "DOCS", tmp_path / name)
        pictures.draw()
        written.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert written[0].keys() == pictures.PICTURES.keys()
    assert written[0] == written[1]
    assert max(map(len, written[0].values())) < LARGEST


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_every_picture_is_there(name):
    assert 0 < (DOCS / name).stat().st_size < LARGEST
