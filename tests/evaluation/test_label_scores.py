"""Each metric against the equation as a plain loop, or scikit-learn, on data with ties; all in one call; refusals."""

import math
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import v_measure_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from st_extras import functional
from st_extras.evaluation import label_scores
from st_extras.evaluation.label_scores import (
    METRICS,
    LabelScoring,
    check_labels,
    cross_validated_probe,
    knn_accuracies,
    label_numbers,
    linear_probe,
    map_at_r,
    v_measure,
)
from tests.helpers import cosine, draw, generator

module = sys.modules["st_extras.evaluation.label_scores"]  # the package's attribute is the function

Data = tuple[Tensor, Tensor]


def uneven(count: int, seed: int) -> Tensor:
    """Labels of sizes from one to a third of the texts, in random order."""
    sizes = torch.tensor([0.35, 0.3, 0.2, 0.1, 0.05])
    drawn = torch.multinomial(sizes, count - 2, replacement=True, generator=generator(seed))
    return torch.cat([drawn, torch.tensor([5, 6])])[torch.randperm(count, generator=generator(seed))]


def tied(seed: int, count: int = 40) -> Data:
    """Rows of -1, 0 and 1, where most cosines stand several times, some with and some without the label."""
    rows = torch.randint(-1, 2, (count, 3), generator=generator(seed)).double()
    rows[rows.abs().sum(dim=1) == 0] = 1.0
    return torch.nn.functional.normalize(rows), uneven(count, seed)


def smooth(seed: int, count: int = 60) -> Data:
    """Rows around a centre for each label; every fifth stands twice, with the same label."""
    labels = uneven(count, seed)
    rows = draw(7, 4, seed=seed)[labels] + draw(count, 4, seed=seed + 1)
    rows[1::5], labels[1::5] = rows[0::5].clone(), labels[0::5].clone()
    return torch.nn.functional.normalize(rows), labels


def ranked(x: Tensor, labels: Tensor, i: int, train: Data | None = None) -> list[int]:
    """The labels of the neighbours of text i, nearest first; of equally near ones, those with another label first."""
    rows, own = (x, labels) if train is None else train
    others = [j for j in range(len(rows)) if train is not None or j != i]
    key = {j: (-round(cosine(x[i], rows[j]), 7), int(own[j]) == int(labels[i])) for j in others}
    return [int(own[j]) for j in sorted(others, key=key.__getitem__)]


def slow_knn(x: Tensor, labels: Tensor, k: int, train: Data | None = None) -> float:
    right = 0
    for i in range(len(x)):
        found = ranked(x, labels, i, train)[:k]
        votes = Counter(found)
        winner = next(label for label in found if votes[label] == max(votes.values()))
        right += winner == int(labels[i])
    return right / len(x)


def slow_map_at_r(x: Tensor, labels: Tensor) -> float:
    values = []
    for i in range(len(x)):
        r = sum(int(label) == int(labels[i]) for label in labels) - 1
        if r > 0:
            hits = [label == int(labels[i]) for label in ranked(x, labels, i)[:r]]
            values.append(sum(hit * sum(hits[: rank + 1]) / (rank + 1) for rank, hit in enumerate(hits)) / r)
    return sum(values) / len(values)


@pytest.mark.parametrize("data", [tied, smooth])
def test_neighbours_are_those_of_plain_loops(data):
    x, labels = data(0)
    counts = [1, 5, 100] if data is smooth else [1]
    assert knn_accuracies(x, labels, counts) == [slow_knn(x, labels, k) for k in counts]
    assert 0.02 < slow_map_at_r(x, labels) < 0.95
    assert map_at_r(x, labels) == pytest.approx(slow_map_at_r(x, labels), abs=1e-6)
    train = (x[:30], labels[:30])
    assert knn_accuracies(x[30:], labels[30:], [1], train) == [slow_knn(x[30:], labels[30:], 1, train)]


def test_blocks_change_nothing(monkeypatch):
    x, labels = smooth(3)
    whole = (knn_accuracies(x, labels, [1, 5]), map_at_r(x, labels))
    monkeypatch.setattr(functional, "_SCORES", 7 * len(x))
    assert (knn_accuracies(x, labels, [1, 5]), map_at_r(x, labels)) == (whole[0], pytest.approx(whole[1]))


def test_clusters_and_probes_are_scikit_learns():
    x, labels = smooth(6, count=100)
    clusters = KMeans(len(labels.unique()), n_init=1, random_state=1).fit_predict(x.numpy())
    assert v_measure(x, labels, 1) == pytest.approx(v_measure_score(labels, clusters))

    def right(train: np.ndarray, test: np.ndarray) -> int:
        scaler = StandardScaler().fit(x[train])
        probe = LogisticRegression(max_iter=1000).fit(scaler.transform(x[train]), labels[train])
        return int((probe.predict(scaler.transform(x[test])) == labels[test].numpy()).sum())

    with pytest.warns(UserWarning, match="least populated"):
        folds = list(StratifiedKFold(5, shuffle=True, random_state=1).split(x, labels))
    assert cross_validated_probe(x, labels, 1) == pytest.approx(sum(right(*fold) for fold in folds) / 100)
    train, test = folds[0]
    found = linear_probe(x[test], labels[test], x[train], labels[train])
    assert found == pytest.approx(right(train, test) / len(test))


X, LABELS = smooth(7, count=100)


def test_the_default_metrics():
    clusters = [v_measure(X, LABELS, seed) for seed in (0, 1, 2)]
    nearest, voted = knn_accuracies(X, LABELS, [1, 5])
    expected = {"knn_accuracy": nearest, "knn5_accuracy": voted, "v_measure": np.mean(clusters)}
    expected |= {"v_measure_std": np.std(clusters), "map_at_r": map_at_r(X, LABELS)}
    expected["mean"] = (expected["knn_accuracy"] + expected["v_measure"] + expected["map_at_r"]) / 3
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which is meant for the encoder
        scores = label_scores(X.float(), LABELS)
    assert scores == {name: pytest.approx(value) for name, value in expected.items()}
    assert list(scores) == list(expected)


def test_training_texts_are_the_neighbours_and_what_the_probe_learns_from():
    own = label_scores(X[:60], LABELS[:60], metrics=METRICS)
    probes = [cross_validated_probe(X[:60], LABELS[:60], seed) for seed in (0, 1, 2)]
    assert [own["linear_probe"], own["linear_probe_std"]] == [np.mean(probes), np.std(probes)]
    train = {"train_embeddings": X[60:], "train_labels": [str(int(n)) for n in LABELS[60:]]}
    scores = label_scores(X[:60], LABELS[:60], metrics=METRICS, **train)
    assert scores["knn_accuracy"] == knn_accuracies(X[:60], LABELS[:60], [1], (X[60:], LABELS[60:]))[0]
    assert scores["linear_probe"] == linear_probe(X[:60], LABELS[:60], X[60:], LABELS[60:]) != own["linear_probe"]
    assert [name for name in own if name not in scores] == ["linear_probe_std"]
    assert [scores[name] == own[name] for name in ("v_measure", "v_measure_std", "map_at_r")] == [True] * 3
    chosen = {"metrics": ("map_at_r", "knn_accuracy"), "neighbors": 3, "seeds": [1]}
    assert list(label_scores(X, LABELS, **chosen)) == ["knn_accuracy", "knn3_accuracy", "map_at_r"]
    assert LabelScoring(LABELS, None, 100, None, **chosen).primary_metric == "knn_accuracy"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"labels": LABELS[:3]}, "labels"), ({"labels": ["a"] * 100}, "labels"), ({"labels": range(100)}, "labels"),
        ({"metrics": ["accuracy"]}, "metrics"), ({"neighbors": 101}, "neighbors"), ({"seeds": [1, -1]}, "seeds"),
        ({"train_labels": LABELS}, "train_labels"),
        ({"train_embeddings": X[:, :3], "train_labels": LABELS}, "train_embeddings"),
        ({"train_embeddings": X, "train_labels": ["a", "b"] * 50}, "train_labels"),
        ({"embeddings": X[:8], "labels": ["a"] * 4 + ["b"] * 4, "metrics": ["linear_probe"]}, "labels"),
    ],
)  # fmt: skip
def test_what_is_refused(given, named):
    with pytest.raises(ValueError, match=rf"^{named}"):
        label_scores(**({"embeddings": X, "labels": LABELS} | given))


def test_labels_of_any_kind_become_text_and_equal_ones_get_equal_numbers():
    column = Dataset.from_dict({"label": [3, 0]})["label"]
    for labels in (["3", "0"], np.array([3, 0]), torch.tensor([3, 0]), iter([3, "0"]), column):
        assert check_labels("labels", labels, 2) == ["3", "0"]
    for value in (math.nan, None, 1.0, True, b"a", " \t"):
        with pytest.raises(ValueError, match=r"^labels, row 1: a label must"):
            check_labels("labels", ["a", value], 2)
    for labels in ("ab", 3, {"a": 1}, np.array(3)):
        with pytest.raises(ValueError, match=r"^labels must be a list"):
            check_labels("labels", labels, 2)
    first, second = label_numbers(["b", "a", "b"], ["c", "a", "a\0"])
    assert (first.tolist(), second.tolist()) == ([2, 0, 2], [3, 0, 1])
