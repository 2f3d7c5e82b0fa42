"""Tables of time and memory: a training step, and a query of a hybrid search."""

from __future__ import annotations

from typing import Any

from benchmarks.studies import MNRL
from benchmarks.tables.render import Part, Table, number, picked

SPEED = ({"study": "speed", "run": "20261123-022106"},)
"""The newest measurement of all steps on a CPU."""
GPU_RUNS = {"GPU, 64": "20261127-113043", "GPU, 1,024": "20261127-113427"}
"""The run of each number of sentences a batch, in bfloat16."""
WHOLE = number("{:.0f}")


def beside_mnrl(row: dict[str, Any]) -> str:
    """Write the milliseconds of a step, beside MNRL's where it is not MNRL itself."""
    ratio = row["ratios"].get(MNRL)
    return f"{row['median_ms']:.0f}" + (f" ({ratio['median']:.2f} x)" if ratio else "")


def _milliseconds(title: str, of: tuple[dict[str, str], ...]) -> tuple[str, Part]:
    return (title, {"of": of, "metric": "cases/<case>", "show": picked(beside_mnrl)})


_CASES = {
    MNRL: "MNRL",
    "simcse": "SimCSE",
    "dclr": "DCLR, no guide",
    "dclr, model": "DCLR, with a guide",
    "adcse, no head": "AdCSE, no head",
    "consert": "ConSERT",
    "slt-fai": "SLT-FAI over SimCSE",
    "paser, no mlm": "PaSeR, no MLM",
    "GISTEmbed": "GISTEmbed",
    "TSDAE": "TSDAE",
}
STEPS = Table(
    "step",
    {title: {"fill": {"case": case}} for case, title in _CASES.items()},
    [
        _milliseconds("CPU, 64", SPEED),
        ("CPU, MiB", {"of": SPEED, "metric": "cases/<case>/peak_mib", "show": WHOLE}),
        *(_milliseconds(title, ({"study": "speed", "run": run},)) for title, run in GPU_RUNS.items()),
    ],
)


def milliseconds(row: dict[str, float]) -> str:
    """Write the median of a query, and what 95 % of queries take at most."""
    return f"{row['median']:.0f} ({row['late']:.0f})"


LATENCY = Table(
    "passages",
    {
        f"{size:,}": {"of": ({"study": "scale", "run": f"latency-20261127-{run}"},), "fill": {"size": str(size)}}
        for size, run in ((1000, "111939"), (100_000, "111939"), (1_000_000, "134450"))
    },
    [
        ("one a document, ms", {"metric": "rows/<size>, 1 a document", "show": picked(milliseconds)}),
        ("four a document, ms", {"metric": "rows/<size>, 4 a document", "show": picked(milliseconds)}),
        ("held, MiB", {"metric": "rows/<size>, 1 a document/held", "show": WHOLE}),
        ("more while searching, MiB", {"metric": "rows/<size>, 1 a document/searching", "show": WHOLE}),
    ],
)
"""Of one query; held memory includes BM25. The million is of a second run: other work disturbed the first."""
