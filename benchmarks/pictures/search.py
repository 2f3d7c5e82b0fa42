"""Hybrid search by collection: what BM25 gives the base model by ranks, and ``adapt-search`` by one weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.records import records
from benchmarks.tables.search import COLLECTIONS

ENCODER = "minilm"
FUSED = {
    "base model and BM25, fused by ranks (RRF)": "start, RRF",
    "adapt-search + BM25, one weight": "adapt + BM25, 0.2",
}
COLOURS = ("0.65", "tab:blue")


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
