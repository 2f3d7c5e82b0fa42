"""The tables of the domain study."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.tables import domains


def record(encoder: str, row: str, seed: int, mean: float, **more: float) -> dict[str, Any]:
    scores = {"knn_accuracy": 50.0, "v_measure": 40.0, "map_at_r": 30.0, "mean": mean, **more}
    return {"encoder": encoder, "domain": "bank", "row": row, "seed": seed, "scores": scores}


FOUND = [
    record("", "TF-IDF of characters 3-5", 0, 35.0),
    record("minilm", "start", 0, 40.0, stsb_test=82.0),
    *(record("minilm", "adapt", seed, 42.0 + seed, stsb_test=81.0) for seed in (0, 1, 2)),
]


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "records", lambda folder: FOUND)


def test_what_adapt_picks_stands_beside_start_and_floor():
    line = domains.adapted_table().splitlines()[2]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[0].startswith("all-MiniLM")
    assert cells[1:] == ["bank", "35.0", "40.0", "43.00 ± 1.00", "+3.00 [+0.52, +5.48]", "82.0", "81.0", "3"]


def test_every_row_is_listed_floors_first() -> None:
    lines = domains.domains_table("minilm").splitlines()
    assert lines[0] == "| row | bank | STS-B test | seeds |"
    assert lines[2:] == [
        "| TF-IDF of characters 3-5 | 35.00 |  | 1 |",
        "| start | 40.00 | 82.0 | 1 |",
        "| adapt | 43.00 ± 1.00 | 81.0 | 3 |",
    ]


def test_a_row_that_some_domains_lack_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [FOUND[1] | {"domain": "other"}, FOUND[2] | {"domain": "other"}]
    monkeypatch.setattr(domains, "records", lambda folder: [*FOUND, *elsewhere, record("minilm", "best", 0, 90.0)])
    lines = domains.domains_table("minilm").splitlines()
    assert lines[0] == "| row | bank | other | STS-B test | seeds |"
    assert [line.split(" | ")[0] for line in lines[3:]] == ["| start", "| adapt", "| best"]
    assert lines[4] == "| adapt | 43.00 ± 1.00 | 42.00 | 81.0 | 1 |"
