from __future__ import annotations

from pathlib import Path

from benchmarks.records import write_json
from benchmarks.tables import quality


def test_floors_stand_first_and_are_compared_with_every_seed(results: Path) -> None:
    for method, seed, average in (("simcse", 0, 60.0), ("simcse", 1, 62.0), ("dclr", 1, 63.0), ("start", 0, 50.0)):
        record = {"method": method, "seed": seed, "steps": int(method != "start"), "best_step": 25, "dev": 70.0}
        record |= {"scores": {"stsb_test": 1.0}, "average": average}
        write_json(results / "foundation" / f"{method}-{seed}.json", record)
    floor = {"kind": "characters", "encoder": "", "text": "sts", "dev": 65.0, "scores": {"stsb_test": 2.0}}
    write_json(results / "floors" / "characters-sts.json", floor | {"average": 64.0})
    assert quality.main_table().splitlines()[2:] == [
        "| floor: TF-IDF of characters 3-5 | 1 |  | 65.00 | 2.00 | 64.00 | +3.00 [-9.71, +15.71] |  |",
        "| start | 1 | 25 | 70.00 | 1.00 | 50.00 |  |  |",
        "| SimCSE | 2 | 25, 25 | 70.00 ± 0.00 | 1.00 ± 0.00 | 61.00 ± 1.41 |  |  |",
        "| DCLR | 1 | 25 | 70.00 | 1.00 | 63.00 | +1.00 | +1.90 |",
    ]
    assert quality.study_table("foundation").splitlines()[2:4] == [
        "| floor: TF-IDF of characters 3-5 | 1 |  | 65.00 | 2.00 | 64.00 |",
        "| start | 1 | 25 | 70.00 | 1.00 | 50.00 |",
    ]


def test_a_study_of_dev_alone_has_no_test_columns(results: Path) -> None:
    record = {"method": "a", "seed": 0, "steps": 1, "best_step": 1, "dev": 70.0, "scores": {}, "average": None}
    write_json(results / "search" / "a-0.json", record)
    write_json(results / "pairs" / "stsb_dev.json", {"distinct": 2, "in_tests": 1})
    floor = {"kind": "characters", "encoder": "", "text": "sts", "dev": 65.0, "scores": {"stsb_test": 2.0}}
    write_json(results / "floors" / "characters-sts.json", floor | {"average": 64.0})
    assert quality.study_table("search").splitlines()[2:] == [
        "| floor: TF-IDF of characters 3-5 | 1 |  | 65.00 |",
        "| a | 1 | 1 | 70.00 |",
    ]


def test_other_peoples_methods_have_their_names() -> None:
    rows = quality.study_rows("baselines")
    assert list(rows) == ["start", "SimCSE", "TSDAE", "Contrastive Tension", "GISTEmbed"]
    assert rows["GISTEmbed"] == ("baselines/gist", None)
