"""Tables of the study of search: nDCG@10 of each row, as the difference to the encoder as it is."""

from __future__ import annotations

import statistics
from collections.abc import Container, Sequence
from itertools import product
from typing import Any

from benchmarks.names import KEPT
from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table

COLLECTIONS = {
    "stackfaq": "StackFAQ",
    "med": "MED",
    "cran": "Cranfield",
    "cisi": "CISI",
    "pubmedqa": "PubMedQA",
    "npl": "NPL",
    "cacm": "CACM",
}
_START = "start"
BASELINES = (_START, "BM25", "start + 0.3 BM25", "start and BM25, fused by ranks")
"""The rows that change no embedding."""
MADE = ", queries made from documents"
ADAPTED = (_START, "adapt", "adapt + 0.3 BM25", "adapt, refine_documents", KEPT, f"adapt{MADE}", f"{KEPT}{MADE}")
"""What ``adapt`` chooses for a search."""
ENCODERS = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2", "layers3": "its first three layers"}
TOLERANCES = (0.0, 1.0, 2.0)
"""Standard errors by which the judge lets a step be worse than the start; ``adapt`` has 1."""
_MAY_LOSE = 0.3


def search_table(encoder: str, chosen: Container[str] | None = None) -> str:
    """Tabulate the rows: the start's nDCG@10, then differences to it, their mean over the collections and the lowest.

    Args:
        encoder: by its name in the records.
        chosen: which rows to show. None: all.
    """
    found: dict[str, dict[str, Any]] = {}
    for study in ("retrieval", "search_choices"):
        for record in records(study, f"{encoder}-*"):
            found[record["collection"]] = found.get(record["collection"], {}) | record["rows"]
    shown = [name for name in COLLECTIONS if name in found]
    if not shown:
        return "Not run yet."
    lines = []
    for row in found[shown[0]]:
        scores = [found[name][row]["ndcg@10" if row == _START else "difference"] for name in shown]
        if row == _START:
            cells = [*(f"{score:.2f}" for score in (*scores, statistics.mean(scores))), ""]
        else:
            cells = [f"{score:+.2f}" for score in (*scores, statistics.mean(scores), min(scores))]
        if chosen is None or row in chosen:
            lines.append([row, *cells])
    return markdown_table(("row", *(COLLECTIONS[name] for name in shown), "mean", "lowest"), lines)


def regret_table() -> str:
    """Tabulate how the choice without judgements compares with the best step of a collection, and with others.

    A setting is a strength of whitening and a tolerance of the judge. For each collection, the one is taken that gains
    most on the mean of the six others, if there is one that loses no more than 0.3 on any of them.
    """
    lines = []
    for name, (encoder, called) in product(("adapt", KEPT), ENCODERS.items()):
        cells_of = records("search_choices", f"{encoder}-*")
        found = [record["trials"][name] for record in cells_of]
        if not found:
            continue
        best = [max(0.0, *(trial["difference"] for trial in trials)) for trials in found]
        settings = list(product(sorted({trial["whitened"] for trial in found[0]}), TOLERANCES))
        gains = {setting: [chosen_gain(trials, *setting) for trials in found] for setting in settings}
        others = [
            gains[max(gains, key=lambda setting: _promise(gains[setting], left_out))][left_out]
            for left_out in range(len(found))
        ]
        cells = [f"{statistics.mean(best):+.2f}"]
        for choice in ([record["rows"][name]["difference"] for record in cells_of], others):
            regret = statistics.mean(best) - statistics.mean(choice)
            cells += [f"{statistics.mean(choice):+.2f}", f"{min(choice):+.2f}", f"{regret:.2f}"]
        lines.append([f"{name}, {called}", *cells])
    columns = ("mean", "lowest", "regret")
    header = ("row", "best step", *columns, *(f"{column}, chosen on the others" for column in columns))
    return markdown_table(header, lines) if lines else "Not run yet."


def chosen_gain(trials: Sequence[dict[str, float]], whitened: float, tolerance: float) -> float:
    """Return what the first step of this strength gains that the judge accepts; 0 if there is none."""
    accepted = (
        trial["difference"]
        for trial in trials
        if trial["whitened"] == whitened and trial["judge"] >= -tolerance * trial["error"]
    )
    return next(accepted, 0.0)


def _promise(gains: Sequence[float], left_out: int) -> tuple[bool, float]:
    """Return whether no other collection loses too much, and the mean gain over them."""
    others = [gain for number, gain in enumerate(gains) if number != left_out]
    return min(others) >= -_MAY_LOSE, statistics.mean(others)
