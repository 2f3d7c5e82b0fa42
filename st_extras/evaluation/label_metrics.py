"""The metrics of embeddings with labels, one function each: nearest neighbours, MAP@R, clusters, a linear probe.

They take (N, D) unit rows and (N,) whole numbers as labels; ``label_scores`` checks arguments and takes any labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

FOLDS = 5
_TIE = 1e-6  # cosines that differ by less are equal: the rounding of float32
_BLOCK = 2**22  # cosines held at a time: 16 MiB
_MOST_ROWS = 1024  # of a block


def knn_accuracies(
    unit: Tensor, labels: Tensor, counts: Sequence[int], train: tuple[Tensor, Tensor] | None = None
) -> list[float]:
    """Share of texts whose label the majority of their k nearest neighbours has, for each k of ``counts``.

    Of labels with equally many votes, the one of the nearest neighbour wins. Neighbours are those by cosine; of equally
    near ones, those with another label come first, so the nearest one of a collapsed encoder is never right.

    Args:
        unit: (N, D) unit rows.
        labels: (N,) whole numbers.
        counts: the k; more than there are neighbours means all of them.
        train: (M, D) unit rows and their (M,) labels, the neighbours; None: the other N - 1 rows (leave-one-out), where
            a text whose label stands once counts as wrong.
    """
    right = dict.fromkeys(counts, 0)
    wanted = torch.full_like(labels, max(counts))
    for rows, found in nearest_labels(unit, labels, wanted, train):
        for k in counts:
            right[k] += int((_vote(found[:, :k]) == labels[rows]).sum())
    return [right[k] / len(labels) for k in counts]


def _vote(found: Tensor) -> Tensor:
    """Return the most frequent label (B,) of each row of (B, K) labels, nearest first."""
    votes = (found.unsqueeze(2) == found.unsqueeze(1)).sum(dim=2)  # (B, K): how many neighbours have this label
    return found.gather(1, votes.argmax(dim=1, keepdim=True)).squeeze(1)  # argmax takes the first, the nearest


def map_at_r(unit: Tensor, labels: Tensor) -> float:
    """MAP@R: mean over the texts of (1 / R) sum over i = 1..R of [neighbour i has the label] * precision at i.

    R is the number of OTHER texts with the text's label. Texts whose label stands once have no R and are left out of
    the mean, but stay among the neighbours. Source: Musgrave et al., 2020, section 3.2
    (https://arxiv.org/abs/2003.08505). Of equally near neighbours, those with another label come first.

    Args:
        unit: (N, D) unit rows.
        labels: (N,) whole numbers; at least one stands twice.
    """
    others = torch.bincount(labels)[labels] - 1  # (N,): R
    total = 0.0
    for rows, found in nearest_labels(unit, labels, others):
        r = others[rows].unsqueeze(1)
        ranks = torch.arange(1, found.size(1) + 1, device=found.device)
        hits = (found == labels[rows].unsqueeze(1)) & (ranks <= r)  # (B, K)
        precisions = hits.cumsum(dim=1) / ranks
        total += float(((precisions * hits).sum(dim=1) / r.squeeze(1)).sum())
    return total / int((others > 0).sum())


def nearest_labels(
    unit: Tensor, labels: Tensor, wanted: Tensor, train: tuple[Tensor, Tensor] | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the labels of the rows' nearest neighbours, a block of rows at a time.

    Args:
        unit: (N, D) unit rows.
        labels: (N,) whole numbers.
        wanted: (N,), how many neighbours each row needs; rows that need none are left out.
        train: as for ``knn_accuracies``.

    Yields:
        ``(rows, found)``: (B,) indices, and (B, K) labels of their neighbours, nearest first; K is the largest number
        that one of these rows wants, or that there is.
    """
    candidates, candidate_labels = (unit, labels) if train is None else train
    order = wanted.argsort()  # rows that want about as many stand together
    order = order[wanted[order] > 0]
    available = len(candidates) - (train is None)
    for rows in torch.split(order, min(max(1, _BLOCK // len(candidates)), _MOST_ROWS)):
        scores = unit[rows] @ candidates.T  # (B, M)
        scores -= _TIE * (labels[rows].unsqueeze(1) == candidate_labels)
        if train is None:
            scores[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
        yield rows, candidate_labels[scores.topk(min(int(wanted[rows[-1]]), available), dim=1).indices]


# --- clusters and a linear probe, by scikit-learn ---


def v_measure(unit: Tensor, labels: Tensor, seed: int = 0) -> float:
    """V-measure (equal to NMI) of k-means with as many clusters as there are labels, from one start.

    Args:
        unit: (N, D) unit rows.
        labels: (N,) whole numbers.
        seed: seed of the start.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import v_measure_score

    means = KMeans(len(set(labels.tolist())), n_init=1, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different embeddings than labels: the score says so
        clusters = means.fit_predict(unit.cpu().numpy())
    return float(v_measure_score(labels.cpu().numpy(), clusters))


def linear_probe(unit: Tensor, labels: Tensor, train_unit: Tensor, train_labels: Tensor) -> float:
    """Accuracy of a logistic regression on standardized embeddings, learned from the (M, D) training rows."""
    probe = _probe().fit(train_unit.cpu().numpy(), train_labels.cpu().numpy())
    return float(probe.score(unit.cpu().numpy(), labels.cpu().numpy()))


def cross_validated_probe(unit: Tensor, labels: Tensor, seed: int = 0) -> float:
    """Accuracy of a logistic regression on standardized embeddings, in stratified 5-fold cross-validation.

    Each text counts once, also one whose label is too rare to be in every fold.

    Args:
        unit: (N, D) unit rows.
        labels: (N,) whole numbers; two of them stand twice, one of them five times.
        seed: seed of the folds.
    """
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    own = labels.cpu().numpy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        predicted = cross_val_predict(_probe(), unit.cpu().numpy(), own, cv=folds)
    return float((predicted == own).mean())


def _probe() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
