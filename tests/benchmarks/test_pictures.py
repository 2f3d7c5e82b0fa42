from __future__ import annotations

import statistics
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from benchmarks import pictures
from benchmarks.tables.quality import ROWS, row_records


def test_pictures_show_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, values = pictures.mean_curves()["SimCSE"]
    curves = [dict(record["curve"]) for record in row_records(ROWS["SimCSE"][0])]
    assert steps[:2] == [0, 25]
    assert values[1] == pytest.approx(statistics.mean(curve[25] for curve in curves))
    curves, picks = pictures.picked_curves()
    assert picks.keys() == curves.keys()
    assert all(picks[name] in steps for name, (steps, _) in curves.items())
    monkeypatch.setattr(pictures, "DOCS", tmp_path / "docs")
    pictures.main()
    assert {file.name for file in (tmp_path / "docs").iterdir()} == {"training_curves.png", "label_free_selection.png"}
