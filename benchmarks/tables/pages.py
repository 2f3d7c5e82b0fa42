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
from benchmarks.tables import (
    cost,
    domains,
    language_models,
    mechanisms,
    reproduced,
    search,
    selection,
    similarity,
    strength,
)
from benchmarks.tables.render import Sentence, Table, of_texts
from benchmarks.tables.sources import LAYERS, OWN

MEASURED = {
    "large_batches": "time and memory of gradient caching",
    "scale": "hybrid search: time and memory",
    "speed": "time and memory of a training step",
}
"""Records without a configuration: of the commands ``speed`` and ``scale``."""

Declared = Table | Sentence | Callable[[], Table]
TABLES: dict[str, Declared] = {
    "headline": domains.HEADLINE,
    "headline-search": search.HEADLINE,
    "overview": domains.OVERVIEW,
    "shared-pairs": similarity.SHARED_PAIRS,
    "main": similarity.MAIN,
    "baselines": similarity.BASELINES,
    "claims": similarity.CLAIMS,
    "verdict": similarity.VERDICT,
    "refined": similarity.REFINED,
    "repal": similarity.REPAL,
    "weights": similarity.WEIGHTS,
    "whitening": similarity.WHITENING,
    **{f"method-{name}": table for name, table in similarity.METHODS.items()},
    **{f"cost-{name}": table for name, table in cost.METHODS.items()},
    "steps": cost.STEPS,
    "steps-gpu": cost.GPU,
    "jobs-gpu": cost.JOBS,
    "large-batches": cost.large_batches,
    "scale-search": cost.SEARCH,
    "latency": cost.LATENCY,
    "heads": mechanisms.HEADS,
    "heads-cls": mechanisms.HEADS_CLS,
    "adversaries": mechanisms.ADVERSARIES,
    "rates": mechanisms.RATES,
    "decoupled": mechanisms.DECOUPLED[LAYERS],
    "decoupled-own": mechanisms.DECOUPLED[OWN],
    "equilibrium": mechanisms.EQUILIBRIUM,
    "equilibrium-own": mechanisms.EQUILIBRIUM_OWN,
    "phrases": mechanisms.SPARED,
    "adapted": domains.ADAPTED,
    "adapted-raw": domains.ADAPTED_RAW,
    "domains": domains.EVERY,
    "trainings": domains.TRAININGS,
    "strengths": strength.strengths_table,
    "strength-rules": strength.rules_table,
    "label-free": domains.label_free_table,
    "acceptance": domains.acceptance_table,
    "search-baselines": search.BASELINES,
    "hybrid-minilm": search.HYBRID["minilm"],
    "hybrid-mpnet": search.HYBRID["mpnet"],
    "hybrid-shares": search.share_table,
    "passages": search.passages_table,
    "stems": search.stems_table,
    "search-minilm": search.ADAPTED["minilm"],
    "search-mpnet": search.ADAPTED["mpnet"],
    "search-regret": search.regret_table,
    "selection": selection.selection_table,
    "language-models": language_models.UNTRAINED,
    "language-models-trained": language_models.TRAINED,
    "dclr-parts": reproduced.DCLR_PARTS,
    "dclr-settings": reproduced.DCLR_SETTINGS,
    "adcse-parts": reproduced.ADCSE_PARTS,
    "low-frequency-share": mechanisms.EQUILIBRIUM_CONSERT,
    "frequencies": reproduced.FREQUENCIES,
    "frequencies-in-space": reproduced.FREQUENCIES_IN_SPACE,
    "own-space": reproduced.OWN_SPACE,
    "trained-space": reproduced.TRAINED_SPACE,
    "levels": reproduced.LEVELS,
    "paser-parts": reproduced.PASER_PARTS,
    "paser-phrases": reproduced.PHRASES,
    "questions": reproduced.QUESTIONS,
    "words": reproduced.WORDS,
    "overlap": reproduced.OVERLAP,
    "eigenvalues": reproduced.EIGENVALUES,
}
INDEX, SMOKE = "studies", "smoke"
"""The table of the studies, and the study that it does not list: its figures mean nothing."""
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def pages() -> list[Path]:
    """Return the pages that hold a table."""
    found = (ROOT.parent / "README.md", ROOT / "RESULTS.md", *sorted((ROOT.parent / "docs").rglob("*.md")))
    return [page for page in found if "<!-- table: " in page.read_text(encoding="utf8")]


def table(name: str) -> Table | Sentence:
    """Return a declared table.

    Raises:
        ValueError: if there is none of this name.
    """
    if name == INDEX:
        return index_table()
    if name not in TABLES:
        raise ValueError(f"name must be that of a table, got {name!r}; the tables are {', '.join(sorted(TABLES))}.")
    found = TABLES[name]
    return found if isinstance(found, Table | Sentence) else found()


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
    shown: dict[str, set[str]] = {}
    for page in pages():
        name = page.relative_to(ROOT.parent).as_posix()
        for _, block, _ in BLOCK.findall(page.read_text(encoding="utf8")):
            for study in studies_of(table(block)) if block != INDEX else ():
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
