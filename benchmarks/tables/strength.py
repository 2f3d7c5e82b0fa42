"""Tables of the strength study: what each strength of the transform gains and loses, and what rules of choice do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.records import records
from benchmarks.tables.domains import DOMAINS
from benchmarks.tables.render import Table, of_texts

STRENGTHS = ("slight", "gentle", "medium", "white")
ENCODERS = {
    "minilm": "all-MiniLM-L6-v2",
    "mpnet": "all-mpnet-base-v2",
    "damaged76": "all-MiniLM-L6-v2, damaged",
    "damaged71": "the same, damaged more",
    "layers5": "all-MiniLM-L6-v2, first 5 layers",
    "layers4": "first 4 layers",
    "layers3": "first 3 layers",
    "layers2": "first 2 layers",
    "smollm2-plain": "SmolLM2-135M-Instruct",
    "gemma3-plain": "Gemma 3 270M",
}
GOOD = ("minilm", "mpnet")
MAX_LOSS, SHARE, ENOUGH, SMALLEST, RAW = 2.0, 1 / 8, 0.75, 30.0, 0.7
"""The rule of ``st_extras/adaptation/choice.py``, which tables cannot import: it needs torch."""
SHARES = {"never": -math.inf, "0": 0.0, "1/16": 1 / 16, "1/8": SHARE, "1/4": 1 / 4, "1/2": 1 / 2, "always": math.inf}
Cell = dict[str, Any]
"""A record: an encoder and a domain."""
Rule = Callable[[Cell], str]
"""Chooses a row of a cell."""


def cells(*, fewer: bool = False) -> list[Cell]:
    """Return the records with the most fitting texts of each encoder and domain, or the others."""
    found = records("strength")
    most: dict[tuple[str, str], int] = {}
    for one in found:
        place = one["encoder"], one["domain"]
        most[place] = max(one["fitted"], most.get(place, 0))
    return [one for one in found if (one["fitted"] < most[one["encoder"], one["domain"]]) is fewer]


def gained(cell: Cell, row: str, measure: str = "mean") -> float:
    """Return how many points a row is above the base model: by labels, or on ``general`` English."""
    return float(cell["rows"][row][measure] - cell["rows"]["start"][measure])


def by_rule(cell: Cell, budget: float = MAX_LOSS, share: float = SHARE, enough: float = ENOUGH) -> str:
    """Return the strength that ``adapt`` chooses, or "start".

    Args:
        cell: the record.
        budget: points of general English that may be lost.
        share: of the budget that the medium transform may lose for whitening to be tried.
        enough: share of the best label-free gain that a gentler strength needs.
    """
    counts = cell["rows"]["start"]["general"] >= SMALLEST
    whitens = not counts or -gained(cell, "medium", "general") <= share * budget
    accepted = [
        name
        for name in (STRENGTHS if whitens else STRENGTHS[:-1])
        if cell["rows"][name]["low"] > 0 and (not counts or -gained(cell, name, "general") <= budget)
    ]
    most = max((cell["rows"][name]["gain"] for name in accepted), default=0.0)
    return next((name for name in accepted if cell["rows"][name]["gain"] >= enough * most), "start")


def by_default(cell: Cell) -> str:
    """Return what ``adapt`` chooses if no budget is given: any loss is allowed for a raw encoder."""
    return by_rule(cell, 200.0 if cell["mean_cosine"] > RAW else MAX_LOSS)


def by_labels(cell: Cell, budget: float = math.inf) -> str:
    """Return the strength that is best by labels, of those that lose at most ``budget`` points of general English."""
    allowed = [name for name in STRENGTHS if -gained(cell, name, "general") <= budget]
    return max(["start", *allowed], key=partial(gained, cell))


def always(name: str, cell: Cell) -> str:
    """Return the row of this name, whatever the cell."""
    return name


def best_shares(of: Sequence[Cell], budget: float) -> list[str]:
    """Return the shares, of SHARES, with the highest mean gain; several if they choose alike."""
    means = {name: statistics.mean(gained(c, by_rule(c, budget, s)) for c in of) for name, s in SHARES.items()}
    return [name for name, mean in means.items() if math.isclose(mean, max(means.values()))]


def on_the_others(of: Sequence[Cell], domain: str, budget: float) -> list[str]:
    """Return the shares that are best on the domains but for one (leave-one-domain-out)."""
    return best_shares([cell for cell in of if cell["domain"] != domain], budget)


def chosen_on_the_others(of: Sequence[Cell], budget: float, which: int) -> Rule:
    """Return the rule whose share is best on the other domains; of several, the first or last (``which``: 0, -1)."""
    shares = {domain: SHARES[on_the_others(of, domain, budget)[which]] for domain in DOMAINS}
    return lambda cell: by_rule(cell, budget, shares[cell["domain"]])


def strengths_table() -> Table:
    """Return the table of what each strength and ``adapt`` gain and lose: means over the domains."""
    found = cells()
    titles = (*STRENGTHS[:-1], "whitening")
    rules: dict[str, Rule] = {
        **{title: partial(always, name) for title, name in zip(titles, STRENGTHS, strict=True)},
        "`adapt`": by_default,
        "`adapt`, 0.5 points": partial(by_rule, budget=0.5),
    }
    rows: dict[str, dict[str, str]] = {}
    for encoder, title in ENCODERS.items():
        of = [cell for cell in found if cell["encoder"] == encoder]
        if not of:
            continue
        general = statistics.mean(cell["rows"]["start"]["general"] for cell in of)
        rows[title] = {"general English": f"{general:.1f}"} | {
            name: " / ".join(
                f"{statistics.mean(gained(cell, rule(cell), measure) for cell in of):+.1f}"
                for measure in ("mean", "general")
            )
            for name, rule in rules.items()
        }
    return of_texts("encoder", rows)


def rules_table() -> Table:
    """Return the table of rules: mean and lowest gain, what the best strength has more, and general points lost."""
    found = cells()
    rules: dict[str, Rule] = {
        "**2 points, any loss where raw** (default)": by_default,
        "2 points": by_rule,
        "2 points, whitening always tried": partial(by_rule, share=math.inf),
        "2 points, share from the other domains (smallest)": chosen_on_the_others(found, MAX_LOSS, 0),
        "2 points, share from the other domains (largest)": chosen_on_the_others(found, MAX_LOSS, -1),
        "0.5 points": partial(by_rule, budget=0.5),
        "any loss": partial(by_rule, budget=200.0),
        **{f"2 points, {enough:g} of the best score": partial(by_rule, enough=enough) for enough in (0.6, 0.9, 1.0)},
        "best by labels within 2 points": partial(by_labels, budget=MAX_LOSS),
        "best by labels": by_labels,
    }
    return of_texts("rule", {name: row_of_rule(rule, found) for name, rule in rules.items()})


def row_of_rule(rule: Rule, of: Sequence[Cell]) -> dict[str, str]:
    """Return the columns of a rule."""
    gains = [gained(cell, rule(cell)) for cell in of]
    good = [gain for gain, cell in zip(gains, of, strict=True) if cell["encoder"] in GOOD]
    others = [gain for gain, cell in zip(gains, of, strict=True) if cell["encoder"] not in GOOD]
    missed = [gained(cell, by_labels(cell)) - gain for gain, cell in zip(gains, of, strict=True)]
    lost = [-gained(cell, rule(cell), "general") for cell in of]
    return {
        "gain": f"{statistics.mean(gains):+.2f}",
        "good encoders": f"{statistics.mean(good):+.2f}",
        "raw and damaged": f"{statistics.mean(others):+.2f}",
        "lowest": f"{min(gains):+.1f}",
        "mean regret": f"{statistics.mean(missed):.2f}",
        "worst regret": f"{max(missed):.1f}",
        "general lost": f"{statistics.mean(lost):+.2f}",
        "most lost": f"{max(lost):+.1f}",
    }


def points_per_gain() -> tuple[float, float]:
    """Return what a label-free gain of 1 stands for by labels, in points: 10th and 90th percentile of all strengths.

    Gains of 0.01 and less say too little and are left out.
    """
    ratios = [
        gained(cell, name) / cell["rows"][name]["gain"]
        for cell in [*cells(), *cells(fewer=True)]
        for name in STRENGTHS
        if cell["rows"][name]["gain"] > 0.01
    ]
    deciles = statistics.quantiles(ratios, n=10, method="inclusive")
    return deciles[0], deciles[-1]
