from pathlib import Path

import pytest

from benchmarks.records import write_json
from benchmarks.tables import floors


def write(results: Path, kind: str, encoder: str, text: str, average: float) -> None:
    row = {"kind": kind, "encoder": encoder, "text": text, "dev": 70.0, "average": average}
    row |= {"scores": {"sts12": 1.0, "stsb_test": 2.0}, "without_dev": {"average": average - 1}}
    write_json(results / "floors" / f"{encoder}-{kind}-{text}.json", row)


@pytest.fixture
def found(results):
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
def test_a_study_has_the_floors_of_its_encoder_and_text(found, study, averages):
    assert [row["average"] for row in floors.shown_floors(study).values()] == averages
