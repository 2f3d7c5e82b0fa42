"""The table of an adapted encoder in smaller embeddings: MAP@R before and after ``adapt``."""

from __future__ import annotations

import statistics

from benchmarks.deployment import FORMS
from benchmarks.records import records
from benchmarks.tables.render import Table, of_texts


def forms_table() -> Table:
    """Return the table of MAP@R of each form, before and after ``adapt``: by domain, mean and deviation over seeds."""
    rows: dict[str, dict[str, str]] = {form: {} for form in FORMS}
    found = records("deployment")
    for domain in dict.fromkeys(record["domain"] for record in found):
        scores = [record["scores"] for record in found if record["domain"] == domain]
        for form in FORMS:
            before, after = ([one[when][form] for one in scores] for when in ("before", "after"))
            spread = f" ± {statistics.stdev(after):.1f}" if len(after) > 1 else ""
            rows[form][domain] = f"{statistics.mean(before):.1f} → {statistics.mean(after):.1f}{spread}"
    return of_texts("embeddings", rows)
