"""Cost beside gain: of the trainings on sentence similarity, and of the rows of the domain study."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.drawing.curves import seconds_per_step, wrapped
from benchmarks.records import records
from benchmarks.tables.domains import NAMES, by_cell
from benchmarks.tables.floors import shown_floors
from benchmarks.tables.quality import ROWS, row_records
from benchmarks.tables.trainings import THEN

MARKERS = {"minilm": ("o", "black"), "layers3": ("s", "0.6"), "own": ("^", "white")}
"""Marker and its colour, by encoder of the domain study."""
NAMED = {"banking77": "Banking77", "clinc150": "CLINC150", "stackoverflow": "StackOverflow"}
DOMAINS = 3
LEAST = 0.05  # seconds; records hold tenths
SHARED = {"centred"}
"""Rows whose recorded seconds include encoding the texts, which the rows after them do not repeat."""


def trainings() -> dict[str, tuple[list[float], float | None]]:
    """Return, for each row of the main table, the seven-set average by seed, and the seconds to the step that is kept.

    Seconds are those of the training steps; None where the speed was not measured.
    """
    pace = seconds_per_step()
    found = {}
    for label, (sources, _) in ROWS.items():
        of_row = row_records(sources)
        if of_row:
            steps = statistics.mean(record["best_step"] for record in of_row)
            seconds = pace[label] * steps if label in pace else 0.0 if label == "start" else None
            found[label] = ([record["average"] for record in of_row], seconds)
    return found


def draw_trainings(rows: Mapping[str, tuple[list[float], float | None]]) -> Any:
    """Draw averages on the left, with a tick for each seed and the floors as lines, and seconds on the right."""
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
    for label, row in shown_floors("foundation").items():
        gain.axvline(row["average"], color="tab:red", linestyle="-.", linewidth=1)
        name = wrapped(label.removeprefix("floor: "))
        where = {"ha": "right"} if name.startswith("TF") else {"ha": "left"}
        gain.annotate(
            name, (row["average"], 0), xytext=(-3 if name.startswith("TF") else 3, 0), textcoords="offset points",
            fontsize="x-small", va="center", color="tab:red", **where,
        )  # fmt: skip
    finish(gain, cost, list(rows), "seven STS sets, Spearman x 100", "seconds of training to the weights kept")
    cost.set_xlim(0, 1.2 * max(seconds or 0.0 for _, seconds in rows.values()))
    return figure


def domain_gains() -> dict[str, dict[str, float]]:
    """Return, by row and encoder, the gain over the start, of rows that all three domains have.

    Trainings that the step follows are left out: they lie beside the step alone.

    The gain is that of the mean score of 1-NN accuracy, V-measure and MAP@R, over seeds and then over domains.
    """
    found: dict[str, dict[str, list[float]]] = {}
    cells = by_cell(records("domains"))
    for (encoder, domain), rows in cells.items():
        for name in MARKERS if encoder == "" else (encoder,):  # the floors without an encoder stand beside each
            start = cells.get((name, domain), {}).get("start")
            for row, seeds in rows.items():
                if start is not None and row != "start":
                    gain = statistics.mean(one["mean"] for one in seeds.values()) - start[0]["mean"]
                    found.setdefault(row, {}).setdefault(name, []).append(gain)
    whole = {
        row: {name: statistics.mean(gains) for name, gains in by_encoder.items() if len(gains) == DOMAINS}
        for row, by_encoder in found.items()
    }
    return {row: gains for row, gains in whole.items() if gains and not row.endswith(THEN)}


def domain_seconds() -> dict[str, dict[str, float]]:
    """Return, by row and encoder, the least seconds of its records, beyond encoding the texts once.

    The least, because the row that is run first also does, and is charged with, what the others share.
    """
    found: dict[str, dict[str, float]] = {}
    for record in records("domains"):
        seconds = record.get("seconds")
        if seconds is not None and record["row"] not in SHARED:
            row = found.setdefault(record["row"], {})
            row[record["encoder"]] = min(seconds, row.get(record["encoder"], seconds))
    return found


def draw_domains(gains: Mapping[str, Mapping[str, float]], seconds: Mapping[str, Mapping[str, float]]) -> Any:
    """Draw gains on the left and seconds on the right, a marker for each encoder; the first encoder orders the rows."""
    from matplotlib import pyplot as plt

    first = next(iter(MARKERS))
    rows = sorted(gains, key=lambda row: gains[row].get(first, float("-inf")), reverse=True)
    figure, (gain, cost) = plt.subplots(
        1, 2, figsize=(10, 0.29 * len(rows) + 1.6), sharey=True, layout="constrained", width_ratios=(3, 2)
    )
    for number, (encoder, (marker, colour)) in enumerate(MARKERS.items()):
        style: dict[str, Any] = {"linestyle": "", "color": "black", "markerfacecolor": colour, "markersize": 6}
        own = [(place, row) for place, row in enumerate(rows) if encoder in gains[row]]
        lift = 0.22 * (number - 1)  # so that equal values can be told apart
        gain.plot(
            [gains[row][encoder] for _, row in own],
            [place + lift for place, _ in own],
            marker,
            label=NAMES[encoder],
            **style,
        )
        timed = [(place, row) for place, row in own if encoder in seconds.get(row, {})]
        cost.plot(
            [max(seconds[row][encoder], LEAST) for _, row in timed],
            [place + lift for place, _ in timed],
            marker,
            **style,
        )
    gain.axvline(0, color="0.5", linewidth=1)
    finish(gain, cost, rows, "gain over the start (1-NN, V-measure, MAP@R; x 100)", "seconds beyond encoding the texts")
    cost.set_xscale("log")
    gain.legend(fontsize="x-small", loc="upper left")
    return figure


def adapted_scores() -> dict[str, tuple[float, float]]:
    """Return MAP@R of all-MiniLM-L6-v2 by domain: at the start, and after ``adapt`` as the mean over seeds."""
    return {
        NAMED[domain]: (
            rows["start"][0]["map_at_r"],
            statistics.mean(one["map_at_r"] for one in rows["adapt"].values()),
        )
        for (encoder, domain), rows in by_cell(records("domains")).items()
        if encoder == "minilm"
    }


def draw_adapted(scores: Mapping[str, tuple[float, float]]) -> Any:
    """Draw an arrow for each domain from the start to what ``adapt`` made of it, with both figures at its ends."""
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
    ax.set_xlabel("MAP@R x 100, all-MiniLM-L6-v2: as it is, and after adapt, no labels")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return figure


def finish(gain: Any, cost: Any, labels: list[str], left: str, right: str) -> None:
    """Label both panels, the first row on top, with a thin line for each."""
    gain.set_yticks(range(len(labels)), labels=labels, fontsize="small")
    gain.invert_yaxis()
    gain.set_xlabel(left, fontsize="small")
    cost.set_xlabel(right, fontsize="small")
    for ax in (gain, cost):
        ax.grid(axis="y", color="0.9", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
