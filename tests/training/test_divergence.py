"""A training with NaN ends before such weights are scored or saved."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import TrainerControl, TrainerState

from st_extras.losses import SimCSELoss
from st_extras.training import DivergenceError
from st_extras.training.trainer import DivergenceCallback, non_finite
from tests.helpers import arguments, differing, snapshot
from tests.training.test_run import ScriptedEvaluator, short_training


class NaNAt(SimCSELoss):
    """NaN at one step, and so are the weights after it."""

    def __init__(self, model: SentenceTransformer, step: int) -> None:
        super().__init__(model)
        self.bad_step, self.calls = step, 0

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        self.calls += 1
        return super().forward(sentence_features, labels) * (float("nan") if self.calls == self.bad_step else 1.0)


@pytest.mark.parametrize(
    ("step", "found", "kept"),
    [(3, 4, ["checkpoint-2"]), (1, 2, []), (2, 2, []), (5, 5, ["checkpoint-2", "checkpoint-4"])],
)
def test_no_model_and_no_later_checkpoint_is_saved(encoder, tmp_path, step, found, kept):
    """Checkpoints are due at steps 2 and 4; the last step has none."""
    with pytest.raises(DivergenceError, match=rf"^Training diverged: .* is not finite at step {found}, and no model"):
        short_training(encoder, tmp_path / "new" / "out", NaNAt(encoder, step), max_steps=5, save_total_limit=3)
    assert sorted(path.name for path in tmp_path.rglob("checkpoint-*")) == kept
    assert (tmp_path / "new").exists() == bool(kept)
    assert not (tmp_path / "new" / "out").exists()


@pytest.mark.parametrize(("due", "seen"), [("should_save", 3), ("should_evaluate", 3), ("should_log", None)])
def test_weights_are_checked_before_they_are_scored_or_saved(encoder, tmp_path, due, seen):
    """They can be NaN after a step whose loss was finite."""
    watch, control = DivergenceCallback(SimCSELoss(encoder)), TrainerControl(**{due: True})
    with torch.no_grad():
        next(encoder.parameters()).fill_(float("nan"))
    watch.on_step_end(arguments(tmp_path), TrainerState(global_step=3), control)
    assert (watch.step, control.should_training_stop) == (seen, seen is not None)
    assert control.should_save is control.should_evaluate is False


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("number", [0, 7, -1])
def test_the_first_weight_that_is_not_finite_is_named(encoder, number, value):
    """Of the encoder or of the loss's own."""
    loss = SimCSELoss(encoder, projection=True)
    assert non_finite(loss) is None
    named = [*loss.named_parameters()]
    with torch.no_grad():
        for _, parameter in (named[number], named[-1]):
            parameter.view(-1)[-1] = value
    assert non_finite(loss) == named[number][0]


def test_weights_that_were_chosen_before_are_kept(encoder, tmp_path, caplog):
    evaluator = ScriptedEvaluator([0.1, 0.9])
    result = short_training(encoder, tmp_path / "out", lambda model: NaNAt(model, 4), evaluator=evaluator, max_steps=8)
    assert (result.best_step, result.steps) == (2, 4)
    assert "Training diverged at step 4 and was stopped: the weights of step 2 are kept" in caplog.text
    saved = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert differing(evaluator.seen[1], snapshot(saved)) == set()
