from typing import Any

import pytest

from benchmarks.records import write_json
from benchmarks.tables import time_to_quality
from benchmarks.tables.time_to_quality import curve_table, reached, seconds_at, time_table


@pytest.fixture
def rows(results, monkeypatch):
    """SimCSE and a method with its guide: seed 0 with the seconds of each evaluation, seed 1 with the whole alone."""
    monkeypatch.setattr(
        time_to_quality,
        "ENCODERS",
        {"tiny": {"SimCSE": "a/simcse", "Guided": "a/guided", "Absent": "a/absent"}, "none": {"SimCSE": "b/simcse"}},
    )

    monkeypatch.setattr(time_to_quality, "FLOORS", {"tiny": "foundation", "none": "foundation"})

    def write(method: str, seed: int, curve: list[list[float]], **fields: Any) -> None:
        record = {"study": "a", "method": method, "seed": seed, "steps": 100, "curve": curve, "settings": {}}
        write_json(results / "a" / f"{method}-{seed}.json", record | fields)

    simcse = [[0, 50.0], [50, 70.0], [100, 60.0]]
    write("simcse", 0, simcse, seconds=999.0, training_seconds=[[0, 0.0], [50, 20.0], [100, 30.0]])
    write("simcse", 1, simcse, seconds=80.0)
    guided: dict[str, Any] = {"settings": {"base": {"complementary": "simcse"}}}
    write(
        "guided",
        0,
        [[0, 50.0], [50, 69.0], [100, 71.0]],
        training_seconds=[[0, 4.0], [50, 25.0], [100, 40.0]],
        **guided,
    )
    write("guided", 1, [[0, 50.0], [50, 70.0], [100, 71.0]], seconds=100.0, **guided)


def test_seconds_by_hand(rows):
    found = {(r["method"], r["seed"]): r for r in time_to_quality.records("a")}
    assert seconds_at(found["simcse", 0], 50) == 20.0
    assert seconds_at(found["simcse", 1], 50) == 40.0
    assert seconds_at(found["guided", 0], 0) == 30 + 4.0
    assert seconds_at(found["guided", 1], 100) == 80 + 100.0
    assert reached(found["guided", 0], 70.0) == (100, 30 + 40.0)
    assert reached(found["guided", 1], 70.0) == (50, 80 + 50.0)
    assert reached(found["simcse", 0], 70.1) is None


def test_tables_by_hand(rows, monkeypatch):
    monkeypatch.setattr(time_to_quality, "SECONDS", (20, 40, 110, 180))
    assert time_table("tiny").splitlines()[2:-2] == [
        "| SimCSE | 2 of 2 | 50 | ~30 |",
        "| Guided | 2 of 2 | 75 | ~100 |",
    ]
    assert curve_table("tiny").splitlines()[2:-2] == [
        "| ~SimCSE | 60.00 | 70.00 | 70.00 | 70.00 |",
        "| ~Guided |  |  | 60.50 | 71.00 |",
    ]
    assert time_table("none") == curve_table("none") == "Not run yet."


def test_what_never_comes_there_has_no_seconds(rows, results):
    record = {"study": "a", "method": "absent", "seed": 0, "steps": 10, "curve": [[10, 1.0]], "settings": {}}
    write_json(results / "a" / "absent-0.json", record | {"training_seconds": [[10, 3.0]]})
    assert "| Absent | 0 of 1 |  |  |" in time_table("tiny")
    assert "| Absent | 1.00 |" in curve_table("tiny")
