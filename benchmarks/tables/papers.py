"""The index of the papers' tables and figures, and what their own settings cost."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import tomllib

from benchmarks.records import ROOT, records
from benchmarks.studies import CONFIGS, load_study, named_study
from benchmarks.tables.coverage import cell_seconds, timed_records, unrun_seeds
from benchmarks.tables.markdown import difference, markdown_table
from benchmarks.tables.quality import averages_as_trained

STATUS = {
    "in kind": "run in kind",
    "partly": "partly",
    "not run": "not run",
    "impossible": "not possible here",
    "drawing": "drawing, nothing to run",
}
PAPERS = CONFIGS / "papers"

ROWS_A_STEP = {
    **dict.fromkeys(("SimCSELoss", "DCLRLoss", "ConSERTLoss", "DistillationLoss"), 2.0),
    "AdCSELoss": 1 + 1 / 3,
    "PaSeRLoss": 4.0,
}
"""Sentences that go through an encoder for each of a batch, forward and backward: AdCSE's copy runs forward alone;
PaSeR's MLM and decoder count as one each. SLT-FAI adds one to those of its base.
"""
WEIGHTS = 86e6  # of BERT base, without its embeddings
TOKENS = 32
OPERATIONS = 30e12  # a second


def entries(paper: str | None = None) -> list[dict[str, Any]]:
    """Read the index; of one paper, or of all."""
    found = tomllib.loads((ROOT / "papers.toml").read_text(encoding="utf8"))["entry"]
    return [entry for entry in found if paper in (None, entry["paper"])]


def papers_table(paper: str) -> str:
    """Tabulate what became of each table and figure of a paper."""
    timed = timed_records()
    rows = [
        [entry["item"], entry["shows"], entry.get("figure", ""), STATUS[entry["status"]], _here(entry, timed)]
        for entry in entries(paper)
    ]
    return markdown_table(("in the paper", "what it shows", "its figure", "status", "here"), rows, left=range(5))


def _here(entry: dict[str, Any], timed: list[dict[str, Any]]) -> str:
    """Write what there is: gains, records, what is missing, what it would cost."""
    parts = []
    for name, ours, theirs in entry.get("gain", ()):
        scores, baseline = averages_as_trained(ours), averages_as_trained(theirs)
        both = scores.keys() & baseline.keys()
        if both:
            parts.append(f"{name}: {difference(scores, baseline)} ({len(both)} seed{'s' * (len(both) > 1)})")
    if "table" in entry:
        page = page_of(entry["table"])
        parts.append(f"table [{entry['table']}]({page})")
    if "records" in entry:
        parts.append(", ".join(f"`{pattern}`" for pattern in entry["records"]))
    if "tools" in entry:
        parts.append(", ".join(f"[{tool.rpartition('/')[2]}](../{tool})" for tool in entry["tools"]))
    if "reason" in entry:
        parts.append(entry["reason"])
    missing = unrun_cells(entry.get("cells", ()))
    if missing:
        hours = sum(cell_seconds(named_study(study), method, timed) for study, method in missing) / 3600
        patterns = ", ".join(f"`{pattern}`" for pattern in entry["cells"])
        trainings = "1 training" if len(missing) == 1 else f"{len(missing)} trainings"
        parts.append(f"to run: {patterns} ({trainings}, about {hours:.1f} hours of one core)")
    if "cost" in entry:
        parts.append(entry["cost"])
    return "; ".join(parts)


def page_of(table: str) -> str:
    """Return the page that shows a table, as docs/papers.md links it."""
    docs = ROOT.parent / "docs"
    for page in (*sorted(docs.rglob("*.md")), ROOT / "RESULTS.md"):
        if f"<!-- table: {table} -->" in page.read_text(encoding="utf8"):
            return Path(os.path.relpath(page, docs)).as_posix()
    raise ValueError(f"table must be one of a page in docs or of RESULTS.md, got {table!r}.")


def matching_cells(patterns: list[str] | tuple[str, ...]) -> list[tuple[str, str]]:
    """Return study and method of what ``STUDY/METHOD`` patterns match in the configurations."""
    found = []
    for pattern in patterns:
        study, _, method = pattern.partition("/")
        found += [(study, name) for name in named_study(study)["methods"] if fnmatch(name, method)]
    return found


def unrun_cells(patterns: list[str] | tuple[str, ...]) -> list[tuple[str, str]]:
    """Return study and method of the cells that match and have no record, once for each seed."""
    cells = matching_cells(patterns)
    missing = {study: unrun_seeds(named_study(study)) for study in {study for study, _ in cells}}
    return [(study, method) for study, method in cells for _ in missing[study].get(method, ())]


def costs_table() -> str:
    """Estimate what a GPU needs for each method of ``configs/papers``: 6 operations a weight and token of a step."""
    rows = []
    for path in sorted(PAPERS.glob("*.toml")):
        study = load_study(path)
        for name, own in study["methods"].items():
            method = study["training"] | own
            hours = gpu_hours(method)
            rows.append([
                f"[{path.name}](../benchmarks/configs/papers/{path.name})",
                name,
                f"{method['batch_size']}",
                f"{method['learning_rate']:g}",
                f"{method['steps']:,}",
                f"{method['eval_steps']}",
                f"{hours:.1f}",
            ])  # fmt: skip
    titles = ("configuration", "method", "batch", "rate", "steps", "dev every", "hours")
    return markdown_table(titles, rows, left=(0, 1))


def gpu_hours(method: dict[str, Any]) -> float:
    """Estimate the hours of one seed: steps, sentences a step, tokens, weights; no evaluation, no loading."""
    base = method.get("base", method)["loss"]
    rows = ROWS_A_STEP[base] + (method["loss"] == "SLTFAILoss")
    operations = 6 * WEIGHTS * TOKENS * rows * method["batch_size"] * method["steps"]
    return float(operations / OPERATIONS / 3600)


def missing_records(entry: dict[str, Any]) -> list[str]:
    """Return the record patterns of an entry that match no file."""
    return [pattern for pattern in entry.get("records", ()) if not records(*pattern.split("/", 1))]
