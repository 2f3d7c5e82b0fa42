"""Tables of search: nDCG@10 of each row of seven collections, as the difference to the base model's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from benchmarks.records import records
from benchmarks.studies import KEPT, named_study
from benchmarks.tables.render import Part, Runs, Sentence, Table, lowest, number, of_texts
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
MADE = ", queries made from documents"
ENCODERS = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"}


def rows_of(encoder: str, rows: Mapping[str, str], study: str) -> Table:
    """Return the table of an encoder: its base model's nDCG@10, then the differences of rows to it.

    Args:
        encoder: in the records.
        rows: names in the records by label.
        study: that has them.
    """

    def runs(**data: str) -> Runs:
        return ({"study": study, "encoder": encoder, **data},)

    of = {name: runs(data=name) for name in COLLECTIONS} | {"mean": runs()}
    parts: dict[str, Part] = {BASE: {"of": of, "metric": "rows/start/ndcg@10", "show": number("{:.2f}")}}
    for label, name in rows.items():
        parts[label] = {"of": of | {"lowest": runs()}, "metric": f"rows/{name}/difference"}
    titles = {**COLLECTIONS, "mean": "mean"}
    columns = [(title, {"which": which, "show": number("{:+.2f}")}) for which, title in titles.items()]
    return Table("row", parts, [*columns, ("lowest", {"which": "lowest", "show": lowest("{:+.2f}")})])


BASELINES = rows_of(
    "minilm", {"BM25": "BM25", "both, RRF": "start, RRF", "both, one weight": "start + BM25, 0.2"}, "hybrid"
)
_SHOWN = {"mean": number("{:+.1f}"), "low": lowest("{:+.1f}")}
HEADLINE = Sentence(
    "**Search, no judgements: `st-extras adapt-search` with BM25 lifts nDCG@10 of all-MiniLM-L6-v2 by {ours_mean} "
    "points on the mean of seven collections (lowest {ours_low}); the usual rank fusion (RRF) with BM25 by {rrf_mean} "
    "(lowest {rrf_low}).**",
    {
        f"{name}_{of}": {
            "of": ({"study": "hybrid", "encoder": "minilm"},),
            "metric": f"rows/{row}/difference",
            "show": show,
        }
        for name, row in {"ours": "adapt + BM25, 0.2", "rrf": "start, RRF"}.items()
        for of, show in _SHOWN.items()
    },
)
_ADAPTED = {
    "adapt-search": "adapt",
    f"adapt-search{MADE}": f"adapt{MADE}",
    "adapt-search --keep-index": KEPT,
    f"adapt-search --keep-index{MADE}": f"{KEPT}{MADE}",
}
ADAPTED = {encoder: rows_of(encoder, _ADAPTED, "search_choices") for encoder in ENCODERS}
_HYBRID = {
    "BM25 alone": "BM25",
    "both, RRF": "start, RRF",
    "both, DBSF": "start, DBSF",
    "both, min-max": "start, min-max",
    "base model + BM25": "start + BM25, 0.2",
    "adapt-search": "adapt",
    "adapt-search and BM25, RRF": "adapt, RRF",
    "**adapt-search + BM25**": "adapt + BM25, 0.2",
    "adapt-search + BM25, weight from documents": "adapt + BM25, 0.2, weight from documents",
    "adapt-search + BM25, only among the encoder's first 100": "adapt + BM25, 0.2, encoder's first 100",
    "adapt-search --keep-index": KEPT,
    "adapt-search --keep-index + BM25": f"{KEPT} + BM25, 0.2",
}
_BESIDE = {"base model + BM25": "start", "adapt-search + BM25": "adapt", "adapt-search --keep-index + BM25": KEPT}
HYBRID = {encoder: rows_of(encoder, _HYBRID, "hybrid") for encoder in ENCODERS}


def share_table() -> Table:
    """Return the table of shares of BM25: mean and lowest gain of each, and of one chosen on the other collections."""
    rows: dict[str, dict[str, str]] = {}
    for (encoder, called), (label, name) in product(ENCODERS.items(), _BESIDE.items()):
        found = [record["rows"] for record in records("hybrid") if record["encoder"] == encoder]
        gains = {
            share: [of_one[f"{name} + BM25, {share}"]["difference"] for of_one in found]
            for share in named_study("hybrid")["shares"]
        }
        if not found:
            continue
        chosen = best_on_the_others(list(gains.values()))
        columns = {f"share {share}": values for share, values in gains.items()} | {"chosen on the others": chosen}
        rows[f"{label}, {called}"] = {
            title: f"{statistics.mean(values):+.2f} ({min(values):+.2f})" for title, values in columns.items()
        }
    return of_texts("mean (lowest)", rows)


_LONG = {"long-pubmedqa": "PubMedQA, joined", "long-cran": "Cranfield, joined"}
_CUT = {
    "whole + BM25": "start + BM25",
    "80 words, step 60 + BM25": "80 words, step 60 + BM25",
    "**110 words, step 80 + BM25**": "110 words, step 80 + BM25",
    "the same, halfway to the mean": "110 words, step 80, mean + BM25",
    "150 words, step 110 + BM25": "150 words, step 110 + BM25",
}


def passages_table() -> Table:
    """Return the table of passages: what cutting long documents gains on collections of short and of long ones."""
    rows: dict[str, dict[str, str]] = {}
    for record in records("passages"):
        name = record["collection"]
        found = {"words": f"{record['words']:.0f}", "cut": f"{record['longer']:,} of {record['documents']:,}"}
        found["base model"] = f"{record['rows']['start']['ndcg@10']:.2f}"
        found |= {label: f"{record['rows'][row]['difference']:+.2f}" for label, row in _CUT.items()}
        rows[(COLLECTIONS | _LONG)[name]] = found
    return of_texts("collection", rows)


def stems_table() -> Table:
    """Return the table of English stems in BM25: nDCG@10 without them, and how much it changes with them."""
    rows: dict[str, dict[str, str]] = {}
    for record in records("passages"):
        row: dict[str, str] = {}
        for label, name in {"BM25 alone": "BM25", "base model + BM25": "start + BM25"}.items():
            without, stems = (record["rows"][found]["ndcg@10"] for found in (name, f"{name}, english"))
            row |= {label: f"{without:.2f}", f"{label}, stems": f"{stems - without:+.2f}"}
        rows[(COLLECTIONS | _LONG)[record["collection"]]] = row
    return of_texts("collection", rows)


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


def best_on_the_others(gains: Sequence[Sequence[float]]) -> list[float]:
    """Return the gain on each collection with the setting that gains most on the mean of the others.

    A setting that loses more than MAY_LOSE on any of them comes after all that do not.

    Args:
        gains: of each setting, on each collection.
    """
    chosen = []
    for left_out in range(len(gains[0])):
        others = [[gain for place, gain in enumerate(of_setting) if place != left_out] for of_setting in gains]
        promise = [(min(one) >= -MAY_LOSE, statistics.mean(one)) for one in others]
        chosen.append(gains[max(range(len(gains)), key=promise.__getitem__)][left_out])
    return chosen


def chosen_on_the_others(found: Sequence[Sequence[dict[str, float]]]) -> list[float]:
    """Return the gain on each collection with the strength and tolerance that are best on the others."""
    settings = product(sorted({trial["whitened"] for trial in found[0]}), TOLERANCES)
    return best_on_the_others([[chosen_gain(trials, *setting) for trials in found] for setting in settings])


def regret_table() -> Table:
    """Return the table of how a choice without judgements compares with the best transform of each collection."""
    rows: dict[str, dict[str, str]] = {}
    commands = {"adapt-search": "adapt", "adapt-search --keep-index": KEPT}
    for (encoder, called), (command, name) in product(ENCODERS.items(), commands.items()):
        found = [record for record in records("search_choices") if record["encoder"] == encoder]
        trials: list[Any] = [record["trials"][name] for record in found]
        best = statistics.mean(max(0.0, *(trial["difference"] for trial in of_one)) for of_one in trials)
        row = {"best transform": f"{best:+.2f}"}
        shipped = [record["rows"][name]["difference"] for record in found]
        for suffix, gains in (("", shipped), (", chosen on the others", chosen_on_the_others(trials))):
            mean = statistics.mean(gains)
            row |= {f"mean{suffix}": f"{mean:+.2f}", f"lowest{suffix}": f"{min(gains):+.2f}"}
            row[f"regret{suffix}"] = f"{best - mean:.2f}"
        rows[f"{command}, {called}"] = row
    return of_texts("row", rows)
