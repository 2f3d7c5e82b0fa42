"""Writes every table into the pages: a table named X stands between ``<!-- table: X -->`` and ``<!-- end -->``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.records import ROOT
from benchmarks.tables import (
    cost,
    domains,
    language_models,
    mechanisms,
    papers,
    reproduced,
    search,
    selection,
    similarity,
    strength,
    studies,
)
from benchmarks.tables.render import Sentence, Table

Declared = Table | Sentence | Callable[[], Table]
TABLES: dict[str, Declared] = {
    "studies": studies.index_table,
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
    "large-batches": cost.large_batches,
    "scale-memory": cost.MEMORY,
    "scale-search": cost.SEARCH,
    "heads": mechanisms.HEADS,
    "heads-cls": mechanisms.HEADS_CLS,
    "adversaries": mechanisms.ADVERSARIES,
    "rates": mechanisms.RATES,
    "decoupled": mechanisms.DECOUPLED,
    "equilibrium": mechanisms.EQUILIBRIUM,
    "equilibrium-own": mechanisms.EQUILIBRIUM_OWN,
    "phrases": mechanisms.SPARED,
    "adapted": domains.ADAPTED,
    "adapted-raw": domains.ADAPTED_RAW,
    "domains": domains.EVERY,
    "trainings": domains.TRAININGS,
    "strengths": strength.strengths_table,
    "strength-before": strength.before_and_after_table,
    "strength-rules": strength.rules_table,
    "label-free": domains.label_free_table,
    "acceptance": domains.acceptance_table,
    "search-baselines": search.BASELINES,
    "hybrid-minilm": search.HYBRID["minilm"],
    "hybrid-mpnet": search.HYBRID["mpnet"],
    **{f"hybrid-{encoder}": table for encoder, table in search.LANGUAGE_MODELS.items()},
    "hybrid-shares": search.share_table,
    "search-minilm": search.ADAPTED["minilm"],
    "search-mpnet": search.ADAPTED["mpnet"],
    "search-regret": search.regret_table,
    "selection": selection.selection_table,
    "language-models": language_models.UNTRAINED,
    "language-models-baselines": language_models.UNTRAINED_BASELINES,
    "language-models-adapted": language_models.ADAPTED,
    "language-models-package": language_models.PACKAGE,
    "language-models-methods": language_models.METHODS,
    "language-models-methods-gemma3": language_models.METHODS_GEMMA,
    "language-models-trained": language_models.TRAINED,
    "language-models-repal": language_models.REPAL,
    "language-models-domains": language_models.ON_DOMAINS,
    **{
        f"papers-{name.lower()}": partial(papers.papers_table, name)
        for name in ("DCLR", "AdCSE", "SLT-FAI", "PaSeR", "RepAL")
    },
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
    if name not in TABLES:
        raise ValueError(f"name must be that of a table, got {name!r}; the tables are {', '.join(sorted(TABLES))}.")
    found = TABLES[name]
    return found if isinstance(found, Table | Sentence) else found()


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
