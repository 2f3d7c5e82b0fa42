"""The study of label-free selection on curves small enough to check by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import selection as study


def record(run: str, objective: str, dev, losses, **signals) -> tuple[str, dict[str, Any]]:
    checkpoints = [
        {
            "step": 10 * index,
            "dev_spearman": score,
            "training_loss": losses[index],
            "signals": {name: values[index] for name, values in signals.items()},
        }
        for index, score in enumerate(dev)
    ]
    return run, {"settings": {"loss": f"{objective}Loss"}, "checkpoints": checkpoints[::-1]}


@pytest.fixture
def write(tmp_path):
    def to_files(*records: tuple[str, dict[str, Any]]) -> list[Path]:
        paths = [tmp_path / f"{run}.json" for run, _ in records]
        for path, (_, content) in zip(paths, records, strict=True):
            path.write_text(json.dumps(content), encoding="utf8")
        return paths

    return to_files


FLAT = [None, 0.3, 0.2]
CURVES = [
    # the peak is the middle checkpoint; "good" sees it, "bad" does not, "half" sees it for A only
    record("a1", "A", [0.60, 0.75, 0.70], FLAT, good=[1, 3, 2], bad=[3, 1, 2], half=[1, 3, 2]),
    record("a2", "A", [0.60, 0.72, 0.70], FLAT, good=[1, 3, 2], bad=[3, 1, 2], half=[1, 3, 2]),
    record("b1", "B", [0.50, 0.70, 0.69], [None, 0.1, 0.2], good=[1, 2, 2.5], bad=[3, 1, 2], half=[3, 2, 1]),
]


@pytest.fixture
def files(write):
    return write(*reversed(CURVES))


def test_regrets_by_hand(files):
    curves = study.read_curves(files)
    assert [curve.run.split("/")[1] for curve in curves] == ["a1", "a2", "b1"]
    assert [row["step"] for row in curves[0].rows] == [0, 10, 20]
    picks = {name: [pick(curve) for curve in curves] for name, pick in study.selectors(curves).items()}
    assert picks == {
        "bad": [0, 0, 0],
        "good": [1, 1, 2],
        "half": [1, 1, 0],
        study.LAST: [2, 2, 2],
        study.LOSS: [2, 2, 1],
    }
    assert study.mean_regret(curves, study.by_signal("good")) == pytest.approx((0 + 1.0) / 2)
    assert study.mean_regret(curves, study.by_signal("bad")) == pytest.approx(((15 + 12) / 2 + 20) / 2)
    assert study.mean_regret(curves, study.last) == pytest.approx(((5 + 2) / 2 + 1) / 2)


def test_the_signal_is_judged_on_the_objective_left_out(files):
    folds = study.leave_one_objective_out(study.read_curves(files))
    # without A: B alone, where "good" costs 1 point and the others 20; without B: "good" and "half" tie at 0
    assert [(fold.objective, fold.signal) for fold in folds] == [("A", "good"), ("B", "good")]
    assert folds[0].regrets == pytest.approx([0.0, 0.0])
    assert folds[1].regrets == pytest.approx([1.0])


def test_a_signal_good_on_one_objective_only_is_found_out(write):
    curves = write(
        record("a", "A", [0.6, 0.7], [None, 1], tuned_to_a=[1, 2], steady=[2, 1]),
        record("b", "B", [0.6, 0.8], [None, 1], tuned_to_a=[2, 1], steady=[1, 2]),
    )
    folds = study.leave_one_objective_out(study.read_curves(curves))
    assert [(fold.objective, fold.signal) for fold in folds] == [("A", "steady"), ("B", "tuned_to_a")]
    assert [fold.regrets[0] for fold in folds] == pytest.approx([10.0, 20.0])


def test_equal_values_pick_the_earliest_and_correlate_with_nothing(write):
    (curve,) = study.read_curves(write(record("a", "A", [0.5, 0.6], [2, 2], flat=[1, 1])))
    assert study.by_signal("flat")(curve) == 0
    assert study.lowest_loss(curve) == 0
    assert study.rank_agreement([curve], "flat") == 0.0
    with pytest.raises(ValueError, match="needs at least two, got A"):
        study.leave_one_objective_out([curve])
    assert "left out" not in study.table([curve])
