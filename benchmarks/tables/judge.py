"""How good the label-free judge of ``adapt`` is: what it would have picked among the rows of the domain study."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import spearmanr

from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table

MEASURES = ("confirmed", "lexical", "coherence")
OWN_WEIGHTS = (0.5, 0.5, 1.0)
"""Those of ``LabelFreeComparison``."""
GRID = tuple(weights for weights in itertools.product((0.0, 0.5, 1.0), repeat=3) if any(weights))
HARM = 0.5  # points below the start that count as harm
_START = "start"


@dataclass(frozen=True)
class Changed:
    """A row of the study beside the start of its cell.

    Attributes:
        cell: encoder, domain and seed.
        row: what was done.
        gain: in the mean of 1-NN, V-measure and MAP@R, by the labels.
        measures: the judge's three.
        accepted: whether the judge's interval is above 0.
    """

    cell: tuple[str, str, int]
    row: str
    gain: float
    measures: tuple[float, float, float]
    accepted: bool

    def judged(self, weights: Sequence[float]) -> float:
        """Return the judge's gain with these weights."""
        return sum(weight * measure for weight, measure in zip(weights, self.measures, strict=True))


def changes(found: Iterable[dict[str, Any]]) -> list[Changed]:
    """Return all rows that have a start and were judged, but for those of ``adapt``, which are such rows again."""
    kept = [record for record in found if "judge" in record]
    starts = {(one["encoder"], one["domain"]): one["scores"]["mean"] for one in kept if one["row"] == _START}
    return [
        Changed(
            (one["encoder"], one["domain"], one["seed"]),
            one["row"],
            one["scores"]["mean"] - starts[one["encoder"], one["domain"]],
            tuple(one["judge"][name] for name in MEASURES),  # type: ignore[arg-type]
            one["judge"]["low"] > 0,
        )
        for one in kept
        if (one["encoder"], one["domain"]) in starts and one["row"] != _START and not one["row"].startswith("adapt")
    ]


def by_cell(found: Sequence[Changed]) -> list[list[Changed]]:
    """Return the rows of each cell and seed."""
    ordered = sorted(found, key=lambda one: one.cell)
    return [list(rows) for _, rows in itertools.groupby(ordered, key=lambda one: one.cell)]


def picked_gain(rows: Sequence[Changed], weights: Sequence[float]) -> float:
    """Return what is gained by the row that the judge likes best; 0, the start's, if it likes none."""
    best = max(rows, key=lambda one: one.judged(weights))
    return best.gain if best.judged(weights) > 0 else 0.0


def regrets(found: Sequence[Changed], weights: Sequence[float]) -> list[float]:
    """Return for each cell and seed how much the picked row stays below the best, start included."""
    return [max(0.0, *(one.gain for one in rows)) - picked_gain(rows, weights) for rows in by_cell(found)]


def best_weights(found: Sequence[Changed]) -> tuple[float, ...]:
    """Return the weights of the least mean regret; of equals, the first."""
    return min(GRID, key=lambda weights: statistics.mean(regrets(found, weights)))


def judge_table() -> str:
    """Tabulate the judge's quality, by its own weights and by weights chosen on the other domains."""
    found = changes(records("domains"))
    if not found:
        return ""
    rows = [_line("all", found, OWN_WEIGHTS, "its own")]
    for domain in sorted({one.cell[1] for one in found}):
        inside = [one for one in found if one.cell[1] == domain]
        others = [one for one in found if one.cell[1] != domain]
        rows.append(_line(domain, inside, OWN_WEIGHTS, "its own"))
        if others:
            chosen = best_weights(others)
            named = " ".join(f"{weight:g}" for weight in chosen)
            rows.append(_line(domain, inside, chosen, f"{named}, chosen on the others"))
    titles = ["domain", "weights", "rows", "rank correlation", "mean regret", "worst regret", "picked", "worst picked"]
    return markdown_table(titles, rows, left=(0, 1))


def acceptance_table() -> str:
    """Tabulate which rows the judge accepts, by what they gain."""
    found = changes(records("domains"))
    bounds = [
        (f"lost more than {HARM:g}", float("-inf"), -HARM),
        (f"between -{HARM:g} and {HARM:g}", -HARM, HARM),
        (f"gained {HARM:g} to 2", HARM, 2.0),
        ("gained more than 2", 2.0, float("inf")),
    ]
    rows = []
    for name, low, high in bounds:
        inside = [one for one in found if low <= one.gain < high]
        accepted = sum(one.accepted for one in inside)
        rows.append([name, str(len(inside)), str(accepted), f"{accepted / len(inside):.0%}" if inside else "-"])
    return markdown_table(["by the labels", "rows", "accepted", "share"], rows)


def _line(domain: str, found: Sequence[Changed], weights: Sequence[float], named: str) -> list[str]:
    cells = by_cell(found)
    ranks = [
        float(spearmanr([one.judged(weights) for one in rows], [one.gain for one in rows]).statistic)
        for rows in cells
        if len(rows) > 2
    ]
    lost, picked = regrets(found, weights), [picked_gain(rows, weights) for rows in cells]
    return [
        domain,
        named,
        str(len(found)),
        f"{statistics.mean(ranks):.2f}" if ranks else "-",
        f"{statistics.mean(lost):.2f}",
        f"{max(lost):.2f}",
        f"{statistics.mean(picked):+.2f}",
        f"{min(picked):+.2f}",
    ]
