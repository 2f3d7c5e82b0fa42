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
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from torch import Tensor

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
    nearest_labels,
    v_measure,
)
from tests.helpers import cosine, draw, generator, some_fast

module = sys.modules["st_extras.evaluation.label_scores"]  # the package's attribute is the function

Data = tuple[Tensor, Tensor]


def unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows, dim=1)


def uneven(count: int, seed: int = 0) -> Tensor:
    """Labels of sizes from one to a third of the texts, in random order."""
    sizes = torch.tensor([0.35, 0.3, 0.2, 0.1, 0.05])
    drawn = torch.multinomial(sizes, count - 2, replacement=True, generator=generator(seed))
    labels = torch.cat([drawn, torch.tensor([5, 6])])  # these two stand once
    return labels[torch.randperm(count, generator=generator(seed))]


def tied(seed: int, count: int = 40) -> Data:
    """Rows of -1, 0 and 1, where most cosines stand several times, some with and some without the label."""
    rows = torch.randint(-1, 2, (count, 3), generator=generator(seed)).double()
    rows[rows.abs().sum(dim=1) == 0] = 1.0
    return unit(rows), uneven(count, seed)


def smooth(seed: int, count: int = 60) -> Data:
    """Rows around a centre for each label; every fifth stands twice, with the same label."""
    labels = uneven(count, seed)
    rows = draw(7, 4, seed=seed)[labels] + draw(count, 4, seed=seed + 1)
    rows[1::5], labels[1::5] = rows[0::5].clone(), labels[0::5].clone()
    return unit(rows), labels


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
        if r == 0:
            continue
        hits = [label == int(labels[i]) for label in ranked(x, labels, i)[:r]]
        values.append(sum(hit * sum(hits[: rank + 1]) / (rank + 1) for rank, hit in enumerate(hits)) / r)
    return sum(values) / len(values)


def slow_v_measure(labels: list[int], clusters: list[int]) -> float:
    """Harmonic mean of homogeneity 1 - H(C|K) / H(C) and completeness 1 - H(K|C) / H(K)."""

    def entropy(values: list[int]) -> float:
        return -sum(n / len(values) * math.log(n / len(values)) for n in Counter(values).values())

    def given(values: list[int], other: list[int]) -> float:
        groups = [[v for v, o in zip(values, other, strict=True) if o == group] for group in set(other)]
        return sum(len(group) / len(values) * entropy(group) for group in groups)

    homogeneity = 1 - given(labels, clusters) / entropy(labels)
    completeness = 1 - given(clusters, labels) / entropy(clusters)
    return 2 * homogeneity * completeness / (homogeneity + completeness)


class TestNearestNeighbours:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("data", [tied, smooth])
    def test_the_nearest(self, data, seed):
        x, labels = data(seed)
        assert knn_accuracies(x, labels, [1]) == [slow_knn(x, labels, 1)]

    @pytest.mark.parametrize("seed", some_fast(range(3), [0]))
    @pytest.mark.parametrize("k", [2, 5, 100])
    def test_several(self, k, seed):
        x, labels = smooth(seed)
        assert knn_accuracies(x, labels, [1, k]) == [slow_knn(x, labels, 1), slow_knn(x, labels, k)]

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("k", [1, 3, 7])
    def test_training_texts(self, k, seed):
        x, labels = smooth(seed)
        train = (x[:40], labels[:40])
        assert knn_accuracies(x[40:], labels[40:], [k], train) == [slow_knn(x[40:], labels[40:], k, train)]

    def test_of_equal_votes_the_nearest_wins(self):
        train = unit(torch.tensor([[1.0, 0.1], [1.0, 0.2], [1.0, 0.3], [1.0, 0.4], [0.0, 1.0]]))
        query = torch.tensor([[1.0, 0.0]])
        for own, expected in ((1, 1.0), (0, 0.0), (2, 0.0)):
            found = knn_accuracies(query, torch.tensor([own]), [4], (train, torch.tensor([1, 0, 0, 1, 2])))
            assert found == [expected]


@pytest.mark.parametrize("seed", some_fast(range(3), [0]))
@pytest.mark.parametrize("data", [tied, smooth])
def test_map_at_r_is_the_equation(data, seed):
    x, labels = data(seed)
    assert 0.02 < slow_map_at_r(x, labels) < 0.95
    assert map_at_r(x, labels) == pytest.approx(slow_map_at_r(x, labels), abs=1e-6)
    assert map_at_r(x.float(), labels) == pytest.approx(slow_map_at_r(x, labels), abs=1e-6)


class TestBlocks:
    def test_they_change_nothing(self, monkeypatch):
        x, labels = smooth(3)
        whole = (knn_accuracies(x, labels, [1, 5]), map_at_r(x, labels))
        for rows in (1, 7):
            monkeypatch.setattr(module, "_BLOCK", rows * len(x))
            found = [found for found, _ in nearest_labels(x, labels, torch.ones_like(labels))]
            assert max(map(len, found)) == rows
            assert (knn_accuracies(x, labels, [1, 5]), map_at_r(x, labels)) == (whole[0], pytest.approx(whole[1]))

    def test_rare_labels_ask_for_few_neighbours(self, monkeypatch):
        monkeypatch.setattr(module, "_BLOCK", 200)
        labels = torch.tensor([0] * 10 + [1] * 90)
        wanted = torch.bincount(labels)[labels] - 1
        found = [found.shape for _, found in nearest_labels(unit(draw(100, 3)), labels, wanted)]
        assert found == [(2, 9)] * 5 + [(2, 89)] * 45


class TestClusters:
    @pytest.mark.parametrize("seed", [0, 1])
    def test_the_equation(self, seed):
        x, labels = smooth(4)
        means = KMeans(len(labels.unique()), n_init=1, random_state=seed)
        clusters = means.fit_predict(x.numpy()).tolist()
        assert v_measure(x, labels, seed) == pytest.approx(slow_v_measure(labels.tolist(), clusters))

    @pytest.mark.filterwarnings("error")
    def test_one_point_is_one_cluster(self):
        assert v_measure(torch.ones(6, 1), torch.arange(6) % 3) == 0.0


class TestLinearProbe:
    def test_a_given_split_against_scikit_learn(self):
        x, labels = smooth(5, count=200)
        scaler = StandardScaler().fit(x[:120])
        probe = LogisticRegression(max_iter=1000).fit(scaler.transform(x[:120]), labels[:120])
        theirs = (probe.predict(scaler.transform(x[120:])) == labels[120:].numpy()).mean()
        assert linear_probe(x[120:], labels[120:], x[:120], labels[:120]) == pytest.approx(theirs)
        assert 0.2 < theirs < 1.0

    @pytest.mark.parametrize("seed", [0, 1])
    @pytest.mark.filterwarnings("error")
    def test_folds_as_a_loop(self, seed):
        x, labels = smooth(6, count=100)
        right = 0
        with pytest.warns(UserWarning, match="least populated"):
            splits = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(x, labels))
        for train, test in splits:
            scaler = StandardScaler().fit(x[train])
            probe = LogisticRegression(max_iter=1000).fit(scaler.transform(x[train]), labels[train])
            right += int((probe.predict(scaler.transform(x[test])) == labels[test].numpy()).sum())
        assert cross_validated_probe(x, labels, seed) == pytest.approx(right / 100)
        assert 0.2 < right / 100 < 1.0


X, LABELS = smooth(7, count=100)


def test_the_default_metrics():
    scores = label_scores(X, LABELS)
    clusters = [v_measure(X, LABELS, seed) for seed in (0, 1, 2)]
    expected = {
        "knn_accuracy": knn_accuracies(X, LABELS, [1])[0],
        "knn5_accuracy": knn_accuracies(X, LABELS, [5])[0],
        "v_measure": np.mean(clusters),
        "v_measure_std": np.std(clusters),
        "map_at_r": map_at_r(X, LABELS),
    }
    expected["mean"] = (expected["knn_accuracy"] + expected["v_measure"] + expected["map_at_r"]) / 3
    assert scores == {name: pytest.approx(value) for name, value in expected.items()}
    assert list(scores) == list(expected)
    assert {type(value) for value in scores.values()} == {float}


@pytest.mark.parametrize(
    ("metrics", "names", "primary"),
    [
        (["knn_accuracy"], ["knn_accuracy", "knn3_accuracy"], "knn_accuracy"),
        (("map_at_r", "v_measure"), ["v_measure", "v_measure_std", "map_at_r"], "v_measure"),
        (["linear_probe", "linear_probe"], ["linear_probe", "linear_probe_std"], "linear_probe"),
    ],
)
def test_chosen_metrics(metrics, names, primary):
    assert list(label_scores(X, LABELS, metrics=metrics, neighbors=3, seeds=[1])) == names
    scoring = LabelScoring(LABELS, None, 100, None, metrics=metrics, neighbors=3, seeds=[1])
    assert scoring.primary_metric == primary


def test_training_texts_are_the_neighbours_and_what_the_probe_learns_from():
    own = label_scores(X[:60], LABELS[:60], metrics=METRICS)
    scores = label_scores(
        X[:60], LABELS[:60], metrics=METRICS, train_embeddings=X[60:], train_labels=[str(int(n)) for n in LABELS[60:]]
    )
    assert scores["knn_accuracy"] == knn_accuracies(X[:60], LABELS[:60], [1], (X[60:], LABELS[60:]))[0]
    assert scores["knn_accuracy"] != own["knn_accuracy"]
    assert scores["linear_probe"] != own["linear_probe"]
    assert [name for name in own if name not in scores] == ["linear_probe_std"]
    assert [scores[name] == own[name] for name in ("v_measure", "v_measure_std", "map_at_r")] == [True] * 3


def test_autocast_of_the_caller_is_meant_for_the_encoder():
    x, labels = X.float(), LABELS
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = label_scores(x, labels)
    assert inside == label_scores(x, labels)


ONCE = [str(row) for row in range(100)]
LABELED = {"embeddings": X, "labels": LABELS}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"labels": LABELS[:3]}, "labels must have one label for each of the rows, got 3 for 100"),
        ({"labels": ["a"] * 100}, "labels must hold at least two different labels"),
        ({"embeddings": X[:0], "labels": []}, "embeddings"),
        ({"labels": ONCE}, "labels .* map_at_r"),
        ({"metrics": ["accuracy"]}, "metrics"), ({"metrics": "map_at_r"}, "metrics"), ({"neighbors": 101}, "neighbors"),
        ({"seeds": 3}, "seeds"), ({"seeds": [1, -1]}, "seeds"), ({"train_labels": LABELS}, "train_labels"),
        ({"train_embeddings": X[:, :3], "train_labels": LABELS}, "train_embeddings must have the 4 dimensions"),
        ({"train_embeddings": X, "train_labels": ["a", "b"] * 50}, "train_labels"),
        ({"embeddings": X[:8], "labels": ["a"] * 4 + ["b"] * 4, "metrics": ["linear_probe"]}, "labels .* linear_probe"),
    ],
)  # fmt: skip
def test_what_is_refused(given, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        label_scores(**(LABELED | given))


@pytest.mark.parametrize(
    "labels",
    [["3", "0"], (3, 0), np.array([3, 0]), torch.tensor([3, 0]), iter([3, "0"]), Dataset.from_dict({"l": [3, 0]})["l"]],
)
def test_labels_of_any_kind_become_text(labels):
    assert check_labels("labels", labels, 2) == ["3", "0"]


@pytest.mark.parametrize("value", [math.nan, None, 1.0, True, np.bool_(True), b"a", ["a"], "", " \t"])
def test_what_is_no_label_is_named_with_its_row(value):
    with pytest.raises(ValueError, match=r"^labels, row 1: a label must"):
        check_labels("labels", ["a", value], 2)


@pytest.mark.parametrize("labels", ["ab", b"ab", 3, None, {"a": 1}, np.array(3), torch.tensor(3)])
def test_what_is_no_list_is_named(labels):
    with pytest.raises(ValueError, match=r"^labels must be a list"):
        check_labels("labels", labels, 2)


def test_equal_labels_get_equal_numbers_in_all_lists():
    first, second = label_numbers(["b", "a", "b"], ["c", "a", "a\0"])
    assert (first.tolist(), second.tolist()) == ([2, 0, 2], [3, 0, 1])
