"""The metrics as loops, blocks, clusters, and refusals; tests/test_references.py has more kinds of embeddings."""

import math
import warnings

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score
from torch import Tensor

from st_extras import functional
from st_extras.evaluation import label_metrics, label_scores
from st_extras.evaluation.label_metrics import (
    average_precisions,
    check_labels,
    clusters,
    knn_hits,
    label_numbers,
    v_measure,
)
from tests.helpers import cosine, draw, generator

module = label_metrics

Data = tuple[Tensor, Tensor]


def uneven(count: int, seed: int) -> Tensor:
    """Labels of sizes from one to a third of the texts, in random order."""
    sizes = torch.tensor([0.35, 0.3, 0.2, 0.1, 0.05])
    drawn = torch.multinomial(sizes, count - 2, replacement=True, generator=generator(seed))
    return torch.cat([drawn, torch.tensor([5, 6])])[torch.randperm(count, generator=generator(seed))]


def smooth(seed: int, count: int = 60) -> Data:
    """Rows around a centre for each label; every fifth stands twice with its label, every fifth with one of its own."""
    labels = uneven(count, seed)
    rows = draw(7, 4, seed=seed)[labels] + draw(count, 4, seed=seed + 1)
    rows[1::5], labels[1::5] = rows[0::5].clone(), labels[0::5].clone()
    rows[3::5] = rows[2::5].clone()
    return torch.nn.functional.normalize(rows), labels


def ranked(x: Tensor, labels: list[int], i: int) -> list[int]:
    """The labels of the neighbours of text i, nearest first; of equal embeddings, those with another label first."""
    others = [j for j in range(len(x)) if j != i]
    key = {j: (-cosine(x[i], x[j]), labels[j] == labels[i]) for j in others}
    return [labels[j] for j in sorted(others, key=key.__getitem__)]


def loop_of_neighbors(x: Tensor, labels: list[int]) -> dict[str, float]:
    """1-NN accuracy, 5-NN accuracy and MAP@R."""
    right, voted, precisions = [], [], []
    for i, label in enumerate(labels):
        found = ranked(x, labels, i)
        right.append(found[0] == label)
        votes = [found[:5].count(other) for other in found[:5]]
        voted.append(found[votes.index(max(votes))] == label)
        if r := labels.count(label) - 1:
            hits = [other == label for other in found[:r]]
            precisions.append(sum(hit * sum(hits[: rank + 1]) / (rank + 1) for rank, hit in enumerate(hits)) / r)
    return {
        "knn_accuracy": float(np.mean(right)),
        "knn5_accuracy": float(np.mean(voted)),
        "map_at_r": float(np.mean(precisions)),
    }


def knn_accuracies(x: Tensor, labels: Tensor, counts: list[int]) -> list[float]:
    return [int(right.sum()) / len(x) for right in knn_hits(x, labels, counts)]


def map_at_r(x: Tensor, labels: Tensor) -> float:
    return float(average_precisions(x, labels).nanmean())


def test_blocks_change_nothing(monkeypatch):
    x, labels = smooth(3)
    whole = (knn_accuracies(x, labels, [1, 5]), map_at_r(x, labels))
    monkeypatch.setattr(functional, "_SCORES", 7 * len(x))
    assert (knn_accuracies(x, labels, [1, 5]), map_at_r(x, labels)) == (whole[0], pytest.approx(whole[1]))


def test_clusters_are_scikit_learns():
    x, labels = smooth(6, count=100)
    expected = KMeans(len(labels.unique()), n_init=1, random_state=1).fit_predict(x.numpy())
    found = clusters(x, labels, 1)
    assert found.tolist() == expected.tolist()


def test_the_v_measure_is_that_of_scikit_learn_whatever_is_missing():
    """As in a sample of texts, which need not have each label nor each cluster."""
    random = np.random.default_rng(0)
    for kinds, groups in ((3, 5), (5, 3), (4, 1), (1, 4), (1, 1)):
        a, b = 2 * random.integers(0, kinds, 40), 1 + 3 * random.integers(0, groups, 40)
        assert v_measure(a, b) == pytest.approx(v_measure_score(a, b), abs=1e-12)
    assert v_measure(np.zeros(4, int), np.zeros(4, int)) == 1.0
    assert v_measure(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])) == 0.0


def test_a_collapsed_encoder_scores_0_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = label_scores(torch.ones(6, 3), list("aabbcc"))
    assert scores == dict.fromkeys(scores, 0.0)


def test_fewer_texts_than_neighbours_that_vote():
    x, labels = draw(5, 3, seed=2), torch.tensor([0, 1, 0, 1, 0])
    expected = loop_of_neighbors(torch.nn.functional.normalize(x), labels.tolist())
    scores = label_scores(x, labels)
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"^embeddings must be \(N, D\) with N >= 2"):
        label_scores(x[:1], ["a"])


X, LABELS = smooth(7, count=100)


def test_the_default_metrics():
    v_measures = [v_measure(LABELS.numpy(), clusters(X, LABELS, seed)) for seed in (0, 1, 2)]
    by_loop = loop_of_neighbors(X.double(), LABELS.tolist())
    expected = {"knn_accuracy": by_loop["knn_accuracy"], "knn5_accuracy": by_loop["knn5_accuracy"]}
    expected |= {"v_measure": np.mean(v_measures), "v_measure_std": np.std(v_measures)}
    expected["map_at_r"] = by_loop["map_at_r"]
    expected["mean"] = (expected["knn_accuracy"] + expected["v_measure"] + expected["map_at_r"]) / 3
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which is meant for the encoder
        scores = label_scores(X.float(), LABELS)
    assert scores == {name: pytest.approx(value) for name, value in expected.items()}
    assert list(scores) == list(expected)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[:3], "have one label for each row, got 3 for 100."), (["a"] * 100, "hold at least two different"),
        (range(100), "hold a label twice"), ([*range(99), 1, 2], "have one label for each row, got 101 for 100."),
    ],
)  # fmt: skip
def test_what_is_refused(labels, message):
    with pytest.raises(ValueError, match=rf"^labels must {message}"):
        label_scores(X, labels)


def test_labels_of_any_kind_become_text_and_equal_ones_get_equal_numbers():
    column = Dataset.from_dict({"label": [3, 0, 3]})["label"]
    for labels in (["3", "0", "3"], np.array([3, 0, 3]), torch.tensor([3, 0, 3]), iter([3, "0", 3]), column):
        assert check_labels("labels", labels, 3) == ["3", "0", "3"]
    for value in (math.nan, None, 1.0, True, b"a", " \t"):
        with pytest.raises(ValueError, match=r"^labels, row 1: a label must"):
            check_labels("labels", ["a", value], 2)
    for labels in ("ab", 3, {"a": 1}, np.array(3)):
        with pytest.raises(ValueError, match=r"^labels must be a list"):
            check_labels("labels", labels, 2)
    assert label_numbers(["b", "a", "a\0", "b"]).tolist() == [2, 0, 1, 2]
    assert label_numbers("gfedcba").tolist() == [6, 5, 4, 3, 2, 1, 0]
