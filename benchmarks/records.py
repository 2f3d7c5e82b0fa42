"""The records of benchmarks.sts: where they lie, and the table of a study."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT

RESULTS = ROOT / "results"


def records(study: str, root: Path = RESULTS) -> list[dict[str, Any]]:
    files = sorted((root / study).glob("*.json"))
    return [json.loads(file.read_text(encoding="utf8")) for file in files]


def spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def table(study: str, root: Path = RESULTS) -> str:
    """A Markdown table: mean ± standard deviation over seeds; dev alone where no test set was scored."""
    found = records(study, root)
    names = list(dict.fromkeys(record["method"] for record in sorted(found, key=lambda r: (r["steps"], r["method"]))))
    tested = any(record["scores"] for record in found)
    titles = ["method", "seeds", "best step", "STS-B dev", *(["STS-B test", "seven sets"] if tested else [])]
    lines = [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1)]
    for name in names:
        rows = [record for record in found if record["method"] == name]
        steps = ", ".join(str(record["best_step"]) for record in rows)
        cells = [name, str(len(rows)), steps, spread([record["dev"] for record in rows])]
        if tested:
            cells.append(spread([record["scores"]["stsb_test"] for record in rows if record["scores"]]))
            cells.append(spread([record["average"] for record in rows if record["scores"]]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
