"""The table of the trainings of the domain study."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.tables import trainings


def record(domain: str, row: str, seed: int, mean: float, sts: float = 80.0) -> dict[str, Any]:
    scores = {"mean": mean, "stsb_test": sts}
    return {"encoder": "minilm", "domain": domain, "row": row, "seed": seed, "scores": scores}


FOUND = [
    *(record(domain, "start", 0, start) for domain, start in (("a", 50.0), ("b", 70.0))),
    *(record(domain, "neighbours, medium", seed, 80.0) for domain in "ab" for seed in (0, 1)),
    *(record("a", "SimCSE", seed, 48.0 + seed, 79.0) for seed in (0, 1)),
    *(record("b", "SimCSE", seed, 72.0 + seed, 80.5) for seed in (0, 1)),
    *(record(domain, "SimCSE, then neighbours, medium", seed, 81.0 + seed) for domain in "ab" for seed in (0, 1)),
    *(record(domain, "DCLR", 0, 75.0) for domain in "ab"),
    *(record(domain, "DCLR, then neighbours, medium", 0, 80.5) for domain in "ab"),
    record("a", "DCLR", 1, 10.0),
    record("a", "TSDAE", 0, 60.0),
    record("a", "TSDAE, then neighbours, medium", 0, 60.0),
]


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "records", lambda folder: FOUND)
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in trainings.trainings_table("minilm").splitlines()
    ]
    assert lines[2] == ["DCLR", "+15.00", "+5.00", "+0.50", "+0.0", "1"]  # 75 - 50 and 75 - 70; seed 1 lacks a domain
    row, gain, worst, step, sts, seeds = lines[3]  # of each seed: (-2 + 2) / 2 = 0, then 1
    assert (row, gain.split()[0], worst, step.split()[0], sts, seeds) == (
        "SimCSE",
        "+0.50",
        "-1.50",
        "+1.50",
        "-0.2",
        "2",
    )
    assert len(lines) == 4  # TSDAE was not run on both
