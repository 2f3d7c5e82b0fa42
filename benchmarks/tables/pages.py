"""Writes every table into the pages: a table named X stands between ``<!-- table: X -->`` and ``<!-- end -->``.

One of them is the index of the studies: what each asks, how many records it has, and which pages show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import tomllib

from benchmarks.records import ROOT, records, studies
from benchmarks.studies import CONFIGS, study_names
from benchmarks.tables import cost, deployment, domains, front, papers, search, similarity, strength
from benchmarks.tables.render import Sentence, Table, Text, of_texts

RECORDS_ALONE = {
    "analyses": "RepAL's analyses of words, overlap and eigenvalues; SLT-FAI's counts",
    "decoders": "language models without training: PromptEOL and EmbedFilter, beside local-llm-embed",
    "large_batches": "time and memory of gradient caching",
    "mechanisms_adversaries": "do AdCSE's adversaries do anything once they move?",
    "mechanisms_adversaries_own": "the same on BERT-small trained here",
    "mechanisms_heads": "what the projection head costs SimCSE and AdCSE",
    "mechanisms_rates": "which method is best when all have the same learning rates?",
    "mechanisms_slt_fai": "does SLT-FAI gain once its adversarial game has an equilibrium?",
    "mechanisms_slt_fai_own": "the same on BERT-small trained here",
    "search": "four settings of each method, by STS-B dev",
    "search_choices": "search: what adapt chooses, and what its label-free score gives other strengths",
    "spaces": "cosines of graded pairs, and neighbours before and after adapt",
    "trained_spaces": "alignment, uniformity and cosines of trained encoders",
}
"""Records that no page shows: the revision that a record names has the code that made it."""
MEASURED = {"scale": "hybrid search and adapt: time and memory", "speed": "time and memory of a training step"}
"""Records without a configuration: of the commands ``speed`` and ``scale``."""

Declared = Table | Sentence | Callable[[], Table | Sentence | Text]
TABLES: dict[str, Declared] = {
    "jobs": front.jobs_table,
    "shared-pairs": similarity.SHARED_PAIRS,
    "claims": similarity.CLAIMS,
    "methods": similarity.METHODS,
    **{f"method-{name}": table for name, table in similarity.PAGES.items()},
    "method-dclr": similarity.DCLR_PARTS,
    "method-adcse": similarity.ADCSE_HEADS,
    "method-repal": similarity.REFINED,
    "method-repal-fixed": similarity.FIXED,
    "method-whitening": similarity.WHITENING,
    "steps": cost.STEPS,
    "latency": cost.LATENCY,
    "adapted": domains.ADAPTED,
    "deployment": deployment.forms_table,
    "trainings": domains.TRAININGS,
    "acceptance": domains.acceptance,
    "strengths": strength.strengths_table,
    "few-texts": strength.few_texts_table,
    "promise": strength.promise,
    "hybrid-minilm": search.HYBRID,
    "fusions": search.FUSIONS,
    "passages": search.passages_table,
    "refusals": search.refusals_table,
    "papers": papers.papers_tables,
    "papers-settings": papers.settings_table,
}
INDEX, SMOKE = "studies", "smoke"
"""The table of the studies, and the study that it does not list: its figures mean nothing."""
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def pages() -> list[Path]:
    """Return the pages that hold a table."""
    found = (ROOT.parent / "README.md", ROOT / "RESULTS.md", *sorted((ROOT.parent / "docs").rglob("*.md")))
    return [page for page in found if "<!-- table: " in page.read_text(encoding="utf8")]


def table(name: str) -> Table | Sentence | Text:
    """Return a declared table.

    Raises:
        ValueError: if there is none of this name.
    """
    if name == INDEX:
        return index_table()
    if name not in TABLES:
        raise ValueError(f"name must be that of a table, got {name!r}; the tables are {', '.join(sorted(TABLES))}.")
    found = TABLES[name]
    return found() if callable(found) else found


def about(study: str) -> str:
    """Return what a study asks."""
    if study in RECORDS_ALONE | MEASURED:
        return (RECORDS_ALONE | MEASURED)[study]
    found: str = tomllib.loads((CONFIGS / f"{study}.toml").read_text(encoding="utf8"))["about"]
    return found


def record_counts() -> dict[str, int]:
    """Return the number of records of each study that has any."""
    return {study: len(records(study)) for study in studies()}


def studies_of(table: Table | Sentence | Text) -> set[str]:
    """Return the studies whose records a declared table reads; those of a text are not known."""
    if isinstance(table, Text):
        return set()
    parts = (
        table.cells.values() if isinstance(table, Sentence) else [*table.rows.values(), *dict(table.columns).values()]
    )
    return {study for part in parts for name in ("of", "minus") for study in _studies(part.get(name, ()))}


def _studies(given: Any) -> Iterable[str]:
    for runs in given.values() if isinstance(given, Mapping) else [given or ()]:
        yield from (wanted["study"] for wanted in runs)


def index_table() -> Table:
    """Return the index."""
    shown: dict[str, set[str]] = {}
    for page in pages():
        name = page.relative_to(ROOT.parent).as_posix()
        for _, block, _ in BLOCK.findall(page.read_text(encoding="utf8")):
            for study in studies_of(table(block)) if block not in (INDEX, "papers") else ():
                shown.setdefault(study, set()).add(name)
            for study in papers.STUDIES if block == "papers" else ():
                shown.setdefault(study, set()).add(name)
    counts = record_counts()
    rows = {
        f"`{study}`": {
            "asks": about(study),
            "records": str(counts.get(study, 0)),
            "shown on": ", ".join(f"[{_title(page)}](../{page})" for page in sorted(shown.get(study, ()))),
        }
        for study in sorted({*counts, *study_names()} - {SMOKE})
    }
    return of_texts("study", rows, left=2)


def _title(page: str) -> str:
    return re.sub(r"^docs/|\.md$", "", page)


def updated(text: str) -> str:
    """Return a page with every table written anew."""
    return BLOCK.sub(lambda match: f"{match[1]}{table(match[2]).written()}\n{match[3]}", text)


def write(only_check: bool = False) -> list[Path]:
    """Write the tables into all pages, unless ``only_check``; return the pages that differ from the records."""
    changed = []
    for page in pages():
        before = page.read_text(encoding="utf8")
        after = updated(before)
        if after != before:
            changed.append(page)
            if not only_check:
                page.write_text(after, encoding="utf8")
    return changed
