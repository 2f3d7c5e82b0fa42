"""The index of the studies: what each asks, how many records it has, and which pages show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import tomllib

from benchmarks.records import ROOT, records, studies
from benchmarks.studies import CONFIGS, study_names
from benchmarks.tables.render import Sentence, Table, of_texts

MEASURED = {
    "large_batches": "time and memory of gradient caching",
    "preparation": "speed of masking phrases and counting tokens",
    "repal_pairs": "RepAL with and without the pairs that STS-B dev holds too",
    "retrieval": "search: transforms, means and BM25 on seven collections; replaced by hybrid and search_choices",
    "scale": "memory as a corpus grows, hybrid search; older: speed of one process and two",
    "speed": "time and memory of a training step",
}
"""Records without a configuration: of the commands ``speed`` and ``scale``, and of programs that were replaced."""


def about(study: str) -> str:
    """Return what a study asks."""
    if study in MEASURED:
        return MEASURED[study]
    found: str = tomllib.loads((CONFIGS / f"{study}.toml").read_text(encoding="utf8"))["about"]
    return found


def record_counts() -> dict[str, int]:
    """Return the number of records of each study that has any."""
    return {study: len(records(study)) for study in studies()}


def studies_of(table: Table | Sentence) -> set[str]:
    """Return the studies whose records a declared table reads."""
    parts = (
        table.cells.values() if isinstance(table, Sentence) else [*table.rows.values(), *dict(table.columns).values()]
    )
    return {study for part in parts for name in ("of", "minus") for study in _studies(part.get(name, ()))}


def _studies(given: Any) -> Iterable[str]:
    for runs in given.values() if isinstance(given, Mapping) else [given or ()]:
        yield from (wanted["study"] for wanted in runs)


def index_table() -> Table:
    """Return the index."""
    from benchmarks.tables.pages import BLOCK, pages, table  # here, because it lists this table too

    shown: dict[str, set[str]] = {}
    for page in pages():
        name = page.relative_to(ROOT.parent).as_posix()
        for _, block, _ in BLOCK.findall(page.read_text(encoding="utf8")):
            for study in studies_of(table(block)) if name != "benchmarks/RESULTS.md" else ():
                shown.setdefault(study, set()).add(name)
    counts = record_counts()
    rows = {
        f"`{study}`": {
            "asks": about(study),
            "records": str(counts.get(study, 0)),
            "shown on": ", ".join(f"[{_title(page)}](../{page})" for page in sorted(shown.get(study, ()))),
        }
        for study in sorted({*counts, *study_names()})
    }
    return of_texts("study", rows, left=2)


def _title(page: str) -> str:
    return re.sub(r"^docs/|\.md$", "", page)
