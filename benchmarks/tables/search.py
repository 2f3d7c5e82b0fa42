"""Tables of search: nDCG@10 of each row of seven collections, as the difference to the base model's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from benchmarks.records import records
from benchmarks.studies import KEPT
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


_HYBRID = {
    "BM25 alone": "BM25",
    "base model and BM25, RRF": "start, RRF",
    "base model + BM25": "start + BM25, 0.2",
    "base model + BM25, weight from documents": "start + BM25, 0.2, weight from documents",
    "adapt-search": "adapt",
    "**adapt-search + BM25**": "adapt + BM25, 0.2",
    "adapt-search --keep-index + BM25": f"{KEPT} + BM25, 0.2",
}
HYBRID = rows_of("minilm", _HYBRID, "hybrid")
FUSIONS = Table(
    "gain in nDCG@10",
    {
        label.strip("*"): {"of": ({"study": "hybrid", "encoder": "mpnet"},), "metric": f"rows/{row}/difference"}
        for label, row in _HYBRID.items()
    },
    [("mean", {"show": number("{:+.2f}")}), ("lowest", {"show": lowest("{:+.2f}")})],
)


_LONG = {"long-pubmedqa": "PubMedQA, joined", "long-cran": "Cranfield, joined"}
_CUT = {
    "whole + BM25": "start + BM25",
    "80 words + BM25": "80 words, step 60 + BM25",
    "**110 words + BM25**": "110 words, step 80 + BM25",
    "150 words + BM25": "150 words, step 110 + BM25",
}


def passages_table() -> Table:
    """Return the table of passages: what cutting long documents gains on collections of short and of long ones."""
    rows: dict[str, dict[str, str]] = {}
    for record in records("passages"):
        name = record["collection"]
        found = {"words": f"{record['words']:.0f}", "base model": f"{record['rows']['start']['ndcg@10']:.2f}"}
        found |= {label: f"{record['rows'][row]['difference']:+.2f}" for label, row in _CUT.items()}
        rows[(COLLECTIONS | _LONG)[name]] = found
    return of_texts("collection", rows)


_BOUNDS = ("cosine, 1 in 1,000", "cosine, 1 in 10,000", "sum, 1 in 1,000")


def refusals_table() -> Table:
    """Return the table of bounds: good first hits that are kept, and queries without an answer that are refused."""
    rows: dict[str, dict[str, str]] = {}
    for record in records("refusals"):
        title = f"{COLLECTIONS[record['collection']]}, {record['documents']:,} documents"
        rows[title] = {}
        for bound in _BOUNDS:
            seeds = record["rows"][bound]
            kept, refused = (statistics.mean(seed[key] for seed in seeds) for key in ("kept", "refused"))
            rows[title][bound] = f"{kept:.0f}, {refused:.0f}"
    return of_texts("% kept, refused", rows)
