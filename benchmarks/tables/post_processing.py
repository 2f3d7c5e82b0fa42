"""Scores after post-processing: RepAL and whitening behind trained and untrained encoders."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.names import FITTED, UNSEEN
from benchmarks.records import records
from benchmarks.tables.floors import KINDS, SHOWN, floor, noted, shown_floors
from benchmarks.tables.markdown import counted, difference, markdown_table, spread
from benchmarks.tables.quality import ROWS, Rows, row_records

Variants = dict[str, dict[str, Any]]
"""Scores of each post-processing variant by its name in ``benchmarks.variants``."""

SENTENCE_TERM = "sentence term pooled"
BOTH_TERMS = "RepAL pooled"
BY_GENRE = "RepAL pooled, by genre"
WHITENED = "whitened 256"
REPAL_ROWS = (
    "plain",
    "centred",
    "corpus term",
    "sentence term",
    "RepAL",
    BOTH_TERMS,
    WHITENED,
    "whitened 256 + RepAL",
)


def repal_table() -> str:
    """Tabulate seven-set averages of RepAL and whitening, a column for each encoder and kind of fit."""
    encoders: dict[str, dict[str, Variants]] = {}
    for record in records("repal"):
        encoders |= record.get("encoders", {})
    columns = {
        f"{name}, {fit} fit": found[f"english, {fit} fit"]
        for name, found in encoders.items()
        for fit in ("target", "general")
        if f"english, {fit} fit" in found
    }
    rows = _floor_rows(list(columns))
    rows += [
        [row, *(f"{found[row]['average']:.2f}" if row in found else "" for found in columns.values())]
        for row in REPAL_ROWS
    ]
    return noted(markdown_table(("variant", *columns), rows))


def _floor_rows(columns: list[str]) -> list[list[str]]:
    """Return the floors for the columns of ``repal_table``: fitted on the text of the sets, or on Wikipedia."""
    rows = []
    for kind in SHOWN:
        found = [floor(kind, "minilm", "sts" if "target" in column else "wiki") for column in columns]
        if any(found):
            rows.append([f"floor: {KINDS[kind]}", *(f"{row['average']:.2f}" if row else "" for row in found)])
    return rows


def refined_table(shown: Rows = ROWS, study: str = "foundation") -> str:
    """Tabulate RepAL after each method: seven-set averages over the seeds with records, (n) if a variant has fewer.

    Args:
        shown: the rows.
        study: whose floors stand first.
    """
    found = {label: refined(sources) for label, (sources, _) in shown.items()}
    found = {label: rows for label, rows in found.items() if rows}
    columns = ("plain", "RepAL", SENTENCE_TERM, BOTH_TERMS, BY_GENRE, WHITENED, *UNSEEN.values())
    named = [name for name in columns if any(averages(rows, name) for rows in found.values())]
    gains = (f"{SENTENCE_TERM}, minus plain", f"{BOTH_TERMS}, minus plain")
    lines = [
        [label, "1", f"{row['average']:.2f}", *[""] * (len(named) + 2)] for label, row in shown_floors(study).items()
    ]
    for label, rows in found.items():
        cells = [label, str(len(rows))]
        cells += [counted(averages(rows, variant), of=len(rows)) for variant in named]
        plain = averages(rows, "plain")
        cells += [difference(averages(rows, variant), plain) for variant in (SENTENCE_TERM, BOTH_TERMS)]
        lambdas = (statistics.mean(row[BOTH_TERMS][f"lambda_{number}"] for row in rows.values()) for number in (1, 2))
        cells.append(", ".join(f"{mean:.2f}" for mean in lambdas))
        lines.append(cells)
    return noted(markdown_table(("after", "seeds", *named, *gains, "its lambdas"), lines))


def whitening_table() -> str:
    """Compare no whitening with whitening on the training text: seven-set averages, and STS-B dev for the choice.

    Beside it the same text without the test sentences, where a record has it.
    """
    whitened = "whitened 256 + sentence term pooled"
    variants = ("plain", SENTENCE_TERM, *FITTED)
    grid = sorted(grid_on_text().items())
    unseen = {source: refined(source) for source, _ in grid}
    kept = [name for name in UNSEEN.values() if any(averages(rows, name) for rows in unseen.values())]
    dev = (f"{SENTENCE_TERM}, STS-B dev", f"{FITTED[whitened]}, STS-B dev")
    titles = ("plain", SENTENCE_TERM, *FITTED.values(), *kept, *dev)
    found = {}
    for name, study in (("all-MiniLM-L6-v2", "foundation"), ("BERT-small trained here", "own_encoder")):
        for label, row in shown_floors(study).items():
            found[label if "TF-IDF" in label else f"{label}, {name}"] = row
    lines = [[label, "1", f"{row['average']:.2f}", *[""] * (len(titles) - 1)] for label, row in found.items()]
    for source, rows in grid:
        cells = [source, str(len(rows)), *(spread(list(averages(rows, variant).values())) for variant in variants)]
        cells += [spread(list(averages(unseen[source], name).values())) for name in kept]
        cells += [spread([row[variant]["stsb_dev"] for row in rows.values()]) for variant in (SENTENCE_TERM, whitened)]
        lines.append(cells)
    return noted(markdown_table(("encoder", "seeds", *titles), lines))


def without_dev_table() -> str:
    """Tabulate each variant on all pairs of the seven sets, and without the pairs that STS-B dev, which chose, holds.

    Encoders are named STUDY/METHOD-SEED, or as ``benchmarks.repal grid`` knows them.
    """
    lines = []
    for source, rows in _by_source("repal_pairs", "english, target fit").items():
        for variant in next(iter(rows.values())):
            cells = [source, str(len(rows)), variant]
            for figure in ("average", "without_dev"):
                scores, plain = ({seed: row[name][figure] for seed, row in rows.items()} for name in (variant, "plain"))
                cells += [spread(list(scores.values())), "" if variant == "plain" else difference(scores, plain)]
            lines.append(cells)
    titles = ("encoder", "seeds", "variant", "seven sets", "minus plain", "without pairs of dev", "minus plain")
    return markdown_table(titles, lines, left=(0, 2)) if lines else "Not run yet."


def averages(rows: dict[int, Variants], variant: str) -> dict[int, float]:
    """Return a variant's seven-set average for each seed that has it."""
    return {seed: row[variant]["average"] for seed, row in rows.items() if variant in row}


def refined(sources: str) -> dict[int, Variants]:
    """Return the scores after the weights of ``study/method ...`` for each seed: of the record, else of the grid."""
    grid, found = target_grid(), {}
    for record in row_records(sources):
        own = record.get("post_processing", {})
        complete = own and all("dev_by_genre" in row for row in own.values())  # one early record lacks these
        found[record["seed"]] = own if complete else grid.get(record["method"], {}).get(record["seed"], own)
    return {seed: rows for seed, rows in found.items() if rows}


def target_grid() -> dict[str, dict[int, Variants]]:
    """Return the scores of ``benchmarks.repal grid``, target fit, by method and seed (encoders named METHOD-SEED)."""
    found: dict[str, dict[int, Variants]] = {}
    renamed = {"minilm-3-mean": "start-0", "simcse": "simcse-0"}  # the names in the study of RepAL itself
    for folder in ("repal", "repal_trained"):
        for record in records(folder):
            for name, fits in record.get("encoders", {}).items():
                if folder == "repal" and name not in renamed:
                    continue
                method, _, seed = renamed.get(name, name).rpartition("-")
                rows = found.setdefault(method, {}).setdefault(int(seed), {})
                for variant, row in fits["english, target fit"].items():
                    rows[variant] = rows.get(variant, {}) | row  # a later run may add figures to a variant
    return found


def grid_on_text() -> dict[str, dict[int, Variants]]:
    """Return the scores of ``benchmarks.repal grid`` with the training text as corpus, by STUDY/METHOD and seed."""
    return _by_source("whitening", "english, general fit")


def _by_source(folder: str, fit: str) -> dict[str, dict[int, Variants]]:
    """Return the scores of a folder of records whose encoders are named STUDY/METHOD-SEED, by STUDY/METHOD and seed."""
    found: dict[str, dict[int, Variants]] = {}
    renamed = {"minilm-3-mean": "foundation/start-0", "minilm": "minilm-0"}
    for record in records(folder):
        for name, fits in record["encoders"].items():
            source, _, seed = renamed.get(name, name).rpartition("-")
            found.setdefault(source, {})[int(seed)] = fits[fit]
    return found


def fitted_on_text(sources: str) -> dict[int, Variants]:
    """Return the scores of the variants in FITTED for each seed, under the names that FITTED gives them."""
    grid = grid_on_text()
    by_seed = {seed: rows for source in sources.split() for seed, rows in grid.get(source, {}).items()}
    return {seed: {label: rows[variant] for variant, label in FITTED.items()} for seed, rows in by_seed.items()}
