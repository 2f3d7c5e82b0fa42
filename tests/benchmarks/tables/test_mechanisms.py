from pathlib import Path
from typing import Any

import pytest

from benchmarks.records import write_json
from benchmarks.studies import named_study
from benchmarks.tables.mechanisms import mechanism_table
from benchmarks.tables.questions import QUESTIONS


def write(results: Path, source: str, seed: int, curve: dict[int, float], average: float | None, **more: Any) -> None:
    study, method = source.split("/")
    best = max(curve, key=lambda step: curve[step])
    record = {"method": method, "seed": seed, "curve": [[0, 1.0], *map(list, curve.items())], "best_step": best}
    write_json(results / study / f"{method}-{seed}.json", record | {"dev": curve[best], "average": average} | more)


def cells(table: str, label: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {label} |"))
    return [cell.strip() for cell in line[1:-1].split("|")[1:]]


@pytest.mark.parametrize("own", [False, True], ids=["layers", "own"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_rows_are_methods_of_studies(name, own):
    for source in " ".join(QUESTIONS[name](own).rows.values()).split():
        study, method = source.split("/")
        base = study.removesuffix("_own")
        twins = {study, base, f"{base}_own"} if base.startswith("mechanisms_") else {study}
        known = {"start"}.union(*(named_study(twin)["methods"] for twin in twins))  # some are of one encoder alone
        assert method in known, source


def test_differences_by_hand(results):
    for seed, dev in ((0, 70.0), (1, 71.0)):
        write(results, "foundation/simcse", seed, {25: dev, 50: dev - 1}, 60.0 + seed)
    times: dict[str, Any] = {"training_seconds": [[0, 0.1], [25, 10.0], [50, 25.0]]}
    times["without_dev"] = {"sts12": 1.0, "average": 58.5}
    write(results, "mechanisms_heads/simcse-head", 0, {25: 68.0, 50: 69.0}, 59.5, **times)
    times["without_dev"] = {}
    write(results, "mechanisms_heads/simcse-head", 1, {25: 67.5, 50: 68.0}, 59.5, **times)
    table = mechanism_table("heads", False)
    assert cells(table, "SimCSE")[1:5] == ["25, 25", "70.50 ± 0.71", "", "60.50 ± 0.71"]
    found = cells(table, "SimCSE with a head")
    assert found[1:3] == ["50, 50", "68.50 ± 0.71"]
    assert found[3] == "-2.00 [-14.71, +10.71]"  # differences -1 and -3: t of one degree of freedom is 12.71
    assert found[5] == "-1.00 [-7.35, +5.35]"
    assert found[6:] == ["58.50 (1)", "500"]
    assert cells(table, "SimCSE")[6:] == ["", ""]
    assert mechanism_table("heads", True) == "Not run yet."


def test_evaluations_of_the_warmup_do_not_count(results):
    unscored = {"without_dev": {"average": 49.0}}  # of step 25, as its seven sets
    write(results, "own_encoder/simcse", 0, {25: 66.0, 50: 65.0, 75: 65.5, 100: 65.2}, 50.0, **unscored)
    log = [[50, {"other/adversarial_loss": 9.0}], [100, {"at/adversarial_loss": 0.75, "at/labels_entropy": 0.5}]]
    method = "mechanisms_slt_fai_own/slt-fai-confusion"
    write(results, method, 0, {50: 65.0, 100: 65.6}, 52.0, log=log, without_dev={"average": 51.0})
    floor = {"kind": "characters", "encoder": "", "text": "sts", "dev": 78.0, "average": 68.0}
    write_json(results / "floors" / "a.json", floor | {"without_dev": {"average": 67.0}})
    table = mechanism_table("equilibrium", True)
    assert cells(table, "SimCSE")[1:7] == ["100", "65.20", "", "", "", ""]  # its seven sets are of step 25
    assert cells(table, "confusion")[1:8] == ["100", "65.60", "+0.40", "52.00", "", "51.00", "+0.25"]  # log: last
    shown = cells(table, "floor: TF-IDF of characters 3-5")
    assert shown[:7] == ["1", "", "78.00", "", "68.00", "", "67.00"]
    assert len(shown) == len(cells(table, "confusion"))
