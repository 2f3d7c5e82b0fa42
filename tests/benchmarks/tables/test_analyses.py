from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.records import write_json
from benchmarks.tables import analyses

WEIGHTS = {
    "plain": {"lambda_1": 0.0, "lambda_2": 0.0},
    "sentence term": {"lambda_1": 0.95, "lambda_2": 0.0},
    "RepAL": {"lambda_1": 0.45, "lambda_2": 2.7},
}


def write(results: Path, encoder: str, analysis: str, **found: Any) -> None:
    record = {"encoder": encoder, "analysis": analysis, "weights": WEIGHTS, **found}
    write_json(results / "analyses" / f"{encoder}-{analysis}.json", record)


def rows(table: str) -> list[list[str]]:
    return [line[2:-2].split(" | ") for line in table.splitlines()[2:]]


def test_nothing_is_shown_before_it_was_run(results: Path) -> None:
    for table in (
        analyses.importance_table,
        analyses.redundancy_table,
        analyses.eigenvalue_table,
        analyses.frequency_table,
    ):
        assert table() == "Not run yet."


def test_importance_rows_by_hand(results: Path) -> None:
    values = {"plain": {"the": 1.0, "a": 3.0}, "sentence term": {"the": 0.5, "a": 2.0}, "RepAL": {"the": 0.2, "a": 3.5}}
    for encoder in ("own", "layers3"):
        write(results, encoder, "word_importance", rows=values)
    draws = [{row: {"ratio": 0.0, "importance": value + i} for row in WEIGHTS} for i, value in enumerate((4.0, 5.0))]
    write(results, "own", "overlap", draws=draws)
    table = analyses.importance_table()
    assert table.splitlines()[0] == '| encoder |  | lambda_1, lambda_2 | "the" | "a" | any word |'
    found = rows(table)
    assert [row[0] for row in found] == ["its first 3 layers (raw)"] * 3 + ["own pre-trained (raw)"] * 3
    assert found[3][1:] == ["plain", "0.00, 0.00", "1.00", "3.00", "5.00"]
    assert found[5][1:] == ["RepAL", "0.45, 2.70", "0.20 (-0.80)", "3.50 (+0.50)", "5.00 (+0.00)"]
    assert found[0][5:] == [""]  # its pairs were not drawn yet


def test_overlap_rows_by_hand(results: Path) -> None:
    draws = [
        {"plain": {"ratio": 10.0 + i}, "sentence term": {"ratio": 9.0}, "RepAL": {"ratio": 13.0 + 2 * i}}
        for i in range(3)
    ]
    write(results, "minilm", "overlap", draws=draws)
    found = rows(analyses.redundancy_table())
    assert found[0][1:] == ["plain", "0.00, 0.00", "11.00 ± 1.00", ""]
    assert found[1][1:] == ["sentence term", "0.95, 0.00", "9.00 ± 0.00", "-1.00, -2.00, -3.00"]
    assert found[2][1:] == ["RepAL", "0.45, 2.70", "15.00 ± 2.00", "+3.00, +4.00, +5.00"]


def test_eigenvalue_rows_by_hand(results: Path) -> None:
    one = {"best_spearman_at": 3.6, "best_spearman": 66.0}
    other = {"least_eigenvalue_at": 1.0, "spearman_at_least_eigenvalue": 60.5}
    curves = [{"lambda_1": value, "sets": {"sts12": one | other, "stsb_test": one | other}} for value in (0.0, 0.45)]
    write(results, "minilm", "eigenvalues", curves=curves)
    table = analyses.eigenvalue_table()
    assert table.splitlines()[0] == "| encoder | lambda_1 | sts12 | stsb_test |"
    assert [row[1:] for row in rows(table)] == [[value, *["3.6; 1.0 (-5.50)"] * 2] for value in ("0.00", "0.45")]


def test_frequency_row_by_hand(results: Path) -> None:
    record = {"tokens": 30522, "occurrences": 10**9, "count_at_rank": {"1": 7000, "1000": 20}}
    record |= {"count_at_share": {"0.25": 8}, "never_seen": 2994, "least_half_percent": 0.84}
    write_json(
        results / "analyses" / "bookcorpus-frequencies.json",
        record | {"labelled_low": 16758, "labelled_low_percent": 1.19},
    )
    titles, _, row = analyses.frequency_table().splitlines()
    assert titles == (
        "| tokens | occurrences | rank 1 | rank 1,000 | at 25 % | never seen | share of the rarer half "
        "| labelled low-frequency | their share |"
    )
    assert row == "| 30,522 | 1,000,000,000 | 7,000 | 20 | 8 | 2,994 | 0.84 % | 16,758 | 1.19 % |"
