"""What does choosing a checkpoint without labels cost? Regret of every signal on the training curves of the records.

    python -m benchmarks.selection [benchmarks/results/slt_fai/simcse-0.json ...]

It reads the records of ``benchmarks.sts`` that have ``checkpoints``, all of them if no file is given. A study writes
these if it has ``signals = N``: the output of `benchmarks.selection_signals` on N sentences at every evaluation.

A selector picks one checkpoint of a run: the one with the highest value of a signal (the earliest of equals), the last
checkpoint, or the one with the lowest training loss. Regret is the best dev Spearman of the run minus that of the
picked checkpoint, in points (Spearman x 100). A mean regret is always that over the objectives of the mean over the
runs of each, so that an objective with many runs does not decide.

A signal that is chosen and judged on the same runs proves nothing. So the signal is chosen with one objective left out
at a time (least mean regret over the others, each objective with the same weight) and judged on that objective.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

from benchmarks.records import records, studies
from benchmarks.tables.markdown import markdown_table

Row = dict[str, Any]
_FIELDS = ("step", "dev_spearman", "training_loss", "signals")
LAST, LOSS = "last checkpoint", "lowest training loss"


@dataclass(frozen=True)
class Curve:
    """The checkpoints of one run, in the order of their steps."""

    run: str
    objective: str
    rows: list[Row]

    def regret(self, pick: int) -> float:
        """Return the points of dev Spearman lost by taking checkpoint ``pick``."""
        return 100 * (max(row["dev_spearman"] for row in self.rows) - self.rows[pick]["dev_spearman"])


def read_curves(found: Iterable[tuple[str, dict[str, Any]]]) -> list[Curve]:
    """Read the runs of the records, sorted by name; records without checkpoints are left out.

    Raises:
        ValueError: if a file or field is missing, a value is not a finite number, a run has a step twice or fewer
            than two checkpoints, or the checkpoints do not all have the same signals.
    """
    curves: list[Curve] = []
    for study, record in found:
        if "checkpoints" in record:
            curves.append(_curve(f"{study}/{record['run']}", record))
    if not curves:
        raise ValueError("None of the records has checkpoints.")
    expected = set(curves[0].rows[0]["signals"])
    for curve in curves:
        for row in curve.rows:
            if set(row["signals"]) != expected:
                unequal = ", ".join(sorted(set(row["signals"]) ^ expected))
                raise ValueError(
                    f"All checkpoints must have the same signals, got a difference in {unequal} at step {row['step']} "
                    f"of run {curve.run!r}."
                )
    return sorted(curves, key=lambda curve: curve.run)


def recorded_curves() -> list[Curve]:
    """Read the runs of all result files."""
    return read_curves((study, record) for study in studies() for record in records(study))


def _curve(run: str, record: dict[str, Any]) -> Curve:
    rows = sorted(record["checkpoints"], key=lambda row: row["step"])
    for row in rows:
        missing = [field for field in _FIELDS if field not in row]
        if missing:
            raise ValueError(f"Every checkpoint of run {run!r} must have {', '.join(missing)}.")
        for name, value in [("dev_spearman", row["dev_spearman"]), *row["signals"].items()]:
            if value is None or not math.isfinite(value):
                raise ValueError(f"{name} of run {run!r} must be a finite number, got {value!r}.")
    steps = [row["step"] for row in rows]
    if len(set(steps)) < len(steps) or len(steps) < 2:
        raise ValueError(f"Run {run!r} must have at least two checkpoints and each step once, got steps {steps}.")
    return Curve(run, record["settings"]["loss"].removesuffix("Loss"), rows)


def by_signal(name: str) -> Callable[[Curve], int]:
    """Return a selector that picks the checkpoint with the signal's highest value, the earliest of equals."""

    def pick(curve: Curve) -> int:
        return max(range(len(curve.rows)), key=lambda index: (curve.rows[index]["signals"][name], -index))

    return pick


def last(curve: Curve) -> int:
    """Pick the last checkpoint."""
    return len(curve.rows) - 1


def lowest_loss(curve: Curve) -> int:
    """Pick the checkpoint with the lowest training loss, the earliest of equals; the last if no loss is known."""
    known = [index for index, row in enumerate(curve.rows) if row["training_loss"] is not None]
    return min(known, key=lambda index: (curve.rows[index]["training_loss"], index), default=last(curve))


def selectors(curves: Sequence[Curve]) -> dict[str, Callable[[Curve], int]]:
    """Return a selector for every signal of the curves, and the two that the signals compete with."""
    names = sorted(curves[0].rows[0]["signals"])
    return {**{name: by_signal(name) for name in names}, LAST: last, LOSS: lowest_loss}


def mean_regret(curves: Sequence[Curve], pick: Callable[[Curve], int]) -> float:
    """Return the mean over the objectives of the mean regret over their runs."""
    groups = defaultdict(list)
    for curve in curves:
        groups[curve.objective].append(curve.regret(pick(curve)))
    return fmean(fmean(group) for group in groups.values())


def worst_regret(curves: Sequence[Curve], pick: Callable[[Curve], int]) -> float:
    """Return the highest regret of any run."""
    return max(curve.regret(pick(curve)) for curve in curves)


@dataclass(frozen=True)
class LeftOut:
    """One objective left out: the signal chosen on the other objectives, and its regrets on the runs of this one."""

    objective: str
    signal: str
    regrets: list[float]


def leave_one_objective_out(curves: Sequence[Curve]) -> list[LeftOut]:
    """Choose a signal without each objective in turn.

    Raises:
        ValueError: if there are fewer than two objectives.
    """
    objectives = sorted({curve.objective for curve in curves})
    if len(objectives) < 2:
        raise ValueError(f"Leaving one objective out needs at least two, got {', '.join(objectives)}.")
    signals = {name: pick for name, pick in selectors(curves).items() if name not in (LAST, LOSS)}
    folds = []
    for objective in objectives:
        others = [curve for curve in curves if curve.objective != objective]
        chosen = min(signals, key=lambda name: (mean_regret(others, signals[name]), name))
        held_out = [curve for curve in curves if curve.objective == objective]
        folds.append(LeftOut(objective, chosen, [curve.regret(signals[chosen](curve)) for curve in held_out]))
    return folds


def rank_agreement(curves: Sequence[Curve], name: str) -> float:
    """Return the Spearman correlation of a signal with dev Spearman, mean over the runs; a constant one counts as 0."""
    values = []
    for curve in curves:
        signal = [row["signals"][name] for row in curve.rows]
        dev = [row["dev_spearman"] for row in curve.rows]
        constant = len(set(signal)) < 2 or len(set(dev)) < 2
        values.append(0.0 if constant else float(spearmanr(signal, dev).statistic))
    return fmean(values)


def table(curves: Sequence[Curve]) -> str:
    """Write the study as Markdown: every selector and, from two objectives on, the left-out choice."""
    objectives = sorted({curve.objective for curve in curves})
    lines = [
        f"{len(curves)} runs, {sum(len(curve.rows) for curve in curves)} checkpoints. Regret in points of STS-B dev.",
        "",
        _selectors_table(curves, objectives),
    ]
    if len(objectives) > 1:
        folds = leave_one_objective_out(curves)
        titles = ("objective left out", "signal chosen on the others", "regret on it", "runs")
        rows = [[fold.objective, fold.signal, f"{fmean(fold.regrets):.2f}", str(len(fold.regrets))] for fold in folds]
        mean = fmean(fmean(fold.regrets) for fold in folds)
        worst = max(regret for fold in folds for regret in fold.regrets)
        lines += [
            "",
            markdown_table(titles, rows, left=(0, 1)),
            "",
            f"Left-out mean regret over {len(folds)} objectives: {mean:.2f} (worst run {worst:.2f}).",
        ]
        for name, pick in ((LAST, last), (LOSS, lowest_loss)):
            mean, worst = mean_regret(curves, pick), worst_regret(curves, pick)
            lines.append(f"{name.capitalize()} over the same runs: {mean:.2f} (worst run {worst:.2f}).")
    return "\n".join(lines)


def _selectors_table(curves: Sequence[Curve], objectives: Sequence[str]) -> str:
    """Tabulate every selector, least mean regret first, with its mean regret on each objective."""
    everything = selectors(curves)
    rows = []
    for name in sorted(everything, key=lambda name: mean_regret(curves, everything[name])):
        pick = everything[name]
        worst = worst_regret(curves, pick)
        agreement = "" if name in (LAST, LOSS) else f"{rank_agreement(curves, name):.2f}"
        each = [mean_regret([c for c in curves if c.objective == objective], pick) for objective in objectives]
        regrets = [f"{value:.2f}" for value in each]
        rows.append([name, f"{mean_regret(curves, pick):.2f}", f"{worst:.2f}", agreement, *regrets])
    return markdown_table(("selector", "mean regret", "worst run", "rank correlation", *objectives), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", help="result files (default: all)")
    files = parser.parse_args().records
    print(table(read_curves(files) if files else recorded_curves()))


if __name__ == "__main__":
    main()
