"""Each metric against the equation as a plain loop, or scikit-learn, on data with ties and labels of uneven size."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from st_extras.evaluation import label_metrics
from st_extras.evaluation.label_metrics import (
    cross_validated_probe,
    knn_accuracies,
    linear_probe,
    map_at_r,
    nearest_labels,
    v_measure,
)
from tests.helpers import cosine, draw, generator

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
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("data", [tied, smooth])
    def test_the_nearest(self, data, seed: int) -> None:
        x, labels = data(seed)
        assert knn_accuracies(x, labels, [1]) == [slow_knn(x, labels, 1)]

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("k", [2, 5, 59, 100])
    def test_several(self, k: int, seed: int) -> None:
        x, labels = smooth(seed)
        assert knn_accuracies(x, labels, [1, k]) == [slow_knn(x, labels, 1), slow_knn(x, labels, k)]

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("k", [1, 3, 7])
    def test_training_texts(self, k: int, seed: int) -> None:
        x, labels = smooth(seed)
        train = (x[:40], labels[:40])
        assert knn_accuracies(x[40:], labels[40:], [k], train) == [slow_knn(x[40:], labels[40:], k, train)]

    @pytest.mark.parametrize("k", [1, 3, 9])
    def test_two_labels_against_scikit_learn(self, k: int) -> None:
        x, labels = unit(draw(80, 5)), torch.arange(80) % 2
        theirs = KNeighborsClassifier(k, metric="cosine").fit(x[:50], labels[:50]).score(x[50:], labels[50:])
        (ours,) = knn_accuracies(x[50:], labels[50:], [k], (x[:50], labels[:50]))
        assert ours == pytest.approx(theirs)

    def test_of_equal_votes_the_nearest_wins(self) -> None:
        train = unit(torch.tensor([[1.0, 0.1], [1.0, 0.2], [1.0, 0.3], [1.0, 0.4], [0.0, 1.0]]))
        query = torch.tensor([[1.0, 0.0]])
        for own, expected in ((1, 1.0), (0, 0.0), (2, 0.0)):
            found = knn_accuracies(query, torch.tensor([own]), [4], (train, torch.tensor([1, 0, 0, 1, 2])))
            assert found == [expected]

    def test_a_text_has_no_vote_for_itself(self) -> None:
        x = unit(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]))
        assert knn_accuracies(x, torch.tensor([0, 1, 0]), [3]) == [0.0]

    def test_equally_near_ones_with_another_label_come_first(self) -> None:
        x = torch.ones(4, 2) / math.sqrt(2)
        assert knn_accuracies(x, torch.tensor([0, 0, 1, 1]), [1]) == [0.0]
        assert map_at_r(x, torch.tensor([0, 0, 1, 1])) == 0.0
        assert knn_accuracies(x, torch.tensor([0, 0, 0, 0]), [1]) == [1.0]  # the branch is about others alone

    def test_a_copy_with_the_label_is_the_nearest(self) -> None:
        x = unit(draw(6, 3))
        assert knn_accuracies(x, torch.arange(6), [1], (x.flip(0), torch.arange(6).flip(0))) == [1.0]


class TestMAPAtR:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("data", [tied, smooth])
    def test_the_equation(self, data, seed: int) -> None:
        x, labels = data(seed)
        assert 0.02 < slow_map_at_r(x, labels) < 0.95
        assert map_at_r(x, labels) == pytest.approx(slow_map_at_r(x, labels), abs=1e-6)
        assert map_at_r(x.float(), labels) == pytest.approx(slow_map_at_r(x, labels), abs=1e-6)

    def test_by_hand(self) -> None:
        angles = torch.tensor([0.0, 0.1, 0.25, 0.45])
        x = torch.stack([angles.cos(), angles.sin()], dim=1)
        # neighbours of 0: 1 b, 2 a, 3 a; of 2: 1 b, 3 a, 0 a; of 3: 2 a, 1 b, 0 a; 1 has no other b
        expected = ((0 + 1 / 2) / 2 + (0 + 1 / 2) / 2 + (1 + 0) / 2) / 3
        assert map_at_r(x, torch.tensor([0, 1, 0, 0])) == pytest.approx(expected)

    def test_a_label_that_stands_once_disturbs_but_does_not_count(self) -> None:
        x = unit(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.5]]))
        assert map_at_r(x[:2], torch.tensor([0, 0])) == 1.0
        assert map_at_r(x, torch.tensor([0, 0, 1])) == 0.0


class TestBlocks:
    def test_they_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, labels = smooth(3)
        whole = (knn_accuracies(x, labels, [1, 5]), map_at_r(x, labels))
        for rows in (1, 7):
            monkeypatch.setattr(label_metrics, "_BLOCK", rows * len(x))
            found = [found for found, _ in nearest_labels(x, labels, torch.ones_like(labels))]
            assert max(map(len, found)) == rows
            assert (knn_accuracies(x, labels, [1, 5]), map_at_r(x, labels)) == (whole[0], pytest.approx(whole[1]))

    def test_no_block_has_more_cosines_than_fit(self) -> None:
        x = unit(torch.randn(9000, 2, generator=generator()))
        labels = torch.zeros(9000, dtype=torch.int64)
        sizes = [len(rows) for rows, _ in nearest_labels(x, labels, torch.ones_like(labels))]
        assert (sum(sizes), max(sizes) * 9000 <= 2**22) == (9000, True)

    def test_rare_labels_ask_for_few_neighbours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(label_metrics, "_BLOCK", 200)
        labels = torch.tensor([0] * 10 + [1] * 90)
        wanted = torch.bincount(labels)[labels] - 1
        found = [found.shape for _, found in nearest_labels(unit(draw(100, 3)), labels, wanted)]
        assert found == [(2, 9)] * 5 + [(2, 89)] * 45


class TestClusters:
    @pytest.mark.parametrize("seed", [0, 1])
    def test_the_equation(self, seed: int) -> None:
        x, labels = smooth(4)
        means = KMeans(len(labels.unique()), n_init=1, random_state=seed)
        clusters = means.fit_predict(x.numpy()).tolist()
        assert v_measure(x, labels, seed) == pytest.approx(slow_v_measure(labels.tolist(), clusters))

    def test_the_seed_is_that_of_the_start(self) -> None:
        x, labels = smooth(4, count=200)
        assert v_measure(x, labels, 1) == v_measure(x, labels, 1)
        assert len({v_measure(x, labels, seed) for seed in range(4)}) > 1

    def test_clear_clusters(self) -> None:
        x = unit(torch.eye(4).repeat(5, 1) + 0.01 * torch.randn(20, 4, generator=generator()))
        assert v_measure(x, torch.arange(20) % 4) == pytest.approx(1.0)

    @pytest.mark.filterwarnings("error")
    def test_one_point_is_one_cluster(self) -> None:
        assert v_measure(torch.ones(6, 1), torch.arange(6) % 3) == 0.0


class TestLinearProbe:
    def test_a_given_split_against_scikit_learn(self) -> None:
        x, labels = smooth(5, count=200)
        scaler = StandardScaler().fit(x[:120])
        probe = LogisticRegression(max_iter=1000).fit(scaler.transform(x[:120]), labels[:120])
        theirs = (probe.predict(scaler.transform(x[120:])) == labels[120:].numpy()).mean()
        assert linear_probe(x[120:], labels[120:], x[:120], labels[:120]) == pytest.approx(theirs)
        assert 0.2 < theirs < 1.0

    @pytest.mark.parametrize("seed", [0, 1])
    @pytest.mark.filterwarnings("error")
    def test_folds_as_a_loop(self, seed: int) -> None:
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

    def test_the_fewest_labels_that_it_takes(self) -> None:
        x = torch.cat([unit(draw(5, 3)), unit(draw(2, 3, seed=1) + 9)])
        for seed in range(10):
            assert 0 <= cross_validated_probe(x, torch.tensor([0] * 5 + [1] * 2), seed) <= 1
