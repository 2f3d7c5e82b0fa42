"""STS scores for the commands: Spearman x 100 by the name of the set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Scorer = Callable[[Any], dict[str, float]]


def percent(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return an STS evaluator's metrics x 100, by the names of the sets."""
    return {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}


def chosen_sets(sets: Sequence[str] | None, source: str) -> Sequence[str]:
    """Return the names of the sets to score: those asked for, else that of a single file, else the seven test sets."""
    from st_extras.evaluation import SEVEN_STS

    if sets:
        return sets
    return [_name_of(source)] if Path(source).is_file() else SEVEN_STS


def dev_name(dev_set: str | None, source: str) -> str:
    """Return the name of the labelled set to choose by: the one asked for, else that of a single file, else STS-B's."""
    return dev_set or (_name_of(source) if Path(source).is_file() else "stsb_dev")


def _name_of(file: str) -> str:
    return Path(file).name.partition(".")[0]


def sts_scorer(source: str | None) -> Scorer:
    """Return a function that scores a model on the STS sets of ``source``; without a source it returns {}."""
    from st_extras.evaluation import sts_evaluator

    if source is None:
        return lambda model: {}
    evaluator = sts_evaluator(chosen_sets(None, source), source, write_csv=False)
    return lambda model: percent(evaluator(model))
