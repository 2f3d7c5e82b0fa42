"""The index of the papers' tables and figures, from ``benchmarks/papers.toml``: what was run, and what is to run."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

import tomllib

from benchmarks.records import ROOT, records
from benchmarks.studies import named_study, study_cells
from benchmarks.tables.render import Table, counted_gain, of_texts, runs, values

STATUS = {
    "in kind": "run in kind",
    "partly": "partly",
    "not run": "not run",
    "impossible": "not possible here",
    "drawing": "drawing, nothing to run",
}


def entries(paper: str | None = None) -> list[dict[str, Any]]:
    """Read the index; of one paper, or of all."""
    found = tomllib.loads((ROOT / "papers.toml").read_text(encoding="utf8"))["entry"]
    return [entry for entry in found if paper in (None, entry["paper"])]


def papers_table(paper: str) -> Table:
    """Return the table of what became of each table and figure of a paper."""
    rows = {
        entry["item"]: {
            "what it shows": entry["shows"],
            "its figure": entry.get("figure", ""),
            "status": STATUS[entry["status"]],
            "here": here(entry),
        }
        for entry in entries(paper)
    }
    return of_texts("in the paper", rows, left=5)


def here(entry: dict[str, Any]) -> str:
    """Write what there is: gains, the table, records, what is missing."""
    parts = []
    for name, ours, theirs in entry.get("gain", ()):
        written = counted_gain(values(runs(ours), ["average"]), values(runs(theirs), ["average"]))
        if written:
            parts.append(f"{name}: {written.removesuffix(')')} seed{'' if written.endswith('(1)') else 's'})")
    if "table" in entry:
        parts.append(f"[table](#{entry['table'].lower().replace(' ', '-')})")
    if "page" in entry:
        parts.append(f"[table]({entry['page']})")
    if "records" in entry:
        parts.append(", ".join(f"`{pattern}`" for pattern in entry["records"]))
    if "tools" in entry:
        parts.append(", ".join(f"[{tool.rpartition('/')[2]}](../{tool})" for tool in entry["tools"]))
    if "reason" in entry:
        parts.append(entry["reason"])
    missing = unrun_cells(entry.get("cells", ()))
    if missing:
        patterns = ", ".join(f"`{pattern}`" for pattern in entry["cells"])
        parts.append(f"to run: {patterns} ({len(missing)} training{'s' * (len(missing) > 1)})")
    if "cost" in entry:
        parts.append(entry["cost"])
    return "; ".join(parts)


def matching_cells(patterns: list[str] | tuple[str, ...]) -> list[tuple[str, str]]:
    """Return study and method of what ``STUDY/METHOD`` patterns match in the configurations."""
    found = []
    for pattern in patterns:
        study, _, method = pattern.partition("/")
        found += [(study, name) for name in named_study(study)["methods"] if fnmatch(name, method)]
    return found


def unrun_cells(patterns: list[str] | tuple[str, ...]) -> list[tuple[str, str]]:
    """Return study and method of the cells that match and have no record, once for each seed."""
    missing = []
    for study, method in matching_cells(patterns):
        done = {record["seed"] for record in records(study) if record["method"] == method}
        missing += [(study, method) for seed in study_cells(named_study(study))[method] if seed not in done]
    return missing


def missing_records(entry: dict[str, Any]) -> list[str]:
    """Return the record patterns of an entry that match no run."""
    return [pattern for pattern in entry.get("records", ()) if not records(*pattern.split("/", 1))]
