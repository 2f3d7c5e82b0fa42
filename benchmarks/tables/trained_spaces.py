"""The spaces of trained encoders: alignment, uniformity and cosines, means over the seeds."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table, spread

LEVELS = tuple(f"{low}-{low + 1}" for low in range(5))


def trained_space_table(study: str) -> str:
    """Tabulate alignment, uniformity, how far the levels of STS-B dev lie apart, and the cosines within a batch."""
    titles = ("method", "seeds", "alignment", "uniformity", "separation", "in a batch, mean cosine", "above 0.7, %")
    rows = []
    for method, found in by_method(study).items():
        of_space = (spread([one[name] for one in found]) for name in ("alignment", "uniformity", "separation"))
        of_batch = (spread([one["in_batch"][name] for one in found]) for name in ("mean", "above"))
        rows.append([method, str(len(found)), *of_space, *of_batch])
    return markdown_table(titles, rows) if rows else "Not run yet."


def level_table(study: str) -> str:
    """Tabulate mean / variance of the cosines in each level of the gold score, means over the seeds."""
    rows = []
    for method, found in by_method(study).items():
        cells = []
        for level in LEVELS:
            mean, variance = (
                statistics.mean(one["levels"][f"{name}_{level}"] for one in found) for name in ("mean", "variance")
            )
            cells.append(f"{mean:.2f} / {variance:.3f}")
        rows.append([method, str(len(found)), *cells])
    return markdown_table(("method", "seeds", *LEVELS), rows) if rows else "Not run yet."


def by_method(study: str) -> dict[str, list[dict[str, Any]]]:
    """Return the records of a study's encoders by method, the start first."""
    found = [record for record in records("trained_spaces") if record["trained_in"] == study]
    names = sorted({record["method"] for record in found}, key=lambda name: (name != "start", name))
    return {name: [record for record in found if record["method"] == name] for name in names}
