"""What a practitioner asks: does it beat a floor, what does a step after it add, and with which weight."""

from __future__ import annotations

from typing import Any

from benchmarks.names import FITTED, UNSEEN
from benchmarks.tables.combinations import OWN
from benchmarks.tables.floors import noted, shown_floors
from benchmarks.tables.markdown import counted, difference, markdown_table, span, spread
from benchmarks.tables.post_processing import BOTH_TERMS, BY_GENRE, SENTENCE_TERM, fitted_on_text, refined
from benchmarks.tables.quality import ROWS, averages_as_trained

LIVING = "AdCSE, searched: no head, adversaries from features at 0.3"
FROZEN = "PaSeR, searched: frozen for 100 steps, at 3e-4"
BEST = "dclr-consert-views-no-guide"
LAYERS, OWN_NAME = "first three layers", "BERT-small trained here"
WHITENED_TERM = FITTED["whitened 256 + sentence term pooled"]

SOURCES = {
    "start": (ROWS["start"][0], "own_encoder/start"),
    "SimCSE": (ROWS["SimCSE"][0], "own_encoder/simcse"),
    **{label: (ROWS[label][0], f"own_encoder/{method}") for label, method in OWN.items()},
    LIVING: (ROWS[LIVING][0], "mechanisms_adversaries_own/features-3e-1"),
    FROZEN: (ROWS[FROZEN][0], "mechanisms_paser_own/frozen-100-3e-4"),
    "DCLR on ConSERT's views, no guide": (f"recipes/{BEST}", f"own_encoder/{BEST}"),
}
"""By label: the records on the first three layers, and on BERT-small trained here."""


def scores_after(source: str, step: str) -> dict[int, dict[str, Any]]:
    """Return the scores of a step after the weights of ``study/method ...``, by seed."""
    found = refined(source) | {
        seed: refined(source).get(seed, {}) | row for seed, row in fitted_on_text(source).items()
    }
    return {seed: row[step] for seed, row in found.items() if step in row}


def averages_after(source: str, step: str) -> dict[int, float]:
    """Return the seven-set average of each seed."""
    return {seed: row["average"] for seed, row in scores_after(source, step).items()}


def verdict_table() -> str:
    """Put every method beside the floors: seven sets on both encoders, as trained and with RepAL's sentence term."""
    rows = _floor_rows(0, 1)
    for label, sources in SOURCES.items():
        cells = [label]
        for source in sources:
            cells += [counted(averages_as_trained(source)), counted(averages_after(source, SENTENCE_TERM))]
        rows.append(cells)
    titles = [f"{name}{after}" for name in (LAYERS, OWN_NAME) for after in ("", f", {SENTENCE_TERM}")]
    return noted(markdown_table(("seven sets (seeds)", *titles), rows))


def same_step_table() -> str:
    """Compare DCLR on ConSERT's views with SimCSE, both with the same step after them, on both encoders.

    STS-B dev, the mean over its genres, is that of the former: what a user with labels would choose the step by.
    """
    sources = {label: SOURCES[label] for label in ("DCLR on ConSERT's views, no guide", "SimCSE")}
    titles = [f"{name}: {figure}" for name in (LAYERS, OWN_NAME) for figure in ("dev", "seven sets", "minus SimCSE")]
    rows = _floor_rows(1, 1)
    for step in ("plain", SENTENCE_TERM, BOTH_TERMS, BY_GENRE, *FITTED.values(), *UNSEEN.values()):
        cells = [step]
        for best, simcse in zip(*sources.values(), strict=True):
            ours, theirs = averages_after(best, step), averages_after(simcse, step)
            both = len(ours.keys() & theirs.keys())
            dev = [row["dev_by_genre"] for row in scores_after(best, step).values() if "dev_by_genre" in row]
            cells += [spread(dev), counted(ours), f"{difference(ours, theirs)} ({both})" if both else ""]
        if any(cells[1:]):
            rows.append(cells)
    return noted(markdown_table(("step after both (seeds)", *titles), rows))


def _floor_rows(before: int, after: int) -> list[list[str]]:
    """Return the floors of both encoders, with so many empty cells before and after each average."""
    floors = shown_floors("foundation"), shown_floors("own_encoder")
    rows = []
    for label in dict.fromkeys((*floors[0], *floors[1])):
        cells = [label]
        for found in floors:
            cells += [*[""] * before, f"{found[label]['average']:.2f}" if label in found else "", *[""] * after]
        rows.append(cells)
    return rows


def weights_table() -> str:
    """Tabulate the weights that STS-B dev tuned: lowest to highest, and over how many encoders."""
    methods = ("start", "simcse", *OWN.values(), "dclr-no-guide", BEST)
    layers = [*(sources for sources, _ in ROWS.values()), "recipes/dclr-no-guide", f"recipes/{BEST}"]
    groups = {LAYERS: layers, OWN_NAME: [f"own_encoder/{name}" for name in methods]}
    groups[f"{OWN_NAME}, Wikipedia's sentences"] = [f"own_encoder_wiki/{name}" for name in methods]
    columns = {
        f"{SENTENCE_TERM}: lambda_1": (SENTENCE_TERM, "lambda_1"),
        f"{WHITENED_TERM}: lambda_1": (WHITENED_TERM, "lambda_1"),
        f"{BOTH_TERMS}: lambda_1": (BOTH_TERMS, "lambda_1"),
        f"{BOTH_TERMS}: lambda_2": (BOTH_TERMS, "lambda_2"),
    }
    rows = []
    for name, sources in groups.items():
        cells = [name]
        for step, weight in columns.values():
            cells.append(span([row[weight] for source in sources for row in scores_after(source, step).values()]))
        rows.append(cells)
    return markdown_table(("encoders (how many)", *columns), rows)
