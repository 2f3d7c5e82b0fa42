"""Tables of the domain study: what ``adapt`` and short trainings gain, and what the label-free score accepts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.records import records
from benchmarks.statistics import paired_differences
from benchmarks.tables.render import Part, Runs, Sentence, Table, Values, gain, number, of_texts, spread
from benchmarks.tables.sources import BASE

DOMAINS = ("banking77", "clinc150", "stackoverflow")
ADAPT, LESS = "adapt, 2 points", "adapt, 0.5 points"
"""Rows of ``adapt``, by how many points of general English it may lose."""
MEAN, STS = "scores/mean", "scores/stsb_test"
ONE = "{:.1f}"


def row(name: str, domain: str | None = None, encoder: str = "minilm") -> Runs:
    """Return the runs of a row, on one domain or on all."""
    found = {"study": "domains", "encoder": encoder, "method": name}
    return (found if domain is None else found | {"data": domain},)


def lowest_gain(ours: Values, theirs: Values) -> str:
    """Write the lowest mean gain of a domain."""
    before = theirs.by_unit()
    gains = (paired_differences(found, before[domain]).values() for domain, found in ours.by_unit().items())
    return f"{min(map(statistics.mean, gains)):+.1f}"


def mean_gain(ours: Values, theirs: Values) -> str:
    """Write the mean of the paired differences, without an interval."""
    return f"{statistics.mean(paired_differences(ours.by_seed(), theirs.by_seed()).values()):+.2f}"


_MAP = "scores/map_at_r"
HEADLINE = Sentence(
    "**MAP@R of all-MiniLM-L6-v2 on Banking77: {before} before, {after} after, without labels, in under two minutes of "
    "one CPU core. Lowest gain of three domains: {lowest}.**",
    {
        "before": {"of": row("start", "banking77"), "metric": _MAP, "show": number(ONE)},
        "after": {"of": row(ADAPT, "banking77"), "metric": _MAP, "show": number(ONE)},
        "lowest": {"of": row(ADAPT), "minus": row("start"), "metric": _MAP, "show": lowest_gain},
    },
)


def adapted(encoders: Mapping[str, str]) -> Table:
    """Return the table of what ``adapt`` gains on each domain, beside TF-IDF, the base model and a smaller budget.

    Args:
        encoders: titles by name.
    """
    rows: dict[tuple[str, ...], Part] = {
        (title, domain): {
            "of": {
                "TF-IDF": row("TF-IDF of characters 3-5", domain, ""),
                BASE: row("start", domain, encoder),
                **{name: row(name, domain, encoder) for name in (ADAPT, LESS)},
            },
            "minus": dict.fromkeys((ADAPT, LESS), row("start", domain, encoder)),
        }
        for encoder, title in encoders.items()
        for domain in DOMAINS
    }
    columns: list[tuple[str, Part]] = [
        ("TF-IDF", {"which": "TF-IDF", "metric": MEAN, "show": number(ONE)}),
        (BASE, {"which": BASE, "metric": MEAN, "show": number(ONE)}),
        ("adapted", {"which": ADAPT, "metric": MEAN, "show": spread}),
        ("gain", {"which": ADAPT, "metric": MEAN, "show": gain}),
        ("gain, 0.5 points", {"which": LESS, "metric": MEAN, "show": mean_gain}),
        ("STS-B before", {"which": BASE, "metric": STS, "show": number(ONE)}),
        ("after", {"which": ADAPT, "metric": STS, "show": number(ONE)}),
        ("after, 0.5 points", {"which": LESS, "metric": STS, "show": number(ONE)}),
    ]
    return Table(("encoder", "domain"), rows, columns)


ADAPTED = adapted({"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"})
_TRAININGS = {
    "`adapt`": ADAPT,
    "decoupled SimCSE with DCLR's noise, 2e-5": "DCLR, no guide, 2e-5, 25 steps",
    "SimCSE, 2e-5": "SimCSE 2e-5, 25 steps",
    "DCLR guided by the base model, 14 % left out, 3e-5": "DCLR start 0.14, 3e-05, 25 steps",
    "whitened": "whitened",
}
TRAININGS = Table(
    "on all-MiniLM-L6-v2",
    {label: {"of": row(name), "minus": row("start")} for label, name in _TRAININGS.items()},
    [("gain", {"metric": MEAN, "show": gain}), ("worst domain", {"metric": MEAN, "show": lowest_gain})],
)


def label_free() -> list[dict[str, Any]]:
    """Return whether the label-free score accepts each row of the study that has one, and what the row gains.

    Those of ``adapt`` are left out. A gain is that over the base model, by the labels.
    """
    scored = [one for one in records("domains") if "judge" in one]
    base = {(one["encoder"], one["domain"]): one["scores"]["mean"] for one in scored if one["row"] == "start"}
    return [
        {
            "accepted": one["judge"]["low"] > 0,
            "gain": one["scores"]["mean"] - base[one["encoder"], one["domain"]],
        }
        for one in scored
        if one["row"] != "start" and not one["row"].startswith("adapt") and (one["encoder"], one["domain"]) in base
    ]


def acceptance_table() -> Table:
    """Return the table of which rows the label-free score accepts, by what they gain."""
    bounds = {
        "lost more than 0.5": (float("-inf"), -0.5),
        "between -0.5 and 0.5": (-0.5, 0.5),
        "gained 0.5 to 2": (0.5, 2.0),
        "gained more than 2": (2.0, float("inf")),
    }
    found = label_free()
    rows: dict[str, dict[str, str]] = {}
    for name, (low, high) in bounds.items():
        inside = [one["accepted"] for one in found if low <= one["gain"] < high]
        share = f"{sum(inside) / len(inside):.0%}" if inside else "-"
        rows[name] = {"rows": str(len(inside)), "accepted": str(sum(inside)), "share": share}
    return of_texts("by the labels", rows)
