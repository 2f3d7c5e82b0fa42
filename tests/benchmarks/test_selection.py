"""The study of label-free selection on curves small enough to check by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import selection as study

Write = Callable[..., list[Path]]


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
def write(tmp_path: Path) -> Write:
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
def files(write: Write) -> list[Path]:
    return write(*reversed(CURVES))


def test_regrets_by_hand(files: list[Path]) -> None:
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


def test_the_signal_is_judged_on_the_objective_left_out(files: list[Path]) -> None:
    folds = study.leave_one_objective_out(study.read_curves(files))
    # without A: B alone, where "good" costs 1 point and the others 20; without B: "good" and "half" tie at 0
    assert [(fold.objective, fold.signal) for fold in folds] == [("A", "good"), ("B", "good")]
    assert folds[0].regrets == pytest.approx([0.0, 0.0])
    assert folds[1].regrets == pytest.approx([1.0])


def test_a_signal_good_on_one_objective_only_is_found_out(write: Write) -> None:
    curves = write(
        record("a", "A", [0.6, 0.7], [None, 1], tuned_to_a=[1, 2], steady=[2, 1]),
        record("b", "B", [0.6, 0.8], [None, 1], tuned_to_a=[2, 1], steady=[1, 2]),
    )
    folds = study.leave_one_objective_out(study.read_curves(curves))
    assert [(fold.objective, fold.signal) for fold in folds] == [("A", "steady"), ("B", "tuned_to_a")]
    assert [fold.regrets[0] for fold in folds] == pytest.approx([10.0, 20.0])


def test_equal_values_pick_the_earliest_and_correlate_with_nothing(write: Write) -> None:
    (curve,) = study.read_curves(write(record("a", "A", [0.5, 0.6], [2, 2], flat=[1, 1])))
    assert study.by_signal("flat")(curve) == 0
    assert study.lowest_loss(curve) == 0
    assert study.rank_agreement([curve], "flat") == 0.0
    with pytest.raises(ValueError, match="needs at least two, got A"):
        study.leave_one_objective_out([curve])
    assert "left out" not in study.table([curve])


def test_the_command_prints_the_table(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["selection", *map(str, files)])
    study.main()
    printed = capsys.readouterr().out
    assert "3 runs, 9 checkpoints" in printed
    lines = [line for line in printed.splitlines() if line.startswith("| ")]
    assert lines[0] == "| selector | mean regret | worst run | rank correlation | A | B |"
    assert lines[1] == "| good | 0.50 | 1.00 | 0.83 | 0.00 | 1.00 |"
    assert "| last checkpoint | 2.25 | 5.00 |  | 3.50 | 1.00 |" in lines
    assert "| lowest training loss | 1.75 | 5.00 |  | 3.50 | 0.00 |" in lines
    assert "| B | good | 1.00 | 1 |" in lines
    assert "Left-out mean regret over 2 objectives: 0.50 (worst run 1.00)." in printed
    assert "Last checkpoint over the same runs: 2.25 (worst run 5.00)." in printed
    assert "Lowest training loss over the same runs: 1.75 (worst run 5.00)." in printed


def test_bad_records_are_refused(write: Write, tmp_path: Path) -> None:
    def read(checkpoints: list[dict[str, Any]]) -> None:
        study.read_curves(write(("bad", {"settings": {"loss": "ALoss"}, "checkpoints": checkpoints})))

    good = record("a", "A", [0.5, 0.6], [None, 1], s=[1, 2])[1]["checkpoints"]
    with pytest.raises(ValueError, match="no record"):
        study.read_curves([tmp_path / "nowhere.json"])
    with pytest.raises(ValueError, match="None of the records has checkpoints"):
        study.read_curves(write(("start", {"settings": {"loss": "ALoss"}})))
    with pytest.raises(ValueError, match="must have dev_spearman, signals"):
        read([good[0], {k: v for k, v in good[1].items() if k not in ("signals", "dev_spearman")}])
    with pytest.raises(ValueError, match=r"s of run .* must be a finite number, got nan"):
        read([good[0], good[1] | {"signals": {"s": float("nan")}}])
    with pytest.raises(ValueError, match=r"each step once, got steps \[10, 10\]"):
        read([good[0], good[0]])
    with pytest.raises(ValueError, match=r"got steps \[10\]"):
        read(good[:1])
    with pytest.raises(ValueError, match="the same signals, got a difference in s, t"):
        read([good[0], good[1] | {"signals": {"t": 1}}])
