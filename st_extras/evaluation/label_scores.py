"""How well embeddings agree with labels: the metrics of ``label_metrics`` in one call, on tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from st_extras.checks import check_choice, check_count, check_strings, shown
from st_extras.evaluation.label_metrics import (
    FOLDS,
    cross_validated_probe,
    knn_accuracies,
    linear_probe,
    map_at_r,
    v_measure,
)
from st_extras.evaluation.labels import check_different, check_labels, check_together, label_numbers
from st_extras.evaluation.reporting import LARGEST_SEED, check_embeddings

METRICS = ("knn_accuracy", "v_measure", "map_at_r", "linear_probe")
"""What can be chosen with ``metrics=``."""
DEFAULT_METRICS = METRICS[:3]
"""What is computed unless ``metrics=`` says otherwise, and what ``mean`` is the mean of."""
_MOST_NEIGHBORS = 100


def label_scores(
    embeddings: Any,
    labels: Any,
    *,
    train_embeddings: Any = None,
    train_labels: Any = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    neighbors: int = 5,
    seeds: Iterable[int] = (0, 1, 2),
) -> dict[str, float]:
    """Score N embeddings by their labels; 4,500 of them, of 384 dimensions, take less than two seconds on one core.

    Memory is linear in N: cosines are computed in blocks of rows.

    Args:
        embeddings: (N, D), a tensor, an array or lists; scaled to unit length here.
        labels: N labels, strings or whole numbers, at least two different ones.
        train_embeddings: (M, D). With them, neighbours are looked for among these, and the probe learns from them.
            None: among the other N - 1 texts, and the probe is cross-validated.
        train_labels: M labels, with ``train_embeddings``.
        metrics: which of ``METRICS`` to compute.
        neighbors: k of the vote among several neighbours; 1 leaves it out.
        seeds: seeds of k-means and of the folds; each metric that draws is the mean over them.

    Returns:
        The metrics by name, in [0, 1], higher is better: those that :class:`LabeledTextEvaluator` lists.

    Raises:
        ValueError: if the labels do not match the embeddings or are all the same, a label is neither a string nor a
            whole number, an embedding is zero or not finite, a setting is not allowed, or a metric cannot be computed
            (``map_at_r`` needs a label that stands twice; ``linear_probe`` without training texts one that stands five
            times, and another twice).

    Example:
        >>> from st_extras.evaluation import label_scores
        >>> scores = label_scores([[1, 0], [2, 1], [0, 1], [1, 2]], ["a", "a", "b", "b"], neighbors=1)
        >>> {name: round(score, 3) for name, score in scores.items()}
        {'knn_accuracy': 1.0, 'v_measure': 1.0, 'v_measure_std': 0.0, 'map_at_r': 1.0, 'mean': 1.0}
    """
    metrics, neighbors, seeds = check_settings(metrics, neighbors, seeds)
    unit = check_embeddings("embeddings", embeddings, at_least=2).detach()
    names = check_labels("labels", labels, len(unit), "embeddings")
    check_scored(metrics, names, is_split=train_embeddings is not None)
    check_together("train_embeddings", train_embeddings, "train_labels", train_labels)
    train, (own,) = None, label_numbers(names)
    if train_embeddings is not None:
        train_unit = check_embeddings("train_embeddings", train_embeddings).detach()
        if train_unit.shape[1] != unit.shape[1]:
            raise ValueError(
                f"train_embeddings must have the {unit.shape[1]} dimensions of embeddings, got {train_unit.shape[1]}."
            )
        train_names = check_labels("train_labels", train_labels, len(train_unit), "train_embeddings")
        check_train_labels(train_names, names)
        own, train_own = label_numbers(names, train_names)
        train = (train_unit.to(unit), train_own.to(unit.device))
    with torch.autocast(unit.device.type, enabled=False):  # a caller's autocast is meant for the encoder only
        return _scores(unit, own.to(unit.device), train, metrics, neighbors, seeds)


def _scores(
    unit: Tensor,
    labels: Tensor,
    train: tuple[Tensor, Tensor] | None,
    metrics: tuple[str, ...],
    neighbors: int,
    seeds: tuple[int, ...],
) -> dict[str, float]:
    scores: dict[str, float] = {}
    if "knn_accuracy" in metrics:
        counts = sorted({1, neighbors})
        names = ["knn_accuracy" if k == 1 else f"knn{k}_accuracy" for k in counts]
        scores |= dict(zip(names, knn_accuracies(unit, labels, counts, train), strict=True))
    if "v_measure" in metrics:
        scores |= _mean_and_std("v_measure", [v_measure(unit, labels, seed) for seed in seeds])
    if "map_at_r" in metrics:
        scores["map_at_r"] = map_at_r(unit, labels)
    if "linear_probe" in metrics and train is not None:
        scores["linear_probe"] = linear_probe(unit, labels, *train)
    elif "linear_probe" in metrics:
        scores |= _mean_and_std("linear_probe", [cross_validated_probe(unit, labels, seed) for seed in seeds])
    if primary_metric(metrics) == "mean":
        scores["mean"] = float(np.mean([scores[name] for name in DEFAULT_METRICS]))
    return scores


def _mean_and_std(name: str, values: list[float]) -> dict[str, float]:
    return {name: float(np.mean(values)), f"{name}_std": float(np.std(values))}


def primary_metric(metrics: Sequence[str]) -> str:
    """Return the name of the metric to choose by: "mean", or the first one if the mean lacks one of its three."""
    return "mean" if set(DEFAULT_METRICS) <= set(metrics) else metrics[0]


def check_settings(metrics: Any, neighbors: Any, seeds: Any) -> tuple[tuple[str, ...], int, tuple[int, ...]]:
    """Return the settings of ``label_scores``, the metrics in the order of ``METRICS``.

    Raises:
        ValueError: if a metric is unknown or there is none, ``neighbors`` is not a whole number from 1 to 100, or
            ``seeds`` does not hold whole numbers from 0 to 2^32 - 1.
    """
    asked = check_strings("metrics", metrics, at_least=1)
    for metric in asked:
        check_choice("metrics: each", metric, METRICS)
    neighbors = check_count("neighbors", neighbors, 1, _MOST_NEIGHBORS)
    if isinstance(seeds, str) or not isinstance(seeds, Iterable) or getattr(seeds, "ndim", 1) == 0:
        raise ValueError(f"seeds must be a list of whole numbers, got {shown(seeds)}.")
    checked = tuple(check_count("seeds: each", seed, 0, LARGEST_SEED) for seed in seeds)
    if not checked:
        raise ValueError("seeds must hold at least one whole number, got none.")
    return tuple(metric for metric in METRICS if metric in asked), neighbors, checked


def check_scored(metrics: Sequence[str], labels: list[str], *, is_split: bool) -> None:
    """Check that the metrics can be computed of these labels; ``is_split`` says whether there are training texts.

    Raises:
        ValueError: if there are no two labels; if each stands once, for ``map_at_r``; or, for a cross-validated probe,
            if no two stand twice or none stands five times.
    """
    check_different("labels", labels)
    largest, second = [size for _, size in Counter(labels).most_common(2)]
    if "map_at_r" in metrics and largest < 2:
        raise ValueError("labels must hold a label twice for map_at_r, got each once: leave map_at_r out of metrics.")
    if "linear_probe" in metrics and not is_split and (largest < FOLDS or second < 2):
        raise ValueError(
            f"labels must hold a label {FOLDS} times and another twice for linear_probe without training texts, got "
            f"{largest} and {second} times: leave linear_probe out of metrics."
        )


def check_train_labels(train_labels: list[str], labels: list[str]) -> None:
    """Check that one can learn from the labels of the training texts, and be scored.

    Raises:
        ValueError: if they are all the same, or none of them is a label to be scored.
    """
    check_different("train_labels", train_labels)
    if not set(train_labels) & set(labels):
        raise ValueError(
            f"train_labels must hold labels of the texts that are scored, got none of them: {shown(train_labels[0])} "
            f"beside {shown(labels[0])}."
        )
