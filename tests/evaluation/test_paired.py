"""Encoders compared on the same pairs or texts: metrics as their evaluators find, the interval as a plain loop."""

import numpy as np
import pytest
from sklearn.metrics import v_measure_score

from st_extras.evaluation import LabeledTextEvaluator, STSDataset, STSEvaluator, paired
from st_extras.evaluation.label_metrics import average_precisions, clusters, knn_hits, label_numbers
from tests.fixtures import SENTENCES


@pytest.fixture
def two(make_encoder):
    return [("one", make_encoder(seed=0)), ("other", make_encoder(seed=1))]


def sets() -> list[STSDataset]:
    pairs = [(a, b) for i, a in enumerate(SENTENCES) for b in SENTENCES[i + 1 :]]
    made = []
    for name, part in (("first", pairs[:16]), ("second", pairs[16:])):
        scores = [float((3 * i) % 5) for i in range(len(part))]
        made.append(
            STSDataset(name, *map(list, zip(*part, strict=True)), scores, ["x", "y", "z", "z"] * (len(part) // 4))
        )
    return made


@pytest.mark.parametrize(("setting", "name"), [("all", "dev"), ("wmean", "")])
def test_sts(two, setting, name):
    evaluator = STSEvaluator(sets(), setting=setting, name=name)
    found = paired.compare_sts(evaluator, two)
    expected = {model: evaluator(encoder) for model, encoder in two}
    prefix = f"{name}_" if name else ""
    for model, metrics in expected.items():
        row = dict(found[model])
        ends = [row.pop(key) for key in ("difference", "low", "high")]
        assert {f"{prefix}{key}": value for key, value in row.items()} == pytest.approx(metrics)
        gain = metrics[f"{prefix}average_spearman_cosine"] - expected["one"][f"{prefix}average_spearman_cosine"]
        assert ends[0] == pytest.approx(gain)
        assert ends == [0, 0, 0] if model == "one" else ends[1] < ends[2]
    score = paired._sts_score(evaluator, evaluator.similarities(two[0][1]))
    twice = [np.repeat(np.arange(len(one)), 2) for one in evaluator.datasets]  # which changes no correlation
    assert score(twice) == pytest.approx(expected["one"][f"{prefix}average_spearman_cosine"])
    drawn = [np.array([0, 1, 5, 2, 3, 6, 7]), np.array([1, 2, 6, 6, 8, 9, 5, 3, 7, 7])]  # one pair of x; several, of z
    correlations = []
    for data, cosines, rows in zip(evaluator.datasets, evaluator.similarities(two[0][1]), drawn, strict=True):
        parts, sizes = [], []
        for part, (of_cosines, of_scores) in zip(evaluator.parts(data), evaluator.ranks(data, cosines), strict=True):
            here = [part.tolist().index(row) for row in rows if row in part]
            if len({*here}) > 1:  # one pair has no correlation
                parts.append(np.corrcoef(of_cosines[here], of_scores[here])[0, 1])
                sizes.append(len(here))
        correlations.append(np.average(parts, weights=sizes))
    assert score(drawn) == pytest.approx(np.mean(correlations))


TEXTS = [f"{text} {more}" for text in SENTENCES for more in ("a", "b", "c")]
LABELS = [label for label in "ababccab" for _ in range(3)]
LABELS[-1] = "alone"


def test_labelled_texts(two):
    evaluator = LabeledTextEvaluator(TEXTS, LABELS)
    found = paired.compare_labeled(evaluator, two)
    for name, encoder in two:
        metrics = evaluator(encoder)
        row = dict(found[name])
        difference, low, high = (row.pop(key) for key in ("difference", "low", "high"))
        assert row == pytest.approx(metrics)
        assert difference == pytest.approx(row["mean"] - found["one"]["mean"])
        assert low <= difference <= high
        of_all = paired._label_score(label_numbers(LABELS), evaluator.unit_rows(encoder))([np.arange(len(TEXTS))])
        assert of_all == pytest.approx(metrics["mean"])
    numbers, unit, rows = (
        label_numbers(LABELS),
        evaluator.unit_rows(two[0][1]),
        np.random.default_rng(0).integers(8, 24, 24),
    )
    in_clusters = [v_measure_score(numbers[rows], clusters(unit, numbers, seed)[rows]) for seed in (0, 1, 2)]
    nearest = knn_hits(unit, numbers, [1])[0][rows].double().mean()
    precision = average_precisions(unit, numbers)[rows].nanmean()
    expected = (float(nearest) + np.mean(in_clusters) + float(precision)) / 3
    assert paired._label_score(numbers, unit)([rows]) == pytest.approx(expected)


def test_the_interval_is_that_of_resampled_texts():
    """Of fixed encoders; 40 texts of different gains, so that no other share of samples has the same ends."""
    precisions = {
        "base": np.linspace(0, 0.5, 40),
        "good": np.linspace(1, 0, 40),
        "better": np.linspace(0.9, 0.3, 40) ** 2,
    }
    models = [(name, name) for name in precisions]

    def score(name):
        return {"precision": precisions[name].mean()}, lambda drawn: float(precisions[name][drawn[0]].mean())

    found = paired._compared(models, score, [40], "precision")["better"]
    generator, gains = np.random.default_rng(0), []
    for _ in range(1000):
        rows = generator.integers(0, 40, 40)
        gains.append(sum(precisions["better"][row] - precisions["base"][row] for row in rows) / 40)
    assert found["difference"] == pytest.approx(np.mean(precisions["better"] - precisions["base"]))
    assert [found["low"], found["high"]] == pytest.approx(np.quantile(gains, [0.025, 0.975]))
    for share in (0.9, 0.94, 0.96):
        assert [found["low"], found["high"]] != pytest.approx(np.quantile(gains, [(1 - share) / 2, (1 + share) / 2]))
    with pytest.raises(ValueError, match="'base' again"):
        paired._compared([*models, ("base", "base")], score, [40], "precision")


@pytest.mark.parametrize(("count", "expected"), [(2, [0.25, 0.25]), (1, [np.nan, np.nan])])
def test_samples_that_repeat_one_pair_have_no_correlation_and_no_part(count, expected):
    def score(gain):
        return {"metric": gain}, lambda drawn: gain if len({*drawn[0].tolist()}) > 1 else np.nan

    found = paired._compared([("one", 0.5), ("other", 0.75)], score, [count], "metric")["other"]
    np.testing.assert_array_equal([found["low"], found["high"]], expected)
