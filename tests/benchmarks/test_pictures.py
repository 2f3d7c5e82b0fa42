"""What the pictures draw equals the records."""

from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from benchmarks import pictures  # noqa: E402

DOCS = Path(__file__).resolve().parents[2] / "docs"
LARGEST = 200_000  # bytes


@pytest.fixture(autouse=True)
def _figures_closed():
    yield
    plt.close("all")


@pytest.mark.slow
def test_every_picture_is_written_small(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "DOCS", tmp_path)
    pictures.draw()
    for folder in (tmp_path, DOCS):
        sizes = {name: (folder / name).stat().st_size for name in pictures.PICTURES}
        assert max(sizes.values()) < LARGEST
        assert min(sizes.values()) > 0
    assert len(list(tmp_path.iterdir())) == len(pictures.PICTURES)
