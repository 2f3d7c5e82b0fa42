"""Tables of the study few_texts: what the transform that ``adapt`` chooses gains and loses, from how many texts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from benchmarks.records import records
from benchmarks.studies import TRANSFORMS
from benchmarks.tables.render import Sentence, Table, of_texts

FEW = (200, 300, 500, 1000, 2000, 4000, 12_000)
"""Numbers of texts of the study few_texts."""
STRENGTHS = (*TRANSFORMS.values(),)
SHOWN = {
    "minilm": "all-MiniLM-L6-v2",
    "mpnet": "all-mpnet-base-v2",
    "damaged76": "all-MiniLM-L6-v2, damaged",
    "layers5": "its first 5 layers",
    "layers3": "its first 3 layers",
    "layers3-cls": "its first 3 layers, [CLS] pooling",
    "smollm2-plain": "SmolLM2-135M-Instruct",
}
"""The encoders."""
MAX_LOSS, SHARE, ENOUGH, SMALLEST, RAW = 2.0, 1 / 8, 0.75, 30.0, 0.7
"""The rule of ``st_extras/adaptation/choice.py``, which tables cannot import: it needs torch."""
Cell = dict[str, Any]
"""A record: an encoder and a domain."""
Rule = Callable[[Cell], str]
"""Chooses a row of a cell."""


def cells() -> list[Cell]:
    """Return the records with the most texts of each encoder and domain, in all draws."""
    found = records("few_texts")
    most: dict[tuple[str, str], int] = {}
    for one in found:
        place = one["encoder"], one["domain"]
        most[place] = max(one["fitted"], most.get(place, 0))
    return [one for one in found if one["fitted"] == most[one["encoder"], one["domain"]]]


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


def always(name: str, cell: Cell) -> str:
    """Return the row of this name, whatever the cell."""
    return name


def strengths_table() -> Table:
    """Return the table of what ``adapt`` and the strongest transform gain and lose: means over domains and draws."""
    found = cells()
    rules: dict[str, Rule] = {
        "`adapt`": by_default,
        "always whitening": partial(always, STRENGTHS[-1]),
    }
    rows: dict[str, dict[str, str]] = {}
    for encoder, title in SHOWN.items():
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


def gains_by_count(encoder: str, domain: str) -> dict[int, list[float]]:
    """Return what ``adapt`` gains by labels in each draw of so many texts; the largest number is that of all texts."""
    found: dict[int, list[float]] = {}
    for cell in records("few_texts"):
        if (cell["encoder"], cell["domain"]) == (encoder, domain):
            found.setdefault(cell["fitted"], []).append(gained(cell, by_default(cell)))
    return dict(sorted(found.items()))


def few_texts_table() -> Table:
    """Return the table of gains by the number of texts: mean over all three domains and draws, and the lowest."""
    titles = {one: SHOWN.get(one, one) for one in ("minilm", "mpnet", "layers3", "layers3-cls")}
    rows: dict[str, dict[str, str]] = {}
    found = records("few_texts")
    for count in FEW:
        row = rows.setdefault(f"{count:,}", {})
        for encoder, title in titles.items():
            cells = [one for one in found if (one["encoder"], _drawn(one)) == (encoder, count)]
            if len({one["domain"] for one in cells}) == 3:
                gains = [gained(one, by_default(one)) for one in cells]
                row[title] = f"{statistics.mean(gains):+.1f} ({min(gains):+.1f})"
    return of_texts("texts", {count: row for count, row in rows.items() if row})


def _drawn(cell: Cell) -> int:
    """Return how many texts were asked for: all of a domain that has fewer than 12,000 stand for 12,000."""
    return int(cell["run"].split("-")[-2])


def promised_cells(*, few: bool) -> list[Cell]:
    """Return the records that expected points are computed from: of fewer than 500 texts, or of 500 and more."""
    return [one for one in records("few_texts") if (one["fitted"] < 500) is few]


def ratios(found: Iterable[Cell]) -> list[float]:
    """Return the points by labels for a label-free gain of 1, of each strength that the label-free score accepts."""
    return [
        gained(cell, name) / cell["rows"][name]["gain"]
        for cell in found
        for name in STRENGTHS
        if cell["rows"][name]["low"] > 0
    ]


def points_per_gain(found: Iterable[Cell]) -> tuple[float, float]:
    """Return what a label-free gain of 1 stands for by labels, in points: 10th and 90th percentile."""
    deciles = statistics.quantiles(ratios(found), n=10, method="inclusive")
    return deciles[0], deciles[-1]


def promise() -> Sentence:
    """Return the sentence of how often points lie where they are expected, in a domain that expected nothing."""
    parts = []
    for title, few in (("200 to 499", True), ("500 and more", False)):
        found, held = promised_cells(few=few), []
        for domain in sorted({one["domain"] for one in found}):
            low, high = points_per_gain(one for one in found if one["domain"] != domain)
            held += [low <= one <= high for one in ratios(one for one in found if one["domain"] == domain)]
        parts.append(f"{sum(held)} of {len(held):,} from {title} texts")
    return Sentence(f"Computed from two domains, the range held in the third for {' and '.join(parts)}.", {})
