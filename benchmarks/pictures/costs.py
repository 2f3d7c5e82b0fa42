"""Gain beside cost of the trainings on sentence similarity, and gains on the domains."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.records import long_table
from benchmarks.tables.cost import SPEED
from benchmarks.tables.domains import ADAPT, DOMAINS, row
from benchmarks.tables.render import values
from benchmarks.tables.sources import LAYERS, SIF, TFIDF, TRAINED

STEP = {
    "SimCSE": "simcse",
    "DCLR": "dclr, table",
    "DCLR, no guide": "dclr",
    "AdCSE": "adcse",
    "AdCSE, no head": "adcse, no head",
    "AdCSE, searched: no head, adversaries from features at 0.3": "adcse, no head",
    "ConSERT": "consert",
    "SLT-FAI over SimCSE": "slt-fai",
    "PaSeR, searched: no MLM, decoder at 1e-3": "paser, no mlm",
    "PaSeR, searched: frozen for 100 steps, at 3e-4": "paser, no mlm",
}
"""The measured step of a row; SLT-FAI over ConSERT and the combination have none."""
ENCODERS = {
    "minilm": "all-MiniLM-L6-v2 (tuned)",
    "layers3": "its first three layers (raw)",
    "own": "BERT-small trained here (raw)",
}
MARKERS = {"minilm": ("o", "black"), "layers3": ("s", "0.6"), "own": ("^", "white")}
"""Marker and its colour, by encoder of the domain study."""
NAMED = {"banking77": "Banking77", "clinc150": "CLINC150", "stackoverflow": "StackOverflow"}


def trainings() -> dict[str, tuple[list[float], float | None]]:
    """Return, for each row of the main table, the seven-set average by seed, and the seconds to the step that is kept.

    Seconds are those of the training steps; None where the speed was not measured.
    """
    found: dict[str, tuple[list[float], float | None]] = {}
    for label, of in TRAINED.items():
        if label not in (TFIDF, SIF):
            steps = statistics.mean(values(of[LAYERS], ["best_step"]).all())
            averages = values(of[LAYERS], ["average"]).all()
            found[label] = (averages, seconds_of(label) * steps if label in STEP or not steps else None)
    return found


def draw_trainings(rows: Mapping[str, tuple[list[float], float | None]]) -> Any:
    """Draw averages on the left, with a tick for each seed and the baselines as lines, and seconds on the right."""
    from matplotlib import pyplot as plt

    figure, (gain, cost) = plt.subplots(
        1, 2, figsize=(10, 0.34 * len(rows) + 1.4), sharey=True, layout="constrained", width_ratios=(3, 2)
    )
    for place, (averages, seconds) in enumerate(rows.values()):
        gain.plot(averages, [place] * len(averages), "|", color="0.5", markersize=10)
        gain.plot([statistics.mean(averages)], [place], "o", color="black", markersize=6)
        if seconds is None:
            cost.text(0.0, place, " not measured", va="center", fontsize="x-small")
        else:
            cost.barh([place], [seconds], color="0.35", height=0.55)
            cost.text(seconds, place, f" {seconds:.0f} s", va="center", fontsize="x-small")
    for label in (TFIDF, SIF):
        average = values(TRAINED[label][LAYERS], ["average"]).all()[0]
        gain.axvline(average, color="tab:red", linestyle="-.", linewidth=1)
        name = label.replace(" of ", " of\n", 1).replace(", ", ",\n")
        where = {"ha": "right"} if name.startswith("TF") else {"ha": "left"}
        gain.annotate(
            name, (average, 0), xytext=(-3 if name.startswith("TF") else 3, 0), textcoords="offset points",
            fontsize="x-small", va="center", color="tab:red", **where,
        )  # fmt: skip
    titles = {gain: "seven STS sets, Spearman x 100", cost: "seconds of training to the weights kept"}
    finish(titles, list(rows))
    cost.set_xlim(0, 1.2 * max(seconds or 0.0 for _, seconds in rows.values()))
    return figure


def seconds_of(label: str) -> float:
    """Return the seconds of a step of 64 sentences; 0 for the base model."""
    return float(values(SPEED, [f"cases/{STEP[label]}/median_ms"]).all()[0]) / 1000 if label in STEP else 0.0


def domain_gains() -> dict[str, dict[str, float]]:
    """Return, by row and encoder, the gain over the base model, of rows that all three domains have.

    The gain is that of the mean score of 1-NN accuracy, V-measure and MAP@R, over seeds and then over domains.
    """
    table = long_table(["domains"], "scores/mean")
    means = table.groupby(["method", "encoder", "data"])["value"].mean()
    found: dict[str, dict[str, float]] = {}
    for name in MARKERS:
        base = means["start", name]
        for method in means.index.unique("method"):
            for of in ("", name):  # the baselines without an encoder stand beside each
                scores = means[method].get(of)
                if method != "start" and scores is not None and len(scores) == len(DOMAINS):
                    found.setdefault(method, {})[name] = float((scores - base).mean())
    return found


def draw_domains(gains: Mapping[str, Mapping[str, float]]) -> Any:
    """Draw the gains, a marker for each encoder; the first encoder orders the rows."""
    from matplotlib import pyplot as plt

    first = next(iter(MARKERS))
    rows = sorted(gains, key=lambda row: gains[row].get(first, float("-inf")), reverse=True)
    figure, ax = plt.subplots(figsize=(8, 0.29 * len(rows) + 1.6), layout="constrained")
    for number, (encoder, (marker, colour)) in enumerate(MARKERS.items()):
        own = [(place, row) for place, row in enumerate(rows) if encoder in gains[row]]
        lift = 0.22 * (number - 1)  # so that equal values can be told apart
        ax.plot(
            [gains[row][encoder] for _, row in own],
            [place + lift for place, _ in own],
            marker,
            label=ENCODERS[encoder],
            linestyle="",
            color="black",
            markerfacecolor=colour,
            markersize=6,
        )
    ax.axvline(0, color="0.5", linewidth=1)
    finish({ax: "gain over the base model (1-NN, V-measure, MAP@R; x 100)"}, rows)
    ax.legend(fontsize="x-small", loc="upper left")
    return figure


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


def finish(titles: Mapping[Any, str], labels: list[str]) -> None:
    """Label panels, the first row on top, with a thin line for each."""
    for ax, title in titles.items():
        ax.set_xlabel(title, fontsize="small")
        ax.grid(axis="y", color="0.9", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
    ax = next(iter(titles))
    ax.set_yticks(range(len(labels)), labels=labels, fontsize="small")
    ax.invert_yaxis()
