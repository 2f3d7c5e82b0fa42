"""Do the mechanisms work? One table for each question of the mechanisms_*.toml studies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.tables.floors import noted, shown_floors
from benchmarks.tables.markdown import counted, difference, markdown_table, spread
from benchmarks.tables.quality import row_records
from benchmarks.tables.questions import QUESTIONS, Figure, Question, decoupled, heads


def mechanism_table(name: str, own: bool) -> str:
    """Tabulate a question: dev and seven sets, mean and spread, and the difference from the first row, seed by seed.

    Floors stand first. Older records have no score without the pairs of STS-B dev.

    Args:
        name: a key of QUESTIONS.
        own: whether on the encoder that ``benchmarks/pretrain_encoder.py`` makes, else on the first three layers.
    """
    question = QUESTIONS[name](own)
    found = {label: row_records(sources) for label, sources in question.rows.items()}
    found = {label: rows for label, rows in found.items() if rows}
    first = next(iter(question.rows))
    if not found.keys() - {first} or first not in found:
        return "Not run yet."
    minus = f"minus {first}"
    titles = ("", "seeds", "best step", "STS-B dev", minus, "seven sets", minus, "without pairs of dev")
    lines = []
    for label, floor in shown_floors("own_encoder" if own else "foundation").items():
        scores = floor["dev"], floor["average"], floor["without_dev"]["average"]
        dev, average, without = (f"{score:.2f}" for score in scores)
        lines.append([label, "1", "", dev, "", average, "", without, *[""] * len(question.figures)])
    lines += [_cells(label, rows, found[first], question) for label, rows in found.items()]
    return noted(markdown_table((*titles, *question.figures), lines))


EXACT = ("plain", "sentence term", "RepAL", "RepAL pooled")


def exact_repal_table(own: bool) -> str:
    """Tabulate RepAL after the trainings of two questions: seven sets, exact and pooled, tuned on STS-B dev.

    Args:
        own: as in ``mechanism_table``.
    """
    rows = []
    for question in (heads(own), decoupled(own)):
        for label, sources in question.rows.items():
            of_seed = {record["seed"]: record.get("post_processing", {}) for record in row_records(sources)}
            found = {seed: variants for seed, variants in of_seed.items() if variants.keys() >= set(EXACT)}
            if not found or label in (row[0] for row in rows):
                continue
            values = {name: {seed: found[seed][name]["average"] for seed in found} for name in EXACT}
            cells = [spread(list(scores.values())) for scores in values.values()]
            rows.append([label, str(len(found)), *cells, difference(values["RepAL"], values["RepAL pooled"])])
    if not rows:
        return "Not run yet."
    return markdown_table(("after", "seeds", *EXACT, "exact minus pooled"), rows)


def _cells(
    label: str, rows: Sequence[dict[str, Any]], first: Sequence[dict[str, Any]], question: Question
) -> list[str]:
    cells = [label, str(len(rows)), ", ".join(str(question.best_step(record)) for record in rows)]
    for score in (question.dev, question.average):
        ours, theirs = _by_seed(score, rows), _by_seed(score, first)
        cells += [counted(ours, of=len(rows)), difference(ours, theirs) if rows is not first else ""]
    cells.append(counted(_by_seed(question.average_without_dev, rows), of=len(rows)))
    for figure, written in question.figures.values():
        values = [value for record in rows if (value := figure(record)) is not None]
        cells.append(written.format(statistics.mean(values)) if values else "")
    return cells


def _by_seed(score: Figure, rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    return {record["seed"]: value for record in rows if (value := score(record)) is not None}
