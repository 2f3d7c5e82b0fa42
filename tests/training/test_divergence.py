"""A training with NaN ends before they are saved, also where losses are read late."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import TrainerControl, TrainerState

from st_extras.losses import SimCSELoss
from st_extras.training import DivergenceError, divergence
from st_extras.training.divergence import DivergenceCallback, steps_behind
from st_extras.training.run_folder import MANIFEST
from tests.helpers import arguments, differing, snapshot
from tests.training.test_run import ScriptedEvaluator, short_training


class NaNAt(SimCSELoss):
    """Its value is NaN at one step, without a trace in the gradients."""

    def __init__(self, model: SentenceTransformer, step: int) -> None:
        super().__init__(model)
        self.bad_step, self.calls = step, 0

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        self.calls += 1
        return super().forward(sentence_features, labels) + (float("nan") if self.calls == self.bad_step else 0.0)


def checkpoints(output: Path) -> set[str]:
    return {path.parent.name for path in output.glob("checkpoints/*/complete.json")}


@pytest.mark.parametrize(
    ("options", "step", "behind", "seen", "kept"),
    [
        ({}, 3, 0, 3, {"checkpoint-2"}),
        ({}, 1, 1, 2, None),  # before the first checkpoint, nothing stays
        ({}, 2, 1, 2, None),  # nor if its own step diverged
        ({"save_strategy": "epoch", "logging_strategy": "no"}, 2, 0, 2, None),  # of two steps
        ({"save_strategy": "epoch", "logging_strategy": "no"}, 3, 1, 4, {"checkpoint-2"}),
        ({"save_strategy": "epoch", "logging_strategy": "no"}, 4, 1, 4, {"checkpoint-2"}),
    ],
)
def test_no_model_and_no_later_checkpoint_is_saved(encoder, tmp_path, monkeypatch, options, step, behind, seen, kept):
    assert [steps_behind(torch.device(name)) for name in ("cpu", "cuda:1", "mps")] == [0, 1, 1]
    monkeypatch.setattr(divergence, "steps_behind", lambda device: behind)
    loss, out = NaNAt(encoder, step), tmp_path / "new" / "out"
    with pytest.raises(DivergenceError, match=rf"^Training diverged at step {step}: the loss is not finite"):
        short_training(encoder, out, loss, epochs=3, **options)
    assert loss.calls == seen
    assert checkpoints(out) == (kept or set())
    assert {path.name for path in tmp_path.rglob("out/*")} == ({"checkpoints", MANIFEST} if kept else set())
    assert (tmp_path / "new").exists() == (kept is not None)


@pytest.mark.parametrize(("due", "seen"), [("should_save", 3), ("should_evaluate", 3), ("should_log", None)])
def test_weights_are_checked_before_they_are_scored_or_saved(encoder, tmp_path, due, seen):
    """They can be NaN after a step whose loss was finite."""
    watch, control = DivergenceCallback(SimCSELoss(encoder)), TrainerControl(**{due: True})
    with torch.no_grad():
        next(encoder.parameters()).fill_(float("nan"))
    watch.on_step_end(arguments(tmp_path), TrainerState(global_step=3), control)
    assert (watch.step, control.should_training_stop) == (seen, seen is not None)
    assert control.should_save is control.should_evaluate is False


@pytest.mark.slow
def test_weights_that_were_chosen_before_are_kept(encoder, tmp_path, caplog):
    evaluator = ScriptedEvaluator([0.1, 0.9])
    result = short_training(encoder, tmp_path, lambda model: NaNAt(model, 4), evaluator=evaluator, max_steps=8)
    assert (result.best_step, result.steps) == (2, 4)
    assert "Training diverged at step 4 and was stopped: the weights of step 2 are kept" in caplog.text
    saved = SentenceTransformer(str(tmp_path), device="cpu")
    assert differing(evaluator.seen[1], snapshot(saved)) == set()
