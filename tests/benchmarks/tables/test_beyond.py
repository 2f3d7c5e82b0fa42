from __future__ import annotations

from pathlib import Path

from benchmarks.records import write_json
from benchmarks.tables import beyond


def test_rows_by_hand(results: Path) -> None:
    assert beyond.beyond_table() == "Not run yet."
    for encoder, row, seed, value in (
        ("study", "dclr", 0, 10.0),
        ("study", "dclr", 1, 12.0),
        ("own", "start", 0, 5.0),
        ("own", "SIF", 0, 4.0),
        ("", "TF-IDF", 0, 3.0),
    ):
        scores = dict.fromkeys(beyond.MEASURES, value)
        domains = {"one": scores, "two": dict.fromkeys(beyond.MEASURES, value + 2)}
        record = {"encoder": encoder, "row": row, "seed": seed, "domains": domains}
        write_json(
            results / "beyond" / f"{encoder}{row}{seed}.json", record | {"questions": {"map": value, "mrr": 1.0}}
        )
    lines = [line.strip("| ").split(" | ") for line in beyond.beyond_table().splitlines()[2:]]
    assert [line[:3] for line in lines] == [
        ["floor: TF-IDF", "1", "4.00"],
        ["floor: SIF of own pre-trained (raw)", "1", "5.00"],
        ["own pre-trained (raw)", "1", "6.00"],
        ["study/dclr", "2", "12.00 ± 1.41"],
    ]
    assert lines[-1][-2:] == ["11.00 ± 1.41", "1.00 ± 0.00"]
