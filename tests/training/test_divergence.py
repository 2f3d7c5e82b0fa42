"""Watching for NaN without waiting for a device; test_run.py has the outcomes, test_distributed.py two processes."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn
from transformers import TrainerControl, TrainerState

from st_extras.losses import SimCSELoss
from st_extras.training import DivergenceError, divergence, train_encoder
from st_extras.training.divergence import DivergenceCallback, steps_behind
from tests.helpers import arguments

SETTINGS: dict[str, Any] = {"batch_size": 4, "max_steps": 8, "eval_steps": 4, "show_progress_bar": False}


class NaNAt(SimCSELoss):
    """Its value is NaN at one step, without a trace in the gradients."""

    def __init__(self, model: SentenceTransformer, step: int) -> None:
        super().__init__(model)
        self.bad_step = step
        self.calls = 0

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        self.calls += 1
        return super().forward(sentence_features, labels) + (float("nan") if self.calls == self.bad_step else 0.0)


def test_a_gpu_is_read_late():
    assert [steps_behind(torch.device(name)) for name in ("cpu", "cuda:1", "mps")] == [0, 1, 1]


@pytest.mark.parametrize(("step", "seen_at"), [(1, 2), (4, 4)])
def test_the_step_is_named_though_it_is_read_late(encoder, sentences, tmp_path, monkeypatch, step, seen_at):
    """A checkpoint at step 4 is not written if one of the steps before it, or it, diverged."""
    monkeypatch.setattr(divergence, "steps_behind", lambda device: 1)  # as on a GPU
    made: list[NaNAt] = []

    def make(model: SentenceTransformer) -> nn.Module:
        made.append(NaNAt(model, step))
        return made[0]

    with pytest.raises(DivergenceError, match=rf"^Training diverged at step {step}: the loss is not finite"):
        train_encoder(encoder, make, sentences, tmp_path / "out", **SETTINGS)
    assert made[0].calls == seen_at
    assert not list((tmp_path / "out").glob("checkpoints/*"))


@pytest.mark.parametrize(("due", "seen"), [("should_save", 3), ("should_evaluate", 3), ("should_log", None)])
def test_weights_are_checked_before_they_are_scored_or_saved(encoder, tmp_path, due, seen):
    """They can be NaN after a step whose loss was finite."""
    watch, control = DivergenceCallback(MultipleNegativesRankingLoss(encoder)), TrainerControl(**{due: True})
    with torch.no_grad():
        next(encoder.parameters()).fill_(float("nan"))
    watch.on_step_end(arguments(tmp_path), TrainerState(global_step=3), control)
    assert (watch.step, control.should_training_stop) == (seen, seen is not None)
    assert control.should_save is control.should_evaluate is False


@pytest.mark.parametrize(("step", "behind"), [(2, 0), (3, 1), (4, 1)])
def test_no_checkpoint_of_an_epoch_after_a_loss_that_is_not_finite(
    encoder, sentences, tmp_path, monkeypatch, step, behind
):
    """Two steps an epoch, and nothing logged before its end: also if losses are read late, as on a GPU."""
    monkeypatch.setattr(divergence, "steps_behind", lambda device: behind)
    settings = {"batch_size": 4, "epochs": 3, "save_strategy": "epoch", "logging_strategy": "no"}
    with pytest.raises(DivergenceError, match=rf"^Training diverged at step {step}: the loss is not finite"):
        train_encoder(encoder, lambda m: NaNAt(m, step), sentences, tmp_path, show_progress_bar=False, **settings)
    saved = sorted(path.parent.name for path in tmp_path.glob("checkpoints/*/complete.json"))
    assert saved == [f"checkpoint-{n}" for n in (2, 4) if n < step]
