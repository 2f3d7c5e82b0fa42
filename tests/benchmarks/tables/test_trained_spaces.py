from __future__ import annotations

from pathlib import Path

from benchmarks.records import write_json
from benchmarks.tables import trained_spaces


def test_rows_by_hand(results: Path) -> None:
    assert trained_spaces.trained_space_table("study") == trained_spaces.level_table("study") == "Not run yet."
    for method, seed, value in (("dclr", 0, 0.1), ("dclr", 1, 0.3), ("start", 0, 0.5)):
        levels = {f"{name}_{level}": value for name in ("mean", "variance") for level in trained_spaces.LEVELS}
        space = {"alignment": value, "uniformity": -value, "separation": 0.25, "levels": levels}
        record = {"trained_in": "study", "method": method, "seed": seed, **space}
        record["in_batch"] = {"mean": value, "above": 100 * value}
        write_json(results / "trained_spaces" / f"study-{method}-{seed}.json", record)
    write_json(results / "trained_spaces" / "other.json", record | {"trained_in": "other"})
    assert trained_spaces.trained_space_table("study").splitlines()[2:] == [
        "| start | 1 | 0.50 | -0.50 | 0.25 | 0.50 | 50.00 |",
        "| dclr | 2 | 0.20 ± 0.14 | -0.20 ± 0.14 | 0.25 ± 0.00 | 0.20 ± 0.14 | 20.00 ± 14.14 |",
    ]
    assert trained_spaces.level_table("study").splitlines()[3] == f"| dclr | 2 |{' 0.20 / 0.200 |' * 5}"
