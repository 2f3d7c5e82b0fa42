"""The table of an adapted encoder in smaller embeddings: MAP@R before and after ``adapt``."""

from __future__ import annotations

import statistics

from benchmarks.records import records
from benchmarks.tables.render import Table, of_texts


def forms_table() -> Table:
    """Return the table of MAP@R of each form, before and after ``adapt``: by domain, mean and deviation over seeds.

    The last column has what becomes of the threshold 0.8 before ``adapt``: the lowest and the highest.
    """
    rows: dict[str, dict[str, str]] = {}
    found = records("deployment")
    for domain in dict.fromkeys(record["domain"] for record in found):
        scores = [record["scores"] for record in found if record["domain"] == domain]
        for form in scores[0]["before"]:
            before, after = ([one[when][form] for one in scores] for when in ("before", "after"))
            spread = f" ± {statistics.stdev(after):.1f}" if len(after) > 1 else ""
            rows.setdefault(form, {})[domain] = f"{statistics.mean(before):.1f} → {statistics.mean(after):.1f}{spread}"
    for form, row in rows.items():
        moved = [record["threshold"]["after" if form == "float32" else form] for record in found]
        row["0.8 becomes"] = f"{min(moved):.2f} to {max(moved):.2f}"
    return of_texts("embeddings", rows)
