"""Stops a training with NaN or infinite weights, or with a loss that teaches nothing, before its weights are saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_extras.losses.pair_loss import PairLoss


class DivergenceError(ValueError):
    """A training ended in NaN or infinite values; nothing was saved after the last finite checkpoint."""


class DivergenceCallback(TrainerCallback):
    """Stops a training whose weights are no longer finite, before they are scored or saved.

    A loss that is not finite shows in the weights after the next step, in all processes alike.

    Args:
        loss: the loss, which holds the model.

    Attributes:
        step: the step at which this was found; None if it was not.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss
        self.step: int | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop before an evaluation or a checkpoint of weights that are not finite.

        Raises:
            ValueError: if both views of each sentence are the same vector, and nothing else trains the encoder.
        """
        loss = self.loss
        while isinstance(inner := getattr(loss, "loss", None), nn.Module):  # inside MatryoshkaLoss
            loss = inner
        if isinstance(loss, PairLoss):
            loss.checks.refuse_equal_views()
        if (control.should_evaluate or control.should_save) and non_finite(self.loss) is not None:
            self.step = state.global_step
            control.should_training_stop = True
            control.should_evaluate = control.should_save = False

    on_epoch_end = on_step_end


@torch.no_grad()
def non_finite(module: nn.Module) -> str | None:
    """Return the name of the first parameter with a NaN or an infinite value; None if all are finite."""
    for name, parameter in module.named_parameters():
        if not bool(parameter.isfinite().all()):
            return name
    return None
