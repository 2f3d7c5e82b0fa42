"""Which cells of the studies have a record, and which do not."""

from __future__ import annotations

from benchmarks.records import records
from benchmarks.studies import all_studies, study_cells
from benchmarks.tables.markdown import markdown_table


def unrun_table() -> str:
    """Tabulate the cells that the configurations ask for and no record covers: the methods of a study, with seeds."""
    rows = []
    for study in all_studies():
        if study["name"] == "smoke":
            continue
        cells = {name: set(seeds) for name, seeds in study_cells(study).items()}
        found = records(study["name"])
        done = {name: {record["seed"] for record in found if record["method"] == name} for name in cells}
        missing = {name: sorted(seeds - done[name]) for name, seeds in cells.items() if seeds - done[name]}
        run = sum(len(seeds & done[name]) for name, seeds in cells.items())
        words = [f"{name} ({', '.join(map(str, seeds))})" for name, seeds in missing.items()]
        rows.append([study["name"], f"{run} of {sum(map(len, cells.values()))}", ", ".join(words)])
    return markdown_table(("study", "cells run", "not run"), rows, left=(0, 2))
