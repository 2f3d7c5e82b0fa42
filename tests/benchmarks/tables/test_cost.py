from __future__ import annotations

from pathlib import Path

from benchmarks.names import MNRL
from benchmarks.records import write_json
from benchmarks.speed_cases import TWO
from benchmarks.tables import cost


def test_speed_tables(results: Path) -> None:
    assert cost.speed_table() == cost.sweep_table("batch") == "Not measured yet."
    ratios = {TWO: {"median": 1.014}, MNRL: {"median": 0.987}}
    cases = {TWO: {"median_ms": 1, "peak_mib": None}, "simcse": {"median_ms": 12.4, "ratios": ratios, "peak_mib": 99.6}}
    whole = {"cases": cases, "batch": 64, "rounds": 15, "machine": "a machine", "revision": "abc"}
    others = [{"full": False}, {"device": "cuda"}]
    files = {"20260101-000000": {**whole, "rounds": 3}, "20260102-000000": whole}
    files |= {f"20260103-00000{i}": {**whole, **other, "rounds": 99} for i, other in enumerate(others)}
    files["batch-20260101-000000"] = {**whole, "sweep": "batch", "values": {"16": cases, "32": {}}}
    for name, record in files.items():
        write_json(results / "speed" / f"{name}.json", record)
    lines = cost.speed_table().splitlines()
    assert lines[2:] == [
        "| simcse | 12 | 1.01 x bare 2B rows | 0.99 x | 100 |",
        "",
        "Measured: 64 sentences a batch, at most 32 tokens, 15 rounds, a machine, revision abc.",
    ]
    assert cost.sweep_table("batch").splitlines()[3] == "| simcse | 12 ms, 100 MiB |  |"
    assert "sentences a batch" not in cost.sweep_table("batch")


def test_preparation_rows_by_hand(results: Path) -> None:
    def write(name: str, sentences: int, speed: float, **more: object) -> None:
        cases = {"loop": {"wall": {"per_second": speed, "x loop": [1.0, 1.0, 1.0]}}}
        record = {"sentences": sentences, "rounds": 2, "cases": cases, **more}
        write_json(results / "preparation" / name, record)

    write("2-masking.json", 3000, 20000.0, memory=[{"texts": 3000, "peak_MiB": 12.3}])
    write("1-masking.json", 3000, 1.0)
    write("0-masking.json", 500, 1500.4)
    write("3-counting.json", 7, 1.0)
    assert cost.preparation_table("masking").splitlines() == [
        "| masking | 500 sentences, rounds: 2 | 3,000 sentences, rounds: 2 |",
        "|---|---:|---:|",
        "| loop | 1,500/s (1.00 x) | 20,000/s (1.00 x) |",
        "",
        "Peak memory: 3,000 texts 12 MiB.",
    ]
