"""All metrics in one call: names, what does not change them, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from st_extras.evaluation import label_scores, load_labeled_texts
from st_extras.evaluation.label_metrics import knn_accuracies, map_at_r, v_measure
from st_extras.evaluation.label_scores import METRICS, primary_metric
from tests.evaluation.test_label_metrics import smooth
from tests.helpers import draw, generator

X, LABELS = smooth(7, count=100)


def test_the_default_metrics() -> None:
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
def test_chosen_metrics(metrics: list[str], names: list[str], primary: str) -> None:
    assert list(label_scores(X, LABELS, metrics=metrics, neighbors=3, seeds=[1])) == names
    assert primary_metric(tuple(name for name in METRICS if name in metrics)) == primary


def test_training_texts_are_the_neighbours_and_what_the_probe_learns_from() -> None:
    own = label_scores(X[:60], LABELS[:60], metrics=METRICS)
    scores = label_scores(
        X[:60], LABELS[:60], metrics=METRICS, train_embeddings=X[60:], train_labels=[str(int(n)) for n in LABELS[60:]]
    )
    assert scores["knn_accuracy"] == knn_accuracies(X[:60], LABELS[:60], [1], (X[60:], LABELS[60:]))[0]
    assert scores["knn_accuracy"] != own["knn_accuracy"]
    assert scores["linear_probe"] != own["linear_probe"]
    assert [name for name in own if name not in scores] == ["linear_probe_std"]
    assert [scores[name] == own[name] for name in ("v_measure", "v_measure_std", "map_at_r")] == [True] * 3


def test_training_texts_may_have_labels_that_are_not_scored() -> None:
    options = {"metrics": ["knn_accuracy", "linear_probe"], "neighbors": 1}
    train = {"train_embeddings": torch.eye(3), "train_labels": ["a", "b", "c"]}
    assert label_scores(torch.eye(3)[1:], ["b", "c"], **options, **train) == {"knn_accuracy": 1.0, "linear_probe": 1.0}
    assert label_scores(torch.eye(3), ["b", "c", "x"], **options, **train) == {"knn_accuracy": 0.0, "linear_probe": 0.0}


def test_labels_of_any_kind_are_the_same_labels() -> None:
    scores = label_scores(X, LABELS)
    assert label_scores(X, [f"label {9 - int(n)}" for n in LABELS]) == pytest.approx(scores)
    assert label_scores(X.tolist(), LABELS.numpy()) == pytest.approx(scores)
    assert label_scores(X.numpy(), LABELS.tolist()) == pytest.approx(scores)


def test_order_scale_and_precision_change_little() -> None:
    x = draw(6, 16)[torch.arange(120) % 6] + draw(120, 16, seed=1)
    labels = torch.arange(120) % 6
    scores = label_scores(x, labels)
    assert 0.5 < scores["mean"] < 1.0
    order = torch.randperm(120, generator=generator())
    lengths = 1 + torch.rand(120, 1, generator=generator())
    nearest = ("knn_accuracy", "knn5_accuracy", "map_at_r")  # k-means starts from other rows
    for other in (label_scores(x[order], labels[order]), label_scores(x * lengths, labels)):
        assert [other[name] for name in nearest] == pytest.approx([scores[name] for name in nearest], abs=1e-6)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert label_scores(x.to(dtype), labels)["mean"] == pytest.approx(scores["mean"], abs=0.02)


def test_autocast_of_the_caller_is_meant_for_the_encoder() -> None:
    x, labels = X.float(), LABELS
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = label_scores(x, labels)
    assert inside == label_scores(x, labels)


def test_a_collapsed_encoder_scores_zero() -> None:
    scores = label_scores(torch.ones(60, 4), torch.arange(60) % 3)
    assert scores == dict.fromkeys(scores, 0.0)


def test_nothing_of_the_caller_changes() -> None:
    x = X.clone().requires_grad_()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = (torch.get_rng_state(), np.random.get_state()[1].copy())  # noqa: NPY002
    label_scores(x, LABELS, metrics=METRICS)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert torch.equal(x, X)


def _with(row: int, value: float) -> Tensor:
    x = X.clone()
    x[row] = value
    return x


ONCE = [str(row) for row in range(100)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: label_scores(X, LABELS[:3]), "labels must have one label for each of the embeddings, got 3 for 100"),
        (lambda: label_scores(X, ["a"] * 100), "labels must hold at least two different labels, got only 'a'"),
        (lambda: label_scores(X[:0], []), r"embeddings must be \(N, D\) with N >= 2, got the shape \(0, 4\)"),
        (lambda: label_scores(X[0], LABELS), r"embeddings must be \(N, D\)"),
        (lambda: label_scores(_with(3, 0.0), LABELS), r"embeddings must have a direction .*\(row 3\)"),
        (lambda: label_scores(_with(3, float("nan")), LABELS), "embeddings must be finite"),
        (lambda: label_scores(_with(3, float("inf")), LABELS), "embeddings must be finite"),
        (lambda: label_scores("ab", LABELS), "embeddings must be numbers"),
        (lambda: label_scores(X, [float("nan")] * 100), "labels, row 0: a label must be .*got nan"),
        (lambda: label_scores(X, ONCE), "labels must hold a label twice for map_at_r, got each once: leave map_at_r"),
        (
            lambda: label_scores(X, LABELS, metrics=["accuracy"]),
            "metrics: each must be one of 'knn_acc.*got 'accuracy'",
        ),
        (lambda: label_scores(X, LABELS, metrics=[]), r"metrics must be a non-empty collection of strings, got \[\]"),
        (lambda: label_scores(X, LABELS, metrics="map_at_r"), "metrics must be .*got the string 'map_at_r'"),
        (lambda: label_scores(X, LABELS, neighbors=0), "neighbors must be a whole number between 1 and 100, got 0"),
        (lambda: label_scores(X, LABELS, neighbors=101), "neighbors must be .*got 101"),
        (lambda: label_scores(X, LABELS, seeds=3), "seeds must be a list of whole numbers, got 3"),
        (lambda: label_scores(X, LABELS, seeds=[]), "seeds must hold at least one whole number, got none"),
        (lambda: label_scores(X, LABELS, seeds=[1, -1]), "seeds: each must be a whole number between 0 .*got -1"),
        (lambda: label_scores(X, LABELS, seeds=torch.tensor(3)), "seeds must be a list of whole numbers"),
        (lambda: label_scores(X, LABELS, train_labels=LABELS), ".* must be given together, got train_embeddings=None"),
        (lambda: label_scores(X, LABELS, train_embeddings=X), ".* must be given together, got train_labels=None"),
        (
            lambda: label_scores(X, LABELS, train_embeddings=X[:, :3], train_labels=LABELS),
            "train_embeddings must have the 4 dimensions of embeddings, got 3",
        ),
        (
            lambda: label_scores(X, LABELS, train_embeddings=X, train_labels=["a"] * 100),
            "train_labels must hold at least two different labels, got only 'a'",
        ),
        (
            lambda: label_scores(X, LABELS, train_embeddings=X, train_labels=["a", "b"] * 50),
            "train_labels must hold labels of the texts that are scored, got none of them: 'a' beside '",
        ),
        (
            lambda: label_scores(X[:8], ["a"] * 4 + ["b"] * 4, metrics=["linear_probe"]),
            "labels must hold a label 5 times and another twice for linear_probe .*got 4 and 4 times: leave linear_pr",
        ),
        (
            lambda: label_scores(X[:6], ["a"] * 5 + ["b"], metrics=["linear_probe"]),
            "labels must hold .* got 5 and 1 times",
        ),
    ],
)
def test_what_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}.*[.?]$"):
        call()


def test_labels_that_stand_once_are_fine_for_the_other_metrics() -> None:
    assert label_scores(X, ONCE, metrics=["knn_accuracy"], neighbors=1) == {"knn_accuracy": 0.0}
    assert label_scores(X, ONCE, metrics=["v_measure"])["v_measure"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
def test_thousands_of_candidates_can_be_scored() -> None:
    """4,500 x 384 with 150 labels takes 1.3 s on one core; four times as much is a fault, not a busy machine."""
    labels = torch.arange(4500) % 150
    centres = torch.randn(150, 384, generator=generator())
    x = centres[labels] + 3 * torch.randn(4500, 384, generator=generator(1))
    start = time.process_time()
    scores = label_scores(x, labels, seeds=(0, 1))
    assert time.process_time() - start < 6
    assert 0 < scores["mean"] < 1


@pytest.mark.slow
def test_banking77(data_folder: Path) -> None:
    """Word counts of real texts, with duplicates, 40 to a label."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import NearestNeighbors

    data = load_labeled_texts(data_folder / "domains" / "banking77_test.tsv.gz")
    assert (len(data), len(set(data.labels)), data.labels[0]) == (3080, 77, "card_arrival")
    counts = TfidfVectorizer().fit_transform(data.texts)
    x = torch.from_numpy(counts.toarray()).float()
    scores = label_scores(x, data.labels, seeds=(0,))
    _, found = NearestNeighbors(n_neighbors=2, metric="cosine").fit(counts).kneighbors()
    own = np.array(data.labels)
    assert scores["knn_accuracy"] == pytest.approx((own[found[:, 0]] == own).mean(), abs=0.005)  # ties
    assert 0.1 < scores["map_at_r"] < scores["v_measure"] < scores["knn_accuracy"] < 0.9
