"""The README's first sentence, and its table: floors first, similarity from raw encoders, domains from a good one."""

from __future__ import annotations

import math
import statistics

from benchmarks.records import records
from benchmarks.tables.domains import by_cell, domain_means, everywhere
from benchmarks.tables.floors import shown_floors
from benchmarks.tables.markdown import counted, markdown_table
from benchmarks.tables.post_processing import SENTENCE_TERM
from benchmarks.tables.quality import averages_as_trained
from benchmarks.tables.verdict import SOURCES, averages_after

_DOMAINS = ("banking77", "clinc150", "stackoverflow")
_GOOD = "minilm"
_BEST = "DCLR on ConSERT's views, no guide"
_FLOORS = {
    "floor: TF-IDF of characters 3-5": ("", "TF-IDF of characters 3-5"),
    "floor: SIF of input embeddings, first direction removed": (
        _GOOD,
        "SIF of input embeddings, first component removed",
    ),
}
"""By the label in the tables of similarity: encoder and row in the domain study."""


def domain_scores(encoder: str, row: str) -> dict[int, float]:
    """Return, by seed, the mean over the domains; of the seeds that every domain has."""
    cells = by_cell(records("domains"))
    return domain_means(everywhere({domain: cells.get((encoder, domain), {}) for domain in _DOMAINS}, row))


def overview_table() -> str:
    """Put six rows side by side: two floors, the start, SimCSE, the best training with its step, and ``adapt``."""
    floors = shown_floors("foundation"), shown_floors("own_encoder")
    rows = [
        [label, *(f"{found[label]['average']:.2f}" for found in floors), counted(domain_scores(*_FLOORS[label]))]
        for label in floors[0]
    ]
    for label, trained in (("start", "start"), ("SimCSE", "SimCSE 2e-5, 25 steps")):
        similar = (counted(averages_as_trained(source)) for source in SOURCES[label])
        rows.append([label, *similar, counted(domain_scores(_GOOD, trained))])
    similar = (counted(averages_after(source, SENTENCE_TERM)) for source in SOURCES[_BEST])
    rows.append(["DCLR on ConSERT's views, then RepAL's sentence term", *similar, ""])
    rows.append(["`st-extras adapt`", "", "", counted(domain_scores(_GOOD, "adapt"))])
    titles = ["(seeds)", "STS, first three layers", "STS, BERT-small trained here", "domains, all-MiniLM-L6-v2"]
    return markdown_table(titles, rows)


def headline() -> str:
    """Say in a sentence what ``adapt`` gained on Banking77, in MAP@R, and in how many minutes at most."""
    rows = by_cell(records("domains"))[(_GOOD, "banking77")]
    start, adapted = (statistics.mean(one["map_at_r"] for one in rows[row].values()) for row in ("start", "adapt"))
    spent = [record for record in records("domains") if (record["encoder"], record["row"]) == (_GOOD, "adapt")]
    minutes = math.ceil(max(record["seconds"] for record in spent) / 60)
    return (
        f"**Banking77, no labels, under {minutes} minutes of one CPU core: `st-extras adapt` lifts MAP@R of "
        f"all-MiniLM-L6-v2 from {start:.1f} to {adapted:.1f}.**"
    )
