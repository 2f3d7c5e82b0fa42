from __future__ import annotations

import math
from typing import Any

from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator

from benchmarks.cell import adversary, logged, training_figures
from benchmarks.evaluation_steps import EvaluateAt
from st_extras.losses import AdCSELoss
from st_extras.training import train_encoder
from tests.conftest import SENTENCES, build_encoder


class Counting(BaseEvaluator):
    """Scores the third call best: that of step 2, after those of the start and of step 1."""

    def __init__(self) -> None:
        super().__init__()
        self.primary_metric, self.greater_is_better, self.calls = "score", True, 0

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        self.calls += 1
        return {"score": 1.0 if self.calls == 3 else self.calls / 10}


def test_a_study_evaluates_at_further_steps_and_keeps_the_best_of_them(tmp_path):
    model = build_encoder(tmp_path / "encoder")
    run = train_encoder(
        model,
        lambda trained: AdCSELoss(trained, num_adversaries=3),
        SENTENCES,
        tmp_path / "out",
        evaluator=Counting(),
        batch_size=4,
        max_steps=6,
        eval_steps=3,
        show_progress_bar=False,
        callbacks=[EvaluateAt([1, 2])],
    )
    figures = training_figures(run)
    assert [step for step, _ in figures["curve"]] == [0, 1, 2, 3, 6]
    assert (figures["best_step"], figures["dev"]) == (2, 100)
    assert [step for step, _ in figures["log"]] == [1, 2, 3, 6]
    names = {"loss", "adversary_share", "adversary_similarity", "adversary_angle"}
    for _, found in logged(run):
        assert set(found) == names
        assert all(math.isfinite(value) for value in found.values())
    angles = [found["adversary_angle"] for _, found in logged(run)]
    assert angles == sorted(angles)
    last = figures["log"][-1][1]
    assert adversary(figures["log"]) == {name: last[name] for name in names - {"loss"}}
    assert adversary([[6, {"loss": 1.0}]]) == {}
