from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.records import write_json
from benchmarks.tables import floors


def write(results: Path, kind: str, encoder: str, text: str, average: float) -> None:
    row = {"kind": kind, "encoder": encoder, "text": text, "dev": 70.0, "average": average}
    row |= {"scores": {"sts12": 1.0, "stsb_test": 2.0}, "without_dev": {"average": average - 1}}
    write_json(results / "floors" / f"{encoder}-{kind}-{text}.json", row)


@pytest.fixture
def found(results: Path) -> Path:
    for encoder in ("minilm", "own", "better"):
        write(results, "mean", encoder, "", 10.0)
        for text in ("wiki", "sts"):
            write(results, "sif_removed", encoder, text, 20.0 + len(encoder) + len(text) / 10)
    for text in ("wiki", "sts"):
        write(results, "characters", "", text, 30.0 + len(text) / 10)
    return results


@pytest.mark.parametrize(
    ("study", "averages"),
    [
        ("foundation", [30.3, 26.3]),
        ("own_encoder", [30.3, 23.3]),
        ("own_encoder_wiki", [30.4, 23.4]),
        ("own_encoder_better", [30.3, 26.3]),
        ("dclr_data", [30.4, 26.4]),
        ("papers/simcse", [30.4]),  # its encoder's input embeddings were not scored
        ("a study without a configuration", []),
    ],
)
def test_a_study_has_the_floors_of_its_encoder_and_text(found: Path, study: str, averages: list[float]) -> None:
    assert [row["average"] for row in floors.shown_floors(study).values()] == averages


def test_floor_rows_by_hand(found: Path) -> None:
    lines = floors.floors_table().splitlines()
    titles = (
        "floor | input embeddings of | fitted on | STS-B dev | sts12 | stsb_test | seven sets | without pairs of dev"
    )
    assert lines[0] == f"| {titles} |"
    assert lines[2] == "| TF-IDF of characters 3-5 |  | STS | 70.00 | 1.00 | 2.00 | 30.30 | 29.30 |"
    assert lines[4] == "| mean of input embeddings | better own encoder |  | 70.00 | 1.00 | 2.00 | 10.00 | 9.00 |"
    assert lines[7] == "| mean of input embeddings | MiniLM |  | 70.00 | 1.00 | 2.00 | 10.00 | 9.00 |"
    assert len(lines) == 2 + 11


def test_nothing_is_shown_before_it_was_run(results: Path) -> None:
    assert floors.floors_table() == "Not run yet."
    assert floors.overlap_table() == "Not counted yet."
    assert floors.noted("| a |") == "| a |"


def test_overlap_rows_by_hand(results: Path) -> None:
    sets = {"sts15": {"pairs": 3000, "shared": 570}, "sickr_test": {"pairs": 4927, "shared": 0}}
    write_json(results / "pairs" / "stsb_dev.json", {"distinct": 1496, "in_tests": 1129, "sets": sets})
    rows = ["| sts15 | 3,000 | 570 | 19 % |", "| sickr_test | 4,927 | 0 | 0 % |"]
    assert floors.overlap_table().splitlines()[2:] == rows
    line = "STS-B dev chose here; 1,129 of its 1,496 distinct pairs are in the seven sets too."
    assert floors.noted("| a |") == f"| a |\n\n{line}"
