"""What the pictures draw equals the records."""

from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from benchmarks import pictures  # noqa: E402
from benchmarks.records import append  # noqa: E402

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


def test_the_bars_are_what_the_rows_of_its_encoder_gain_on_each_collection(results):
    for offset, encoder in ((0.0, pictures.ENCODER), (50.0, "mpnet")):
        for place, name in enumerate(pictures.COLLECTIONS):
            rows = {row: {"difference": offset + place + n / 2} for n, row in enumerate(pictures.FUSED.values())}
            record = {"encoder": encoder, "collection": name, "rows": rows | {"start": {"ndcg@10": 60.0 + place}}}
            append("hybrid", f"{encoder}-{name}", record)
    found = pictures.gains()
    assert list(found) == list(pictures.COLLECTIONS.values())
    (ax,) = pictures.draw_gains(found).axes
    widths = [[bar.get_width() for bar in container] for container in ax.containers]
    assert widths == [[place + n / 2 for place in range(len(found))] for n in (0, 1)]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [f"{title} ({60 + place:.1f})" for place, title in enumerate(found)]
    assert [text.get_text() for text in ax.texts[-2:]] == ["+5.5", "+6.5"]


def test_the_line_of_a_domain_has_its_mean_and_interval_where_there_are_two_draws():
    counts = {
        "Cars": {200: [1.0, 3.0], 500: [4.0], 1000: [6.0, 6.0]},
        "Food": {200: [-2.0, 0.0]},
        "Pets": {300: [1.0, 1.0]},
    }
    (ax,) = pictures.draw_few_texts(counts).axes
    assert [container.get_label() for container in ax.containers] == ["Cars", "Food", "Pets"]
    lines = [container.lines[0] for container in ax.containers]
    assert [line.get_ydata().tolist() for line in lines] == [[2.0, 6.0], [-1.0], [1.0]]
    assert [line.get_xdata().tolist() for line in lines] == [
        pytest.approx([192.0, 960.0]),
        [200.0],
        pytest.approx([312.0]),
    ]
    ends = [[part[:, 1].tolist() for part in container.lines[2][0].get_segments()] for container in ax.containers]
    half = 12.706204736432095  # Student's t at 0.975 with one degree of freedom, times a standard error of 1
    assert ends[0][0] == pytest.approx([2 - half, 2 + half])
    assert ends[0][1] == [6.0, 6.0]


def test_a_picture_is_the_same_at_every_run(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(pictures, "PICTURES", {f"{n}.svg": lambda n=n: plt.figure(figsize=(n, 1)) for n in (1, 2)})
    written = []
    for _ in range(2):
        pictures.draw()
        written.append({path.name: path.read_text() for path in (tmp_path / "docs").iterdir()})
    assert written[0] == written[1]
    assert written[0].keys() == {"1.svg", "2.svg"}
    assert all("<dc:date>" not in text for text in written[0].values())
    assert plt.get_fignums() == []
