"""Tables of the domain study: what transforms, trainings and ``adapt`` gain, and how good the label-free score is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.records import records
from benchmarks.statistics import best, paired_differences, rank_correlation, regret
from benchmarks.tables.render import (
    Part,
    Runs,
    Sentence,
    Table,
    Values,
    counted,
    gain,
    number,
    of_texts,
    spread,
)
from benchmarks.tables.similarity import SENTENCE_TERM, after
from benchmarks.tables.sources import BASE, COMBINED, LAYERS, OWN, SIF, TFIDF, TRAINED

DOMAINS = ("banking77", "clinc150", "stackoverflow")
TRANSFORM = "neighbours, medium"
ADAPT, LESS, ANY = "adapt, 2 points", "adapt, 0.5 points", "adapt, any loss"
"""Rows of ``adapt``, by how many points of general English it may lose."""
MEAN, STS = "scores/mean", "scores/stsb_test"
ONE = "{:.1f}"


def row(name: str, domain: str | None = None, encoder: str = "minilm") -> Runs:
    """Return the runs of a row, on one domain or on all."""
    found = {"study": "domains", "encoder": encoder, "method": name}
    return (found if domain is None else found | {"data": domain},)


HEADLINE = Sentence(
    "**Banking77, no labels, under 2 minutes of one CPU core: `st-extras adapt` lifts MAP@R of all-MiniLM-L6-v2 from "
    "{before} to {after}.**",
    {
        name: {"of": row(method, "banking77"), "metric": "scores/map_at_r", "show": number(ONE)}
        for name, method in {"before": "start", "after": ADAPT}.items()
    },
)


def mean_gain(ours: Values, theirs: Values) -> str:
    """Write the mean of the paired differences, without an interval."""
    return f"{statistics.mean(paired_differences(ours.by_seed(), theirs.by_seed()).values()):+.2f}"


def adapted(encoders: Mapping[str, str], other: str) -> Table:
    """Return the table of what ``adapt`` gains on each domain, beside TF-IDF, the base model and another budget.

    Args:
        encoders: titles by name.
        other: the row of ``adapt`` with the other budget.
    """
    budget = other.removeprefix("adapt, ")
    rows: dict[tuple[str, ...], Part] = {
        (title, domain): {
            "of": {
                "TF-IDF": row("TF-IDF of characters 3-5", domain, ""),
                BASE: row("start", domain, encoder),
                **{name: row(name, domain, encoder) for name in (ADAPT, other)},
            },
            "minus": dict.fromkeys((ADAPT, other), row("start", domain, encoder)),
        }
        for encoder, title in encoders.items()
        for domain in DOMAINS
    }
    columns: list[tuple[str, Part]] = [
        ("TF-IDF", {"which": "TF-IDF", "metric": MEAN, "show": number(ONE)}),
        (BASE, {"which": BASE, "metric": MEAN, "show": number(ONE)}),
        ("adapted", {"which": ADAPT, "metric": MEAN, "show": spread}),
        ("gain", {"which": ADAPT, "metric": MEAN, "show": gain}),
        (f"gain, {budget}", {"which": other, "metric": MEAN, "show": mean_gain}),
        ("STS-B before", {"which": BASE, "metric": STS, "show": number(ONE)}),
        ("after", {"which": ADAPT, "metric": STS, "show": number(ONE)}),
        (f"after, {budget}", {"which": other, "metric": STS, "show": number(ONE)}),
    ]
    return Table(("encoder", "domain"), rows, columns)


ADAPTED = adapted({"minilm": "all-MiniLM-L6-v2 (tuned)", "mpnet": "all-mpnet-base-v2 (tuned)"}, LESS)
ADAPTED_RAW = adapted(
    {
        "layers3": "first three layers of all-MiniLM-L6-v2 (raw)",
        "own2": "BERT-small trained here (raw)",
        "damaged71": "all-MiniLM-L6-v2, damaged",
    },
    ANY,
)

EVERY = Table(
    "row",
    {
        BASE if name == "start" else name: {
            "of": {domain: row(name, domain) for domain in DOMAINS} | {"all": row(name)}
        }
        for name in ("start", TRANSFORM, ADAPT, LESS, "whitened to 256")
    },
    [
        *((domain, {"which": domain, "metric": MEAN, "show": spread}) for domain in DOMAINS),
        ("STS-B test", {"which": "all", "metric": STS, "show": number(ONE)}),
    ],
)


def lowest_gain(ours: Values, theirs: Values) -> str:
    """Write the lowest mean gain of a domain."""
    before = theirs.by_unit()
    gains = (paired_differences(found, before[domain]).values() for domain, found in ours.by_unit().items())
    return f"{min(map(statistics.mean, gains)):+.2f}"


TRAININGS = Table(
    "training",
    {
        label: {
            "of": row(name),
            "minus": row("start"),
        }
        for label, name in {
            "DCLR guided by the base model, 14 % left out, 3e-5": "DCLR start 0.14, 3e-05, 25 steps",
            "SimCSE, 2e-5": "SimCSE 2e-5, 25 steps",
            "DCLR, no guide, 2e-5": "DCLR, no guide, 2e-5, 25 steps",
        }.items()
    },
    [
        ("gain", {"metric": MEAN, "show": gain}),
        ("worst domain", {"metric": MEAN, "show": lowest_gain}),
    ],
)

_LAYERS, _OWN, _GOOD = "STS, first three layers", "STS, BERT-small trained here", "domains, all-MiniLM-L6-v2"


def _beside(label: str, name: str = "", encoder: str = "minilm") -> dict[str, Runs]:
    """Return the runs of a label on both raw encoders, and those of a row of the domain study."""
    found = {_LAYERS: TRAINED[label][LAYERS], _OWN: TRAINED[label][OWN]}
    return found | ({_GOOD: row(name, encoder=encoder)} if name else {})


OVERVIEW = Table(
    "(seeds)",
    {
        TFIDF: {"of": _beside(TFIDF, "TF-IDF of characters 3-5", encoder="")},
        SIF: {"of": _beside(SIF, "SIF of input embeddings, first component removed")},
        BASE: {"of": _beside(BASE, "start")},
        "SimCSE": {"of": _beside("SimCSE", "SimCSE 2e-5, 25 steps")},
        "DCLR on ConSERT's views, then RepAL's sentence term": {
            "of": _beside(COMBINED),
            "metric": after(SENTENCE_TERM),
        },
        "`st-extras adapt`": {"of": {_GOOD: row(ADAPT)}},
    },
    [
        (_LAYERS, {"which": _LAYERS, "metric": "average", "show": counted}),
        (_OWN, {"which": _OWN, "metric": "average", "show": counted}),
        (_GOOD, {"which": _GOOD, "metric": MEAN, "show": counted}),
    ],
)


def label_free() -> list[dict[str, Any]]:
    """Return the label-free score and the gain of each row of the study that has both, but for those of ``adapt``.

    Each has its cell (encoder, domain and seed), its score, whether the score's interval is above 0, and its gain over
    the base model by the labels.
    """
    scored = [one for one in records("domains") if "judge" in one]
    base = {(one["encoder"], one["domain"]): one["scores"]["mean"] for one in scored if one["row"] == "start"}
    weights = {"confirmed": 0.5, "lexical": 0.5, "coherence": 1.0}  # those of LabelFreeComparison
    return [
        {
            "cell": (one["encoder"], one["domain"], one["seed"]),
            "score": sum(weight * one["judge"][name] for name, weight in weights.items()),
            "accepted": one["judge"]["low"] > 0,
            "gain": one["scores"]["mean"] - base[one["encoder"], one["domain"]],
        }
        for one in scored
        if one["row"] != "start" and not one["row"].startswith("adapt") and (one["encoder"], one["domain"]) in base
    ]


def label_free_table() -> Table:
    """Return the table of how the label-free score orders the rows of a cell, and what it picks."""
    cells: dict[Any, list[dict[str, Any]]] = {}
    for one in label_free():
        cells.setdefault(one["cell"], []).append(one)
    ranks, lost, gained = [], [], []
    for rows in cells.values():
        scores, gains = [one["score"] for one in rows], [one["gain"] for one in rows]
        ranks += [rank_correlation(scores, gains)] if len(rows) > 2 else []
        lost.append(regret([0.0, *scores], [0.0, *gains]))
        gained.append([0.0, *gains][best([0.0, *scores])])
    shown = {
        "rows": str(sum(map(len, cells.values()))),
        "rank correlation": f"{statistics.mean(ranks):.2f}",
        "mean regret": f"{statistics.mean(lost):.2f}",
        "worst regret": f"{max(lost):.2f}",
        "picked": f"{statistics.mean(gained):+.2f}",
        "worst picked": f"{min(gained):+.2f}",
    }
    return of_texts("domain", {"all": shown})


def acceptance_table() -> Table:
    """Return the table of which rows the label-free score accepts, by what they gain."""
    bounds = {
        "lost more than 0.5": (float("-inf"), -0.5),
        "between -0.5 and 0.5": (-0.5, 0.5),
        "gained 0.5 to 2": (0.5, 2.0),
        "gained more than 2": (2.0, float("inf")),
    }
    found = label_free()
    inside = {
        name: [one["accepted"] for one in found if low <= one["gain"] < high] for name, (low, high) in bounds.items()
    }
    return of_texts(
        "by the labels",
        {
            name: {
                "rows": str(len(rows)),
                "accepted": str(sum(rows)),
                "share": f"{sum(rows) / len(rows):.0%}" if rows else "-",
            }
            for name, rows in inside.items()
        },
    )
