"""The two pictures of the pages, from the records: functions that read, and functions that draw on Axes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib as mpl

from benchmarks.records import ROOT, records
from benchmarks.tables.domains import ADAPT, DOMAINS, row
from benchmarks.tables.render import values
from benchmarks.tables.search import COLLECTIONS

DOCS = ROOT.parent / "docs"
NAMED = {"banking77": "Banking77", "clinc150": "CLINC150", "stackoverflow": "StackOverflow"}
ENCODER = "minilm"
FUSED = {
    "base model and BM25, fused by ranks (RRF)": "start, RRF",
    "adapt-search + BM25, one weight": "adapt + BM25, 0.2",
}
COLOURS = ("0.65", "tab:blue")


def adapted_scores() -> dict[str, tuple[float, float]]:
    """Return MAP@R of all-MiniLM-L6-v2 by domain: of the base model, and after ``adapt`` as the mean over seeds."""
    return {
        NAMED[domain]: tuple(
            statistics.mean(values(row(method, domain), ["scores/map_at_r"]).all()) for method in ("start", ADAPT)
        )
        for domain in DOMAINS
    }


def draw_adapted(scores: Mapping[str, tuple[float, float]]) -> Any:
    """Draw an arrow for each domain from the base model to what ``adapt`` made of it, with both figures at its ends."""
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 0.55 * len(scores) + 1.1), layout="constrained")
    for place, (start, end) in enumerate(scores.values()):
        ax.annotate("", (end, place), (start, place), arrowprops={"arrowstyle": "-|>", "linewidth": 2.5, "shrinkB": 0})
        ax.plot([start], [place], "o", color="black", markerfacecolor="white", markersize=8)
        ax.text(start - 0.5, place, f"{start:.1f}", ha="right", va="center")
        ax.text(end + 0.4, place, f"{end:.1f}", ha="left", va="center", weight="bold")
    ax.set_yticks(range(len(scores)), labels=list(scores))
    ax.set_ylim(len(scores) - 0.4, -0.6)
    ends = [value for pair in scores.values() for value in pair]
    ax.set_xlim(min(ends) - 3, max(ends) + 3)
    ax.set_xlabel("MAP@R x 100, all-MiniLM-L6-v2: base model, and after adapt, no labels")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return figure


def gains() -> dict[str, tuple[float, dict[str, float]]]:
    """Return, by collection, the base model's nDCG@10 times 100, and what each row of FUSED gains."""
    rows = {record["collection"]: record["rows"] for record in records("hybrid") if record["encoder"] == ENCODER}
    return {
        title: (
            rows[name]["start"]["ndcg@10"],
            {label: rows[name][row]["difference"] for label, row in FUSED.items()},
        )
        for name, title in COLLECTIONS.items()
    }


def draw_gains(found: Mapping[str, tuple[float, Mapping[str, float]]]) -> Any:
    """Draw two bars for each collection, from the base model's nDCG@10 at 0."""
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 0.52 * len(found) + 1.6), layout="constrained")
    for number, (label, colour) in enumerate(zip(FUSED, COLOURS, strict=True)):
        bars = [of_rows[label] for _, of_rows in found.values()]
        places = [place + 0.36 * number - 0.18 for place in range(len(found))]
        drawn = ax.barh(places, bars, height=0.34, color=colour, label=label)
        ax.bar_label(drawn, [f"{bar:+.1f}" for bar in bars], padding=3, fontsize="small")
    ax.set_yticks(range(len(found)), labels=[f"{title} ({base:.1f})" for title, (base, _) in found.items()])
    ax.invert_yaxis()
    ax.axvline(0, color="black", linewidth=1)
    ax.margins(x=0.12)
    ax.set_xlabel("gain in nDCG@10 x 100; in brackets all-MiniLM-L6-v2 alone", fontsize="small")
    figure.legend(fontsize="small", loc="outside upper center", frameon=False, ncols=1)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return figure


PICTURES: dict[str, Callable[[], Any]] = {
    "adapted.svg": lambda: draw_adapted(adapted_scores()),
    "hybrid.svg": lambda: draw_gains(gains()),
}
"""File name -> figure. Backgrounds are white, so that they are read on a dark page too."""


def draw() -> None:
    """Draw every picture."""
    mpl.use("agg")
    from matplotlib import pyplot as plt

    DOCS.mkdir(exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "st_extras"  # the same file at every run
    for name, make in PICTURES.items():
        figure = make()
        figure.savefig(DOCS / name, metadata={"Date": None})
        plt.close(figure)
