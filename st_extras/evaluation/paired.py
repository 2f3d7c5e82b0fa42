"""Encoders compared on the same pairs or texts: how far each is from the first, with an interval (paired bootstrap)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.correlation import correlation
from st_extras.evaluation.label_metrics import (
    SEEDS,
    average_precisions,
    clusters,
    knn_hits,
    label_numbers,
    scores_of_rows,
    v_measure,
)
from st_extras.evaluation.labeled_texts import LabeledTextEvaluator
from st_extras.evaluation.reporting import Rows, resampled
from st_extras.evaluation.sts import STSEvaluator

Score = Callable[[Sequence[Rows]], float]
"""Takes a sample, with repetition, of the items of each data set, by their numbers; returns the metric of it."""


def compare_sts(
    evaluator: STSEvaluator, models: Iterable[tuple[str, SentenceTransformer]]
) -> dict[str, dict[str, float]]:
    """Score encoders on STS sets.

    Args:
        evaluator: the sets and the setting.
        models: different names and encoders; a generator holds one at a time.

    Returns:
        By name the metrics, in [-1, 1], and ``difference`` of the primary one to the first encoder with the ends
        ``low`` and ``high`` of its 95 % interval, over which pairs were drawn. Ranks are those among all pairs of a
        set.
    """

    def score(model: SentenceTransformer) -> tuple[dict[str, float], Score]:
        similarities = evaluator.similarities(model)
        return evaluator.metrics(similarities), _sts_score(evaluator, similarities)

    sizes = [len(data) for data in evaluator.datasets]
    return _compared(models, score, sizes, str(evaluator.primary_metric).removeprefix(f"{evaluator.name}_"))


def compare_labeled(
    evaluator: LabeledTextEvaluator, models: Iterable[tuple[str, SentenceTransformer]]
) -> dict[str, dict[str, float]]:
    """Score encoders on labelled texts; arguments and result are those of :func:`compare_sts`.

    The metric is "mean". Texts are drawn after their neighbours and clusters were found.
    """

    def score(model: SentenceTransformer) -> tuple[dict[str, float], Score]:
        unit = evaluator.unit_rows(model)
        return scores_of_rows(unit, labels), _label_score(labels, unit)

    labels = label_numbers(evaluator.labels)

    return _compared(models, score, [len(evaluator.texts)], "mean")


def _compared(
    models: Iterable[tuple[str, SentenceTransformer]],
    score: Callable[[SentenceTransformer], tuple[dict[str, float], Score]],
    sizes: Sequence[int],
    metric: str,
) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    samples: list[float] = []
    for name, model in models:
        if name in found:
            raise ValueError(f"models must have different names, got {name!r} again.")
        metrics, of_sample = score(model)
        drawn = resampled(of_sample, sizes)  # the same samples for each encoder
        samples = samples or drawn
        base = next(iter(found.values()), metrics)[metric]
        gaps = np.subtract(drawn, samples)
        gaps = gaps[np.isfinite(gaps)]  # a sample that repeats one pair has no correlation
        low, high = np.quantile(gaps, [0.025, 0.975]) if len(gaps) else (np.nan, np.nan)
        found[name] = metrics | {"difference": metrics[metric] - base, "low": float(low), "high": float(high)}
    return found


def _sts_score(evaluator: STSEvaluator, similarities: Sequence[NDArray[Any]]) -> Score:
    """Return what finds the mean over the sets of the correlation of ranks, weighted over subsets if asked for."""
    sets: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
    for data, cosines in zip(evaluator.datasets, similarities, strict=True):
        ranks, part_of = np.empty((2, len(data))), np.empty(len(data), dtype=np.int64)
        for number, (part, sides) in enumerate(zip(evaluator.parts(data), evaluator.ranks(data, cosines), strict=True)):
            part_of[part], ranks[:, part] = number, sides
        sets.append((ranks, part_of))

    def score(drawn: Sequence[Rows]) -> float:
        return float(
            np.mean(
                [
                    _mean_correlation(ranks[:, rows], part_of[rows])
                    for (ranks, part_of), rows in zip(sets, drawn, strict=True)
                ]
            )
        )

    return score


def _mean_correlation(ranks: NDArray[np.float64], part_of: NDArray[np.int64]) -> float:
    """Return the mean of the correlations of (2, P) ranks within each part that has one, weighted by their sizes."""
    sizes = np.bincount(part_of)
    found = np.array([correlation(*ranks[:, part_of == part]) if size else np.nan for part, size in enumerate(sizes)])
    kept = np.isfinite(found)  # the others were not drawn, or one pair was alone
    return float(np.average(found[kept], weights=sizes[kept])) if kept.any() else np.nan


def _label_score(labels: Tensor, unit: Tensor) -> Score:
    """Return what finds the mean of nearest-neighbour accuracy, V-measure and MAP@R."""
    hits = knn_hits(unit, labels, [1])[0].numpy()
    precisions = average_precisions(unit, labels).numpy()
    own = labels.numpy()
    found = [clusters(unit, labels, seed) for seed in SEEDS]

    def score(drawn: Sequence[Rows]) -> float:
        (rows,) = drawn
        v = np.mean([v_measure(own[rows], one[rows]) for one in found])
        kept = precisions[rows]
        return float(np.mean([hits[rows].mean(), v, kept[np.isfinite(kept)].mean()]))

    return score
