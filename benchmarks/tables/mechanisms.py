"""Tables of docs/mechanisms.md: each idea of a method alone, beside the row that it changes one thing of."""

from __future__ import annotations

from typing import Any

from benchmarks.records import Metric
from benchmarks.tables.render import (
    Part,
    Runs,
    Table,
    count,
    gain,
    number,
    runs,
    spread,
)
from benchmarks.tables.sources import COMBINED, FROZEN, LAYERS, OWN, PHRASES, TRAINED

EVERY_50 = 50
"""The evaluations that count for SLT-FAI: none of them is inside its warm-up of 20 or 40 steps."""


def counted_step(record: dict[str, Any]) -> int:
    """Return the step of the best evaluation at a multiple of 50 steps: all rows have as many of these."""
    curve = {step: dev for step, dev in record.get("curve", []) if step and step % EVERY_50 == 0}
    return max(curve, key=curve.__getitem__, default=0)


def counted_dev(record: dict[str, Any]) -> float | None:
    """Return STS-B dev at that step; None for a record without a curve."""
    return dict(record.get("curve", [])).get(counted_step(record))


def counted_average(record: dict[str, Any]) -> float | None:
    """Return the seven-set average; None if it is that of other weights than those of that step."""
    return record["average"] if record.get("best_step") == counted_step(record) else None


def last_accuracy(record: dict[str, Any]) -> float | None:
    """Return the last logged balanced accuracy of the discriminators."""
    logged = [
        value
        for _, entry in record.get("log", ())
        for name, value in entry.items()
        if name.endswith("balanced_accuracy")
    ]
    return logged[-1] if logged else None


def question(
    rows: dict[str, Runs], first: str, baseline: Runs, *, dev: Metric = "dev", average: Metric = "average"
) -> Table:
    """Return the table of a question: STS-B dev and the seven sets, each with the difference to the baseline.

    Args:
        rows: by label.
        first: label of the baseline.
        baseline: its runs.
        dev: value of STS-B dev.
        average: that of the seven sets.
    """
    columns: list[tuple[str, Part]] = [("seeds", {"metric": dev, "show": count})]
    for title, metric in (("STS-B dev", dev), ("seven sets", average)):
        columns += [
            (title, {"metric": metric, "show": spread}),
            (f"minus {first}", {"metric": metric, "show": gain, "minus": baseline}),
        ]
    return Table("", {label: {"of": of} for label, of in rows.items()}, columns)


SIMCSE, OWN_SIMCSE = TRAINED["SimCSE"][LAYERS], TRAINED["SimCSE"][OWN]
HEADS = question(
    {
        "SimCSE with a head": runs("mechanisms_heads/simcse-head"),
        "AdCSE, momentum head (paper)": TRAINED["AdCSE"][LAYERS],
        "AdCSE, no head": TRAINED["AdCSE, no head"][LAYERS],
    },
    "SimCSE",
    SIMCSE,
)
HEADS_CLS = question(
    {
        "SimCSE": runs("mechanisms_heads_cls_own/simcse"),
        "AdCSE, momentum head (paper)": runs("mechanisms_heads_cls_own/adcse-momentum-head"),
        "AdCSE, no head": runs("mechanisms_heads_cls_own/adcse-no-head"),
    },
    "SimCSE",
    runs("mechanisms_heads_cls_own/simcse"),
)
ADVERSARIES = question(
    {
        "none": runs("mechanisms_adversaries_own/no-adversaries"),
        "features, 0.3": runs("mechanisms_adversaries_own/features-3e-1"),
        "queue: keys of the last batch": runs("mechanisms_adversaries_own/queue-1"),
    },
    "random, 3e-3 (paper)",
    TRAINED["AdCSE, no head"][OWN],
)
RATES = Table(
    "",
    {
        f"{label} at 1e-4": {"of": runs(f"mechanisms_rates/{name}-1e-4")}
        for label, name in {"SimCSE": "simcse", "AdCSE, no head": "adcse", "ConSERT": "consert", "DCLR": "dclr"}.items()
    },
    [
        ("seeds", {"metric": "dev", "show": count}),
        ("STS-B dev", {"metric": "dev", "show": spread}),
        ("seven sets", {"metric": "average", "show": spread}),
    ],
)
_DECOUPLED = {
    "SimCSE, positive not in the denominator": "simcse-no-positive",
    "the same on ConSERT's views": "simcse-consert-views-no-positive",
}
DECOUPLED = {
    LAYERS: question(
        {label: runs(f"mechanisms_dclr/{name}") for label, name in _DECOUPLED.items()}
        | {"DCLR (paper)": TRAINED["DCLR"][LAYERS], f"{COMBINED}, at 1e-4": TRAINED[COMBINED][LAYERS]},
        "SimCSE",
        SIMCSE,
    ),
    OWN: question(
        {label: runs(f"mechanisms_dclr_own/{name}") for label, name in _DECOUPLED.items()}
        | {"DCLR (paper)": TRAINED["DCLR"][OWN], COMBINED: TRAINED[COMBINED][OWN]},
        "SimCSE",
        OWN_SIMCSE,
    ),
}


def _equilibrium(study: str, paper: Runs, simcse: Runs) -> Table:
    names = {
        "confusion, balanced, warm; discriminators at 1e-3": "slt-fai-equilibrium-discriminators-1e-3",
        "without AT": "slt-fai-no-at",
    }
    rows = {"SLT-FAI (paper), main grid": paper} | {label: runs(f"{study}/{name}") for label, name in names.items()}
    table = question(rows, "SimCSE", simcse, dev=counted_dev, average=counted_average)
    accuracy = ("accuracy, balanced", {"metric": last_accuracy, "show": number("{:.1%}")})
    return Table("", table.rows, [*table.columns, accuracy])


EQUILIBRIUM = _equilibrium("mechanisms_slt_fai", TRAINED["SLT-FAI over SimCSE"][LAYERS], SIMCSE)
EQUILIBRIUM_OWN = _equilibrium("mechanisms_slt_fai_own", TRAINED["SLT-FAI over SimCSE"][OWN], OWN_SIMCSE)
EQUILIBRIUM_CONSERT = question(
    {
        "ConSERT": TRAINED["ConSERT"][LAYERS],
        "SLT-FAI over ConSERT, lambda 50 %": TRAINED["SLT-FAI over ConSERT"][LAYERS],
        "lambda 90 %": runs("mechanisms_slt_fai/consert-slt-fai-lambda-09"),
    },
    "ConSERT",
    TRAINED["ConSERT"][LAYERS],
    dev=counted_dev,
    average=counted_average,
)
SPARED = question(
    {
        "SimCSE": SIMCSE,
        "PaSeR, no MLM, output tied": TRAINED[PHRASES][LAYERS],
        "encoder frozen for 100 steps, then at 3e-4": TRAINED[FROZEN][LAYERS],
    },
    "SimCSE",
    SIMCSE,
)
