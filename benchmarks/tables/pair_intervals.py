"""What the scores of a study hang on: the pairs that STS-B dev holds too, and which pairs the sets happen to hold."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from benchmarks.records import records
from benchmarks.tables.floors import shown_floors
from benchmarks.tables.markdown import markdown_table, spread


def pairs_table(study: str) -> str:
    """Tabulate the seven sets with and without the pairs of STS-B dev, and intervals over resampled pairs.

    The interval of a row is that of its mean over seeds; the difference from SimCSE, at the same rate where the names
    end in one, is over the seeds of both, on the same resampled pairs. Records made before these figures were kept are
    left out.
    """
    found = [record for record in records(study) if record.get("resampled")]
    rows = {label: [row] for label, row in shown_floors(study).items()}
    for record in found:
        rows.setdefault(record["method"], []).append(record)
    cells = []
    for name, own in rows.items():
        drawn = _drawn(own)
        without = [record["without_dev"]["average"] for record in own if record["without_dev"]]
        interval = f"[{np.quantile(drawn, 0.025):.2f}, {np.quantile(drawn, 0.975):.2f}]"
        row = [name, str(len(own)), spread([record["average"] for record in own]), interval, spread(without)]
        cells.append([*row, _difference(name, own, rows.get(_baseline(name), []))])
    titles = ("method", "seeds", "seven sets", "95 % over pairs", "without pairs of dev", "minus SimCSE, over pairs")
    return markdown_table(titles, cells) if cells else "Not run yet."


def _baseline(name: str) -> str:
    rate = re.search(r"-\de-\d$", name)
    return "simcse" + (rate[0] if rate else "")


def _difference(name: str, own: list[dict[str, Any]], baseline: list[dict[str, Any]]) -> str:
    seeds = {record["seed"] for record in own if "seed" in record} & {record["seed"] for record in baseline}
    if name in (_baseline(name), "start") or not baseline:
        return ""
    ours = [record for record in own if record.get("seed") in seeds] or own  # a floor has no seed
    theirs = [record for record in baseline if record["seed"] in seeds] or baseline
    mean = np.mean([r["average"] for r in ours]) - np.mean([r["average"] for r in theirs])
    low, high = np.quantile(_drawn(ours) - _drawn(theirs), (0.025, 0.975))
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def _drawn(found: list[dict[str, Any]]) -> Any:
    """Return the mean over the records of their averages on resampled pairs."""
    return np.mean([record["resampled"] for record in found], axis=0)
