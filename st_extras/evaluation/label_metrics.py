"""How well embeddings agree with labels: nearest neighbours, MAP@R and clusters, from cosines in float64.

``label_scores`` takes embeddings and labels of any kind; the functions below it take (N, D) unit rows in
float64, and (N,) whole numbers as labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from st_extras.checks import check_iterable, shown
from st_extras.evaluation.labeled_data import check_label
from st_extras.evaluation.reporting import check_embeddings
from st_extras.functional import row_blocks
from st_extras.ranking import highest

NEIGHBORS = 5
"""k of the vote among several neighbours."""
SEEDS = (0, 1, 2)
"""Of k-means."""


def label_scores(embeddings: Any, labels: Any) -> dict[str, float]:
    """Score N embeddings by their labels; 4,500 of them, of 384 dimensions, take less than two seconds on one core.

    Memory is linear in N: cosines are computed in blocks of rows.

    Args:
        embeddings: (N, D), a tensor, an array or lists; scaled to unit length here.
        labels: N labels, strings or whole numbers, at least two different ones, one of them twice.

    Returns:
        The metrics by name, in [0, 1], higher is better: those that :class:`LabeledTextEvaluator` lists.

    Raises:
        ValueError: if the labels do not match the embeddings or are all the same, a label is neither a string nor a
            whole number, no label stands twice, or an embedding is zero or not finite.

    Example:
        >>> from st_extras.evaluation import label_scores
        >>> scores = label_scores([[1, 0], [2, 1], [0, 1], [1, 2]], ["a", "a", "b", "b"])
        >>> {name: round(scores[name], 3) for name in ("knn_accuracy", "v_measure", "map_at_r", "mean")}
        {'knn_accuracy': 1.0, 'v_measure': 1.0, 'map_at_r': 1.0, 'mean': 1.0}
    """
    unit = check_embeddings("embeddings", embeddings, at_least=2)
    return scores_of_rows(unit, label_numbers(check_labels("labels", labels, len(unit))))


def scores_of_rows(unit: Tensor, labels: Tensor) -> dict[str, float]:
    """Return what :func:`label_scores` does, of (N, D) unit rows and (N,) whole numbers."""
    nearest, voted = (int(right.sum()) / len(labels) for right in knn_hits(unit, labels, [1, NEIGHBORS]))
    numbers = labels.numpy()
    values = [v_measure(numbers, clusters(unit, labels, seed)) for seed in SEEDS]
    v, precision = float(np.mean(values)), float(average_precisions(unit, labels).nanmean())
    return {
        "knn_accuracy": nearest,
        f"knn{NEIGHBORS}_accuracy": voted,
        "v_measure": v,
        "v_measure_std": float(np.std(values)),
        "map_at_r": precision,
        "mean": float(np.mean([nearest, v, precision])),
    }


def knn_hits(unit: Tensor, labels: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Return which texts (N,) have the label of the majority of their k nearest neighbours, for each k of ``counts``.

    Of labels with equally many votes, the one of the nearest neighbour wins. Neighbours are those by cosine, among the
    other N - 1 texts (leave-one-out), where a text whose label stands once counts as wrong; of texts with equal
    embeddings, those with another label come first, so the nearest one of a collapsed encoder is never right.

    Args:
        unit: (N, D) unit rows.
        labels: (N,) whole numbers.
        counts: the k; more than there are neighbours means all of them.
    """
    right = [torch.zeros(len(labels), dtype=torch.bool, device=labels.device) for _ in counts]
    wanted = torch.full_like(labels, max(counts))
    for rows, found in nearest_labels(unit, labels, wanted):
        for hits, k in zip(right, counts, strict=True):
            hits[rows] = _vote(found[:, :k]) == labels[rows]
    return right


def _vote(found: Tensor) -> Tensor:
    """Return the most frequent label (B,) of each row of (B, K) labels, nearest first."""
    votes = (found.unsqueeze(2) == found.unsqueeze(1)).sum(dim=2)  # (B, K): how many neighbours have this label
    return found.gather(1, votes.argmax(dim=1, keepdim=True)).squeeze(1)  # argmax takes the first, the nearest


def average_precision(hits: Tensor, wanted: Tensor) -> Tensor:
    """Return the average precision (B,) of rankings: the sum of the precisions at their hits, divided by ``wanted``.

    Args:
        hits: (B, K) bool, whether the first, second, ... that a ranking finds is relevant.
        wanted: (B,), at least 1: how many are relevant.
    """
    precisions = hits.cumsum(dim=1) / torch.arange(1, hits.size(1) + 1, device=hits.device)
    averages: Tensor = (precisions * hits).sum(dim=1) / wanted
    return averages


def average_precisions(unit: Tensor, labels: Tensor) -> Tensor:
    """Return the average precision at R of each text, (N,), whose mean is MAP@R; NaN where its label stands once.

    (1 / R) sum over i = 1..R of [neighbour i has the label] * precision at i, with R the number of OTHER texts with the
    text's label. Texts whose label stands once have no R, but stay among the neighbours. Source: Musgrave et al., 2020,
    section 3.2 (https://arxiv.org/abs/2003.08505). Of texts with equal embeddings, those with another label come first.

    Args:
        unit: (N, D) unit rows.
        labels: (N,) whole numbers; at least one stands twice.
    """
    others = torch.bincount(labels)[labels] - 1  # (N,): R
    precision = torch.full((len(labels),), torch.nan, dtype=torch.float64, device=labels.device)
    for rows, found in nearest_labels(unit, labels, others):
        r = others[rows]
        ranks = torch.arange(1, found.size(1) + 1, device=found.device)
        hits = (found == labels[rows].unsqueeze(1)) & (ranks <= r.unsqueeze(1))  # (B, K)
        precision[rows] = average_precision(hits, r).double()
    return precision


def nearest_labels(unit: Tensor, labels: Tensor, wanted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the labels of the rows' nearest neighbours, a block of rows at a time.

    Args:
        unit: (N, D) unit rows.
        labels: (N,) whole numbers.
        wanted: (N,), how many neighbours each row needs; rows that need none are left out.

    Yields:
        ``(rows, found)``: (B,) indices, and (B, K) labels of their neighbours, nearest first; K is the largest number
        that one of these rows wants, or that there is.
    """
    different, place, counts = unit.unique(dim=0, return_inverse=True, return_counts=True)
    twins = (counts[place] > 1).nonzero().squeeze(1)  # texts with an embedding that another one has as well
    order = wanted.argsort()  # rows that want about as many stand together
    order = order[wanted[order] > 0]
    for block in row_blocks(len(order), 2 * len(unit)):  # float64
        rows = order[block]
        scores = unit[rows] @ unit.T  # (B, N)
        if len(twins):  # one product for all of them: other columns of a matrix product are rounded otherwise
            equal = (unit[rows] @ different.T)[:, place[twins]]
            same = labels[rows].unsqueeze(1) == labels[twins]
            scores[:, twins] = torch.where(same, equal.nextafter(equal.new_tensor(-torch.inf)), equal)
        scores[torch.arange(len(rows)), rows] = -torch.inf
        count = min(int(wanted[rows[-1]]), len(unit) - 1)
        yield rows, labels[torch.from_numpy(highest(scores.numpy(), count))]  # topk takes equal ones in any order


def v_measure(labels: NDArray[Any], numbers: NDArray[Any]) -> float:
    """Return the V-measure of labels and clusters, whole numbers from 0; it is equal to NMI.

    Equation: 2 I(labels; clusters) / (H(labels) + H(clusters)).
    """
    table = np.bincount(labels * (numbers.max() + 1) + numbers, minlength=(labels.max() + 1) * (numbers.max() + 1))
    both = table.reshape(-1, numbers.max() + 1) / len(labels)

    def entropy(shares: NDArray[Any]) -> float:
        shares = shares[shares > 0]
        return float(-(shares * np.log(shares)).sum())

    parts = entropy(both.sum(axis=1)) + entropy(both.sum(axis=0))
    return max(0.0, 2 * (parts - entropy(both.ravel())) / parts) if parts else 1.0


def clusters(unit: Tensor, labels: Tensor, seed: int = 0) -> np.ndarray:
    """Return the cluster (N,) of each text: of k-means with as many clusters as there are labels, from one start."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    means = KMeans(len(set(labels.tolist())), n_init=1, random_state=seed)
    with warnings.catch_warnings():
        # fewer different embeddings than labels: the score is low then
        warnings.simplefilter("ignore", ConvergenceWarning)
        found: np.ndarray = means.fit_predict(unit.numpy())
    return found


def check_labels(name: str, labels: Any, count: int) -> list[str]:
    """Return the labels of ``count`` texts as text: at least two different ones, one of them twice.

    Args:
        name: the argument's name, for the messages.
        labels: a list, an array, a tensor or another iterable of strings or whole numbers.
        count: how many there must be.

    Raises:
        ValueError: if they are none of these, one is not allowed, or their number is another.
    """
    values = check_iterable(name, labels, "a list of strings or whole numbers")
    values = values.tolist() if isinstance(values, Tensor | np.ndarray) else values
    listed = [check_label(value, f"{name}, row {row}") for row, value in enumerate(values)]
    if len(listed) != count:
        raise ValueError(f"{name} must have one label for each row, got {len(listed)} for {count}.")
    if len(set(listed)) < 2:
        raise ValueError(f"{name} must hold at least two different labels, got only {shown(listed[0])}.")
    if len(set(listed)) == count:
        raise ValueError(f"{name} must hold a label twice, got each once: give several texts of a label.")
    return listed


def label_numbers(labels: Sequence[str]) -> Tensor:
    """Return labels as whole numbers from 0."""
    numbers = {label: number for number, label in enumerate(sorted(set(labels)))}
    return torch.tensor([numbers[label] for label in labels])
