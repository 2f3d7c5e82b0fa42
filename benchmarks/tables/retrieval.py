"""Tables of the study of search: nDCG@10 of each row, as the difference to the encoder as it is."""

from __future__ import annotations

import statistics
from collections.abc import Container

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
ADAPTED = (_START, "adapt", "adapt, refine_documents", "adapt + 0.3 BM25", "adapt, keep_index")
"""What ``adapt`` chooses for a search."""


def search_table(encoder: str, chosen: Container[str] | None = None) -> str:
    """Tabulate the rows: the start's nDCG@10, then differences to it, their mean over the collections and the lowest.

    Args:
        encoder: by its name in the records.
        chosen: which rows to show. None: all.
    """
    found = {record["collection"]: record["rows"] for record in records("retrieval", f"{encoder}-*.json")}
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
