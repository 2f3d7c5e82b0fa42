"""The two pictures of the pages, from the records: functions that read, and functions that draw on Axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import matplotlib as mpl

from benchmarks.records import ROOT, records
from benchmarks.statistics import mean_interval
from benchmarks.tables.search import COLLECTIONS
from benchmarks.tables.strength import FEW, gains_by_count

DOCS = ROOT.parent / "docs"
NAMED = {"banking77": "Banking77", "clinc150": "CLINC150", "stackoverflow": "StackOverflow"}
ENCODER = "minilm"
FUSED = {
    "base model and BM25, fused by ranks (RRF)": "start, RRF",
    "adapt-search + BM25, one weight": "adapt + BM25, 0.2",
}
COLOURS = ("0.65", "tab:blue")


def draw_few_texts(found: Mapping[str, Mapping[int, list[float]]]) -> Any:
    """Draw a line for each domain: what ``adapt`` gains from how many texts, with the interval over draws of them."""
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for number, ((title, by_count), marker) in enumerate(zip(found.items(), "os^", strict=True)):
        shown = {count: mean_interval(gains) for count, gains in by_count.items() if len(gains) > 1}
        means, lows, highs = zip(*shown.values(), strict=True)
        sides = [[mean - low for mean, low in zip(means, lows, strict=True)]]
        sides.append([high - mean for mean, high in zip(means, highs, strict=True)])
        places = [count * (0.96 + 0.04 * number) for count in shown]  # side by side
        ax.errorbar(places, means, yerr=sides, marker=marker, markersize=5, capsize=3, label=title)
    ax.axhline(0, color="black", linewidth=1)
    ax.set_xscale("log")
    ax.set_xticks(FEW, [f"{count:,}" for count in FEW])
    ax.minorticks_off()
    ax.set_xlabel("texts without labels, all-MiniLM-L6-v2")
    ax.set_ylabel("points gained by adapt")
    figure.legend(frameon=False, loc="outside upper center", ncols=len(found))
    ax.spines[["top", "right"]].set_visible(False)
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
    "few_texts.svg": lambda: draw_few_texts({title: gains_by_count(ENCODER, name) for name, title in NAMED.items()}),
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
