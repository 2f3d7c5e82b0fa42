from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.names import FITTED
from benchmarks.records import write_json
from benchmarks.tables import verdict


def write(results: Path, study: str, method: str, averages: list[float], first: int = 0) -> None:
    for seed, average in enumerate(averages, first):
        variants = {
            "sentence term pooled": {"average": average + 2, "dev_by_genre": 70.0, "lambda_1": 0.1 * seed},
            "RepAL pooled": {"average": average + 1, "dev_by_genre": 71.0, "lambda_1": 0.5, "lambda_2": float(seed)},
        }
        variants["plain"] = {"average": average, "dev_by_genre": 69.0}
        record = {"method": method, "seed": seed, "average": average, "post_processing": variants}
        write_json(results / study / f"{method}-{seed}.json", record)


@pytest.fixture
def found(results: Path) -> Path:
    write(results, "foundation", "simcse", [60.0, 61.0])
    write(results, "more_seeds", "simcse", [65.0], first=3)
    write(results, "recipes", verdict.BEST, [66.0, 68.0])
    write(results, "own_encoder", "simcse", [50.0])
    write(results, "own_encoder_wiki", "simcse", [40.0, 41.0])
    return results


def test_verdict_rows_by_hand(found: Path) -> None:
    row = {"kind": "characters", "encoder": "", "text": "sts", "average": 67.0, "dev": 1.0, "scores": {}}
    write_json(found / "floors" / "characters-sts.json", row)
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in verdict.verdict_table().splitlines()[2:]}
    assert next(iter(rows)) == "| floor: TF-IDF of characters 3-5"
    assert rows["| floor: TF-IDF of characters 3-5"] == ["67.00", "", "67.00", " |"]
    assert rows["| SimCSE"] == ["62.00 ± 2.65 (3)", "64.00 ± 2.65 (3)", "50.00 (1)", "52.00 (1) |"]
    assert rows["| DCLR on ConSERT's views, no guide"] == ["67.00 ± 1.41 (2)", "69.00 ± 1.41 (2)", "", " |"]
    assert rows["| PaSeR, searched: no MLM, decoder at 1e-3"] == ["", "", "", " |"]


def test_the_same_step_is_behind_both(found: Path) -> None:
    encoders = {
        f"recipes/{verdict.BEST}-0": {
            "english, general fit": {name: {"average": 69.0, "dev_by_genre": 9.0} for name in FITTED}
        }
    }
    write_json(found / "whitening" / "a.json", {"encoders": encoders})
    floor = {"kind": "sif_removed", "encoder": "own", "text": "sts", "dev": 1.0, "average": 61.0}
    write_json(found / "floors" / "own.json", floor)
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in verdict.same_step_table().splitlines()[2:]}
    assert rows["| floor: SIF of input embeddings, first direction removed"] == ["", "", "", "", "61.00", " |"]
    assert rows["| sentence term pooled"][:3] == ["70.00 ± 0.00", "69.00 ± 1.41 (2)", "+6.50 [+0.15, +12.85] (2)"]
    assert rows["| sentence term pooled"][3:] == ["", "", " |"]
    assert rows["| whitened on the text"][:3] == ["9.00", "69.00 (1)", ""]  # SimCSE has no such record


def test_weights_by_hand(found: Path) -> None:
    rows = [line.split(" | ") for line in verdict.weights_table().splitlines()[2:]]
    assert rows[0][:2] == ["| MiniLM's layers", "0.00 to 0.30 (5)"]
    assert rows[0][-1] == "0.00 to 3.00 (5) |"
    assert rows[1][1] == "0.00 to 0.00 (1)"
    assert rows[2] == [
        "| own encoder, Wikipedia's sentences",
        "0.00 to 0.10 (2)",
        "",
        "0.50 to 0.50 (2)",
        "0.00 to 1.00 (2) |",
    ]
