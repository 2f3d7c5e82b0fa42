"""Tables of search: nDCG@10 of each row of seven collections, as the difference to the base model's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import product
from typing import Any

from benchmarks.records import records
from benchmarks.tables.render import Part, Runs, Table, lowest, number, of_texts
from benchmarks.tables.sources import BASE

COLLECTIONS = {
    "stackfaq": "StackFAQ",
    "med": "MED",
    "cran": "Cranfield",
    "cisi": "CISI",
    "pubmedqa": "PubMedQA",
    "npl": "NPL",
    "cacm": "CACM",
}
KEPT, MADE = "adapt, keep_index", ", queries made from documents"
ENCODERS = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"}


def rows_of(encoder: str, *names: str) -> Table:
    """Return the table of an encoder: its base model's nDCG@10, then the differences of rows to it."""

    def runs(**data: str) -> Runs:
        return tuple({"study": study, "encoder": encoder, **data} for study in ("retrieval", "search_choices"))

    of = {name: runs(data=name) for name in COLLECTIONS} | {"mean": runs()}
    rows: dict[str, Part] = {BASE: {"of": of, "metric": "rows/start/ndcg@10", "show": number("{:.2f}")}}
    for name in names:
        label = name.replace("start", BASE)
        rows[label] = {"of": of | {"lowest": runs()}, "metric": f"rows/{name}/difference"}
    titles = COLLECTIONS | {"mean": "mean"}
    columns = [(title, {"which": which, "show": number("{:+.2f}")}) for which, title in titles.items()]
    return Table("row", rows, [*columns, ("lowest", {"which": "lowest", "show": lowest("{:+.2f}")})])


BASELINES = rows_of("minilm", "BM25", "start + 0.3 BM25")
ADAPTED = {
    encoder: rows_of(
        encoder, "adapt", "adapt + 0.3 BM25", "adapt, refine_documents", f"adapt{MADE}", KEPT, f"{KEPT}{MADE}"
    )
    for encoder in ENCODERS
}

TOLERANCES = (0.0, 1.0, 2.0)
"""Standard errors by which the label-free score lets a transform be worse than the base model; ``adapt`` has 1."""
MAY_LOSE = 0.3
"""Points that a setting may lose on a collection to be chosen for another one."""


def chosen_gain(trials: Sequence[dict[str, float]], whitened: float, tolerance: float) -> float:
    """Return what the first transform of this strength gains that the score accepts; 0 if there is none."""
    accepted = (
        trial["difference"]
        for trial in trials
        if trial["whitened"] == whitened and trial["judge"] >= -tolerance * trial["error"]
    )
    return next(accepted, 0.0)


def chosen_on_the_others(found: Sequence[Sequence[dict[str, float]]]) -> list[float]:
    """Return the gain on each collection with the strength and tolerance that gain most on the mean of the others.

    A setting that loses more than MAY_LOSE on any of them comes after all that do not.
    """
    settings = product(sorted({trial["whitened"] for trial in found[0]}), TOLERANCES)
    gains = [[chosen_gain(trials, *setting) for trials in found] for setting in settings]
    chosen = []
    for left_out in range(len(found)):
        others = [[gain for place, gain in enumerate(of_setting) if place != left_out] for of_setting in gains]
        promise = [(min(one) >= -MAY_LOSE, statistics.mean(one)) for one in others]
        chosen.append(gains[max(range(len(gains)), key=promise.__getitem__)][left_out])
    return chosen


def regret_table() -> Table:
    """Return the table of how a choice without judgements compares with the best transform of each collection."""
    rows: dict[str, dict[str, str]] = {}
    for (encoder, called), name in product(ENCODERS.items(), ("adapt", KEPT)):
        found = [record for record in records("search_choices") if record["encoder"] == encoder]
        trials: list[Any] = [record["trials"][name] for record in found]
        best = statistics.mean(max(0.0, *(trial["difference"] for trial in of_one)) for of_one in trials)
        row = {"best transform": f"{best:+.2f}"}
        shipped = [record["rows"][name]["difference"] for record in found]
        for suffix, gains in (("", shipped), (", chosen on the others", chosen_on_the_others(trials))):
            mean = statistics.mean(gains)
            row |= {f"mean{suffix}": f"{mean:+.2f}", f"lowest{suffix}": f"{min(gains):+.2f}"}
            row[f"regret{suffix}"] = f"{best - mean:.2f}"
        rows[f"{name}, {called}"] = row
    return of_texts("row", rows)
