"""Tables of the domain study: what ``adapt`` and short trainings gain, and what the label-free score accepts."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.records import records
from benchmarks.statistics import paired_differences
from benchmarks.tables.render import Runs, Sentence, Table, Values, gain, number, spread
from benchmarks.tables.sources import BASE
from benchmarks.tables.strength import STRENGTHS, gained

DOMAINS = ("banking77", "clinc150", "stackoverflow")
ADAPT, LESS = "adapt, 2 points", "adapt, 0.5 points"
"""Rows of ``adapt``, by how many points of general English it may lose."""
MEAN, STS = "scores/mean", "scores/stsb_test"
ONE = "{:.1f}"


def row(name: str, domain: str | None = None, encoder: str = "minilm") -> Runs:
    """Return the runs of a row, on one domain or on all."""
    found = {"study": "domains", "encoder": encoder, "method": name}
    return (found if domain is None else found | {"data": domain},)


def mean_gain(ours: Values, theirs: Values) -> str:
    """Write the mean of the paired differences, without an interval."""
    return f"{statistics.mean(paired_differences(ours.by_seed(), theirs.by_seed()).values()):+.2f}"


ADAPTED = Table(
    "domain",
    {
        domain: {
            "of": {
                "TF-IDF": row("TF-IDF of characters 3-5", domain, ""),
                BASE: row("start", domain),
                **{name: row(name, domain) for name in (ADAPT, LESS)},
            },
            "minus": dict.fromkeys((ADAPT, LESS), row("start", domain)),
        }
        for domain in DOMAINS
    },
    [
        ("TF-IDF", {"which": "TF-IDF", "metric": MEAN, "show": number(ONE)}),
        (BASE, {"which": BASE, "metric": MEAN, "show": number(ONE)}),
        ("adapted", {"which": ADAPT, "metric": MEAN, "show": spread}),
        ("gain", {"which": ADAPT, "metric": MEAN, "show": gain}),
        ("gain, 0.5 points", {"which": LESS, "metric": MEAN, "show": mean_gain}),
        ("STS-B before", {"which": BASE, "metric": STS, "show": number(ONE)}),
        ("after", {"which": ADAPT, "metric": STS, "show": number(ONE)}),
        ("after, 0.5 points", {"which": LESS, "metric": STS, "show": number(ONE)}),
    ],
)
"""What ``adapt`` gains on each domain, beside TF-IDF, the base model and a smaller budget."""
_TRAININGS = {
    "adapt": ADAPT,
    "guided": "DCLR start 0.14, 3e-05, 25 steps",
    "simcse": "SimCSE 2e-5, 25 steps",
}
TRAININGS = Sentence(
    "Mean gain on the three domains: `adapt` {adapt}; DCLR guided by the base model, with 14 % of the pairs left out, "
    "{guided}; SimCSE {simcse}.",
    {
        name: {"of": row(label), "minus": row("start"), "metric": MEAN, "show": gain}
        for name, label in _TRAININGS.items()
    },
)


def label_free() -> list[dict[str, Any]]:
    """Return whether the label-free score accepts each transform and training, and what it gains by labels.

    Those are the rows of this study that have a score, but for ``adapt``, and the strengths of the study few_texts.
    """
    scored = [one for one in records("domains") if "judge" in one]
    base = {(one["encoder"], one["domain"]): one["scores"]["mean"] for one in scored if one["row"] == "start"}
    found = [
        (one["judge"]["low"], one["scores"]["mean"] - base[one["encoder"], one["domain"]])
        for one in scored
        if one["row"] != "start" and not one["row"].startswith("adapt")
    ]
    found += [(cell["rows"][name]["low"], gained(cell, name)) for cell in records("few_texts") for name in STRENGTHS]
    return [{"accepted": low > 0, "gain": points} for low, points in found]


def acceptance() -> Sentence:
    """Return the sentence of which transforms and trainings the label-free score accepts, by what they gain."""
    found = label_free()
    lost = [one["accepted"] for one in found if one["gain"] < -0.5]
    little = [one["accepted"] for one in found if -0.5 <= one["gain"] < 2]
    much = [one["accepted"] for one in found if one["gain"] >= 2]
    return Sentence(
        f"Of {len(found):,} transforms and trainings it accepted {sum(lost)} of the {len(lost)} that lost more than "
        f"half a point by labels, {sum(little)} of the {len(little)} that changed by -0.5 to +2 points, and "
        f"{sum(much):,} of the {len(much):,} that gained more.",
        {},
    )
