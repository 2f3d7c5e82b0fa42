"""The tables of large work."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.tables import scale

MEMORY = {"readers": {"count": [{"sentences": 1000, "above_mib": 3.2}, {"sentences": 2000, "above_mib": 4.6}]}}
SPEED = {
    "rounds": 3,
    "machine": "two cores",
    "works": {
        "counting": {
            "sizes": [10, 2000],
            "1": {"small": 1.0, "large": 20.4, "once started": 30.0},
            "2": {"small": 2.0, "large": 40.0, "once started": 5000.0},
            "floor share": 0.97,
            "bound": "the tokenizer",
        }
    },
}


def batch(loss: str, rounds: int, ratio: float) -> dict[str, Any]:
    found = {
        "ms_per_sentence": {"uncached": 10.0, "cached": 14.0},
        "time_ratio": {"median": ratio, "lowest": ratio - 0.1, "highest": ratio + 0.1},
        "memory_ratio": 0.9,
    }
    return {"settings": {"rounds": rounds}, "losses": {loss: found}}


def test_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"memory-*.json": [{}, MEMORY], "speed-*.json": [{}, SPEED]}
    monkeypatch.setattr(scale, "records", lambda study, pattern: found[pattern])
    assert scale.memory_table().splitlines()[-1] == "| `count` | 3 | 5 |"
    assert scale.processes_table().splitlines()[2:4] == [
        "| counting | 1 | 10 and 2,000 | 1 | 20 | 30 | 97% is the tokenizer |",
        "| counting | 2 | 10 and 2,000 | 2 | 40 | 5,000 |  |",
    ]


def test_more_rounds_are_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [batch("dclr", 3, 1.4), batch("dclr", 1, 1.3), batch("simcse", 1, 1.2)]
    monkeypatch.setattr(scale, "records", lambda study: found)
    assert scale.large_batches_table().splitlines()[2:] == [
        "| dclr | 10.0 | 14.0 | 1.40 x (1.30 to 1.50) | 0.90 x | 3 |",
        "| simcse | 10.0 | 14.0 | 1.20 x | 0.90 x | 1 |",
    ]
