"""The table of choosing a checkpoint without labels, over all trainings that recorded label-free signals."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.records import records, studies
from benchmarks.statistics import regret
from benchmarks.tables.render import Table, of_texts
from st_extras.evaluation.selection import SIGNAL

Checkpoints = list[dict[str, Any]]


def signal(checkpoints: Checkpoints) -> list[float]:
    """Return the label-free signal of ``UnlabeledSelectionEvaluator``."""
    return [one["signals"][SIGNAL] for one in checkpoints]


def step(checkpoints: Checkpoints) -> list[float]:
    """Return the steps: the last one is the highest."""
    return [one["step"] for one in checkpoints]


def low_loss(checkpoints: Checkpoints) -> list[float]:
    """Return the negative training loss; a step without one is the lowest."""
    losses = [one["training_loss"] for one in checkpoints]
    return [float("-inf") if loss is None else -loss for loss in losses]


SCORES: dict[str, Callable[[Checkpoints], list[float]]] = {
    SIGNAL: signal,
    "last checkpoint": step,
    "lowest training loss": low_loss,
}


def recorded() -> list[tuple[str, str, str, Checkpoints]]:
    """Return study, run, loss and checkpoints, by step, of each training that has signals."""
    return [
        (study, record["run"], record["settings"]["loss"], sorted(record["checkpoints"], key=lambda one: one["step"]))
        for study in studies()
        for record in records(study)
        if "checkpoints" in record
    ]


def selection_table() -> Table:
    """Return the table of the points of STS-B dev that each score loses: mean over the losses, and worst run."""
    found = recorded()
    rows = {}
    for name, score in SCORES.items():
        by_loss: dict[str, list[float]] = {}
        for _, _, loss, checkpoints in found:
            dev = [100 * one["dev_spearman"] for one in checkpoints]
            by_loss.setdefault(loss, []).append(regret(score(checkpoints), dev))
        mean = statistics.mean(map(statistics.mean, by_loss.values()))
        worst = max(map(max, by_loss.values()))
        rows[name] = {"mean regret": f"{mean:.2f}", "worst run": f"{worst:.2f}", "runs": str(len(found))}
    return of_texts("picked by", rows)
