"""What the pictures draw equals the records."""

import statistics
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from benchmarks import pictures  # noqa: E402
from benchmarks.pictures import curves  # noqa: E402
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


@pytest.mark.slow
def test_every_picture_is_written_small(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "DOCS", tmp_path)
    pictures.draw()
    for folder in (tmp_path, DOCS):
        sizes = {name: (folder / name).stat().st_size for name in pictures.PICTURES}
        assert max(sizes.values()) < LARGEST
        assert min(sizes.values()) > 0
    assert len(list(tmp_path.iterdir())) == len(pictures.PICTURES)
