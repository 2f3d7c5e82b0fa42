"""STS-B dev over training: a panel for each method, over steps and over seconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import cycle
from typing import Any

from benchmarks.records import records
from benchmarks.statistics import EVERY
from benchmarks.tables.cost import SPEED as MEASURED
from benchmarks.tables.render import Runs, values
from benchmarks.tables.selection import picked_step
from benchmarks.tables.sources import BASE, LAYERS, SIF, TFIDF, TRAINED

Curve = tuple[list[float], list[float]]
"""Steps or seconds, and STS-B dev."""

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
RUNS = {
    "consert": "ConSERT",
    "consert-slt-fai": "SLT-FAI over ConSERT",
    "slt-fai": "SLT-FAI over SimCSE",
    "slt-fai-no-at": "the same, no AT",
    "slt-fai-no-isf": "the same, no ISF",
}
"""Titles of the runs of the study ``slt_fai``."""
BASELINE_STYLES: tuple[Any, ...] = ("-.", (0, (6, 2)))
STYLES = ("-", "--", ":", "-.")
GREY = "0.8"


def rows() -> dict[str, Runs]:
    """Return the runs of each training on the first three layers."""
    return {label: found[LAYERS] for label, found in TRAINED.items() if label not in (TFIDF, SIF, BASE)}


def mean_curves() -> dict[str, Curve]:
    """Return STS-B dev of every training over the steps that all its seeds have: their mean."""
    curves: dict[str, Curve] = {}
    for label, of in rows().items():
        found = [dict(curve) for curve in values(of, ["curve"]).all()]
        steps = sorted(set.intersection(*map(set, found)))
        curves[label] = (steps, [statistics.mean(curve[step] for curve in found) for step in steps])
    return curves


def seconds_per_step() -> dict[str, float]:
    """Return the seconds of a step of 64 sentences, for each row whose step was measured."""
    return {label: values(MEASURED, [f"cases/{case}/median_ms"]).all()[0] / 1000 for label, case in STEP.items()}


def timed_curves() -> dict[str, Curve]:
    """Return STS-B dev over the seconds of training steps, without preparation, evaluation and the base model.

    The base model takes no seconds, so it has no place on a logarithmic axis.
    """
    curves, pace = mean_curves(), seconds_per_step()
    return {
        label: ([step * pace[label] for step in steps[1:]], scores[1:])
        for label, (steps, scores) in curves.items()
        if label in pace
    }


def base_dev() -> float:
    """Return STS-B dev of the base model."""
    return float(values(TRAINED[BASE][LAYERS], ["dev"]).by_seed()[EVERY])


def picked_curves(study: str = "slt_fai", seed: int = 0) -> tuple[dict[str, Curve], dict[str, int]]:
    """Return the curves of a study for one seed, and the step that the label-free signal picks in each."""
    curves: dict[str, Curve] = {}
    picks = {}
    for record in records(study, f"*-{seed}"):
        if "checkpoints" in record:
            found = sorted(record["checkpoints"], key=lambda one: one["step"])
            dev = [100 * one["dev_spearman"] for one in found]
            curves[record["method"]] = ([one["step"] for one in found], dev)
            picks[record["method"]] = picked_step(found)
    return curves, picks


def dev_baselines() -> dict[str, float]:
    """Return STS-B dev of the untrained baselines."""
    return {label: values(TRAINED[label][LAYERS], ["dev"]).all()[0] for label in (TFIDF, SIF)}


def families(curves: Mapping[str, Curve]) -> dict[str, dict[str, Curve]]:
    """Return the curves by method: "AdCSE, no head" belongs to AdCSE, as the variant "no head"."""
    found: dict[str, dict[str, Curve]] = {}
    for label, curve in curves.items():
        method, _, variant = label.partition(", ")
        found.setdefault(method, {})[variant or "defaults"] = curve
    return found


def draw_families(curves: Mapping[str, Curve], xlabel: str, *, columns: int = 3, xscale: str = "linear") -> Any:
    """Draw a panel for each method: its own curves black, best points as dots, all others grey, baselines as lines."""
    from matplotlib import pyplot as plt

    groups = families(curves)
    rows = -(-(len(groups) + 1) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(10, 2.6 * rows), sharex=True, sharey=True, layout="constrained", squeeze=False
    )
    panels = list(grid.flat)
    for ax, (method, variants) in zip(panels, groups.items(), strict=False):
        for x, y in curves.values():
            ax.plot(x, y, color=GREY, linewidth=0.8, zorder=1)
        for style, (variant, (x, y)) in zip(cycle(STYLES), variants.items(), strict=False):
            ax.plot(x, y, color="black", linestyle=style, linewidth=1.6, label=variant.replace(", ", ",\n"), zorder=3)
            best = max(range(len(y)), key=y.__getitem__)
            ax.plot([x[best]], [y[best]], "o", color="black", markersize=5, zorder=4)
        draw_levels(ax)
        ax.set_title(method, fontsize="medium")
        if len(variants) > 1:
            ax.legend(frameon=False, fontsize="x-small", loc="lower right", handlelength=2.5)
    panels[0].set_xscale(xscale)
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(low - (high - low) / 4, high)  # room for the legends
    for ax in panels[len(groups) :]:
        ax.set_axis_off()
    explain(panels[len(groups)])
    for ax in panels[len(groups) - columns : len(groups)]:
        ax.tick_params(labelbottom=True)
    figure.supxlabel(xlabel, fontsize="medium")
    figure.supylabel("STS-B dev, Spearman x 100", fontsize="medium")
    return figure


def draw_levels(ax: Any) -> None:
    """Draw the baselines and the base model as lines."""
    for style, value in zip(BASELINE_STYLES, dev_baselines().values(), strict=False):
        ax.axhline(value, color="tab:red", linewidth=0.8, linestyle=style, zorder=2)
    ax.axhline(base_dev(), color="0.5", linewidth=0.8, linestyle=":", zorder=2)
    ax.spines[["top", "right"]].set_visible(False)


def explain(ax: Any) -> None:
    """Write in an empty panel what the lines are."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color="black", linewidth=1.6, label="the method, mean of its seeds"),
        Line2D([], [], color="black", marker="o", linestyle="", markersize=5, label="its best point"),
        Line2D([], [], color=GREY, linewidth=0.8, label="the other methods"),
    ]
    handles += [
        Line2D([], [], color="tab:red", linewidth=0.8, linestyle=style, label=f"{wrapped(label)}: {value:.1f}")
        for style, (label, value) in zip(BASELINE_STYLES, dev_baselines().items(), strict=False)
    ]
    handles.append(Line2D([], [], color="0.5", linewidth=0.8, linestyle=":", label=f"base model: {base_dev():.1f}"))
    ax.legend(handles=handles, frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(-0.05, 0.5))


def wrapped(label: str) -> str:
    """Break a long label of a baseline."""
    return label.replace(" of ", " of\n", 1).replace(", ", ",\n")


def draw_picked(curves: Mapping[str, Curve], picked: Mapping[str, float]) -> Any:
    """Draw a panel for each run: the best point as a dot, the one that was picked without labels as a cross."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        1, len(curves), figsize=(10, 2.6), sharex=True, sharey=True, layout="constrained", squeeze=False
    )
    for ax, (name, (x, y)) in zip(panels.flat, curves.items(), strict=True):
        for other, scores in curves.values():
            ax.plot(other, scores, color=GREY, linewidth=0.8, zorder=1)
        ax.plot(x, y, color="black", linewidth=1.6, zorder=3)
        best, at = max(range(len(y)), key=y.__getitem__), x.index(picked[name])
        ax.plot([x[best]], [y[best]], "o", color="black", markersize=6, zorder=4, label="best by labels")
        ax.plot(
            [x[at]], [y[at]], "x", color="tab:red", markersize=10, markeredgewidth=2, zorder=5, label="picked without"
        )
        ax.set_title(f"{RUNS.get(name, name)}\nregret {y[best] - y[at]:.2f}", fontsize="small")
        draw_levels(ax)
    panels.flat[0].legend(frameon=False, fontsize="x-small", loc="lower right")
    figure.supxlabel("step", fontsize="medium")
    figure.supylabel("STS-B dev, Spearman x 100", fontsize="small")
    return figure
