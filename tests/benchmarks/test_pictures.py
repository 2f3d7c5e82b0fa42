"""What the pictures draw equals the records."""

import statistics
from pathlib import Path
from typing import Any

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


def test_curves_are_the_means_of_the_records():
    steps, values = curves.mean_curves()["SimCSE"]
    found = [
        dict(record["curve"]) for study in ("foundation", "more_seeds") for record in records(study, "simcse-[0-9]")
    ]
    assert steps[:2] == [0, 25]
    assert values[1] == pytest.approx(statistics.mean(curve[25] for curve in found))


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
def test_every_picture_is_written_small(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "DOCS", tmp_path)
    pictures.draw()
    for folder in (tmp_path, DOCS):
        sizes = {name: (folder / name).stat().st_size for name in pictures.PICTURES}
        assert max(sizes.values()) < LARGEST
        assert min(sizes.values()) > 0
    assert len(list(tmp_path.iterdir())) == len(pictures.PICTURES)
