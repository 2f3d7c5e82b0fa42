from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.records import write_json
from benchmarks.tables import cost, methods
from benchmarks.tables.floors import KINDS


def write(results: Path, study: str, method: str, averages: list[float]) -> None:
    for seed, average in enumerate(averages):
        write_json(results / study / f"{method}-{seed}.json", {"method": method, "seed": seed, "average": average})


def test_rows_by_hand(results: Path) -> None:
    write(results, "foundation", "start", [50.0])
    write(results, "foundation", "simcse", [60.0, 62.0])
    write(results, "foundation", "dclr", [61.0, 65.0])
    write(results, "own_encoder_wiki", "simcse", [40.0])
    write(results, "own_encoder_wiki", "dclr-no-guide", [43.0])
    write(results, "own_encoder_better", "simcse", [50.0])
    write(results, "own_encoder_better", "dclr-no-guide", [54.0])
    floor = {"kind": "characters", "encoder": "", "text": "sts", "average": 67.0, "dev": 1.0, "scores": {}}
    write_json(results / "floors" / "characters-sts.json", floor)
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in methods.method_table("dclr").splitlines()[2:]}
    assert [*rows][:5] == ["| floor: TF-IDF of characters 3-5", "| start", "| SimCSE", "| DCLR", "| DCLR, no guide"]
    difference = "+6.00 [-6.71, +18.71]"  # 7 and 5; t = 12.706
    assert rows[f"| floor: {KINDS['characters']}"] == [
        "67.00 (1)",
        difference,
        "67.00 (1)",
        "",
        "",
        "",
        "67.00 (1)",
        "+17.00 |",
    ]
    assert rows["| start"] == ["50.00 (1)", "-11.00 [-23.71, +1.71]", *[""] * 5, " |"]
    assert rows["| SimCSE"] == ["61.00 ± 1.41 (2)", "", "", "", "40.00 (1)", "", "50.00 (1)", " |"]
    assert rows["| DCLR"] == ["63.00 ± 2.83 (2)", "+2.00 [-10.71, +14.71]", *[""] * 5, " |"]
    assert rows["| DCLR, no guide"] == ["", "", "", "", "43.00 (1)", "+3.00", "54.00 (1)", "+4.00 |"]


@pytest.mark.parametrize("label", [label for labels in methods.METHODS.values() for label in labels])
def test_a_row_has_a_source_for_each_encoder(label: str) -> None:
    layers, own, wiki, better = methods.sources_of(label)
    assert layers
    study = own.partition("/")[0]
    assert study == "own_encoder" or (study.startswith("mechanisms_") and study.endswith("_own"))
    assert wiki == (own.replace("own_encoder/", "own_encoder_wiki/") if study == "own_encoder" else "")
    assert better == wiki.replace("_wiki", "_better")


def test_costs_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("bare 2B rows", "mnrl, two columns", "simcse", "dclr", "dclr, table", "adcse", "encode", "repal")
    record = {
        "cases": {name: {"median_ms": 10.0 * place} for place, name in enumerate(names)},
        "batch": 64, "rounds": 3, "machine": "x", "revision": "y",
    }  # fmt: skip
    monkeypatch.setattr(cost, "newest_speed", lambda: record)

    def shown(table: str) -> list[str]:
        return [line.split(" | ")[0][2:] for line in table.splitlines()[2:] if line.startswith("|")]

    assert shown(methods.cost_table("dclr")) == ["mnrl, two columns", "simcse", "dclr", "dclr, table"]
    assert shown(methods.cost_table("repal")) == ["encode", "repal"]
    assert shown(cost.speed_table()) == [*names[1:]]
