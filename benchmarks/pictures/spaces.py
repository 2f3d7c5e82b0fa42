"""Pictures of embedding spaces, from the records of the study ``spaces``."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from benchmarks.records import records
from benchmarks.trained_spaces import cosine_by_level, level_of


def levels() -> dict[str, Any]:
    """Return the record of the cosines of graded pairs."""
    return records("spaces", "cosine_levels")[0]


def draw_densities(cosines: list[float], scores: list[float], ax: Any) -> None:
    """Draw the density of (N,) cosines in each level of the gold score; the legend has mean and variance."""
    from matplotlib import colormaps
    from scipy.stats import gaussian_kde

    x, levels = np.asarray(cosines), level_of(scores)
    table = cosine_by_level(x, scores)
    margin = 0.1 * float(x.max() - x.min())
    grid = np.linspace(max(x.min() - margin, -1.0), min(x.max() + margin, 1.0), 200)  # a cosine is at most 1
    for level, (row, style) in enumerate(zip(table, ("-", "--", ":", "-.", "-"), strict=True)):
        colour = colormaps["viridis"](np.linspace(0.1, 0.85, len(table))[level])
        label = f"{row.name} ({row.mean:.2f} / {row.variance:.3f})"
        ax.plot(grid, gaussian_kde(x[levels == level])(grid), color=colour, linestyle=style, label=label)
    ax.set_xlabel("cosine similarity")
    ax.set_ylabel("density")


def draw_levels(record: dict[str, Any]) -> Any:
    """Draw the density of the cosines in each level of the gold score, a panel for each encoder."""
    from matplotlib import pyplot as plt

    encoders = record["encoders"]
    figure, panels = plt.subplots(1, len(encoders), figsize=(10, 3.4), layout="constrained", squeeze=False, sharex=True)
    for ax, (name, found) in zip(panels.flat, encoders.items(), strict=True):
        draw_densities(found["cosines"], record["scores"], ax)
        ax.set_title(
            f"{name}\nseparation {found['separation']:.2f}, Spearman x 100: {found['spearman']:.1f}", fontsize="small"
        )
        ax.legend(
            title="gold score (mean / variance)", title_fontsize="x-small", fontsize="x-small", loc="upper left",
            frameon=False,
        )  # fmt: skip
        ax.set_ylim(top=1.55 * ax.get_ylim()[1])
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def topics() -> dict[str, Any]:
    """Return the record of the labelled sample sentences before and after ``adapt``."""
    return records("spaces", "topics")[0]


def changed_neighbours(record: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Return the rows whose nearest neighbour changed, with it before and after; the largest change of cosine first."""
    size = len(record["topics"])
    nearest, gaps = {}, {}
    for name in ("before", "after"):
        cosines = np.full((size, size), -np.inf)
        cosines[np.triu_indices(size, k=1)] = record[name]["cosines"]
        cosines = np.maximum(cosines, cosines.T)
        nearest[name], gaps[name] = cosines.argmax(axis=1), cosines
    rows = np.flatnonzero(nearest["before"] != nearest["after"])
    gain = gaps["after"][rows, nearest["after"][rows]] - gaps["after"][rows, nearest["before"][rows]]
    return [(int(row), int(nearest["before"][row]), int(nearest["after"][row])) for row in rows[np.argsort(-gain)]]


def draw_topics(record: dict[str, Any], *, shown: int = 4) -> Any:
    """Draw the cosines within a topic and across topics, before and after, above texts with another neighbour."""
    from matplotlib import pyplot as plt
    from scipy.stats import gaussian_kde

    names, texts = np.array(record["topics"]), record["held_out"]
    same, rows = names[:, None] == names, changed_neighbours(record)
    gained = sum(int(same[row, after]) - int(same[row, before]) for row, before, after in rows)
    many = f"{len(rows)} of {len(names)} texts have another neighbour"
    lines = [(f"{many}, {gained} more of their own topic:", False)]
    for row, before, after in rows[:shown]:
        lines.append(("", False))
        lines += [(line, True) for line in textwrap.wrap(texts[row], 58)]
        for name, found in (("before", before), ("after", after)):
            of_topic = "same topic" if same[row, found] else "another topic"
            lines += [(line, False) for line in textwrap.wrap(f"{name} ({of_topic}): {texts[found]}", 66)]
    listed = 0.17 * len(lines)
    figure = plt.figure(figsize=(4.7, 2.1 + listed), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(2.1, listed))
    x = np.linspace(-0.3, 0.7, 201)
    pairs = same[np.triu_indices(len(names), k=1)]
    for ax, (name, title) in zip(
        above.subplots(1, 2, sharey=True), {"before": "base model", "after": "after adapt"}.items(), strict=True
    ):
        cosines = np.array(record[name]["cosines"])
        for label, of, high, style in (
            ("same\ntopic", pairs, 0.32, {"color": "black"}),
            ("other topic", ~pairs, 0.06, {"color": "0.45", "linestyle": "--"}),
        ):
            (line,) = ax.plot(x, gaussian_kde(cosines[of])(x), linewidth=1.8, **style)
            place = (high, line.get_ydata()[np.searchsorted(x, high)])
            ax.annotate(label, place, xytext=(6, 0), textcoords="offset points", fontsize=9, color=style["color"])
        ax.set_title(f"{title}: MAP@R {record[name]['map_at_r']:.1f}", fontsize=10)
        ax.set_xlabel("cosine of two texts", fontsize=9)
        ax.tick_params(labelsize=8)
        ax.set_yticks([])
        ax.spines[["top", "right", "left"]].set_visible(False)
    ax = below.subplots()
    ax.axis("off")
    for number, (line, bold) in enumerate(lines):
        weight = "bold" if bold else "normal"
        ax.text(0, 1 - number / len(lines), line, va="top", fontsize=9, weight=weight, transform=ax.transAxes)
    return figure
