from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.records import write_json
from benchmarks.tables import coverage


def test_unrun_rows_by_hand(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "smoke"):
        text = "[training]\nseeds = [0, 1, 2]\n[methods.simcse]\n[methods.dclr]\nseeds = [1]\n"
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf8")
    for name, seed in (("simcse", 1), ("dclr", 1), ("dclr", 7), ("start", 0)):
        write_json(results / "first" / f"{name}-{seed}.json", {"method": name, "seed": seed})
    monkeypatch.setattr("benchmarks.studies.CONFIGS", tmp_path)
    assert coverage.unrun_table().splitlines()[2:] == ["| first | 2 of 4 | simcse (0, 2) |"]
