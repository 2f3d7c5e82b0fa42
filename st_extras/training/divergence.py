"""Watching a training for NaN and infinite values, so that no such weights are saved."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.util import get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class DivergenceError(ValueError):
    """A training ended in NaN or infinite values; nothing was saved after the last finite checkpoint."""


class DivergenceCallback(TrainerCallback):
    """Stops a training whose loss or weights are no longer finite, before they are scored or saved.

    The loss is watched at every step (in a single process), the weights before every evaluation and checkpoint.

    Args:
        loss: the loss that is trained with; it holds the model.

    Attributes:
        step: the step at which training was stopped; None if it was not.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss
        self.step: int | None = None
        self._finite: Tensor | None = None
        self._handle = loss.register_forward_hook(self._watch)

    def detach(self) -> None:
        """Stop watching the loss."""
        self._handle.remove()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop if the loss was not finite or, before a checkpoint or evaluation, the weights are not."""
        loss_is_finite = self._finite is None or get_world_size() > 1 or bool(self._finite)
        self._finite = None
        if not loss_is_finite or (
            (control.should_save or control.should_evaluate) and non_finite(self.loss) is not None
        ):
            self.step = state.global_step
            control.should_training_stop = True
        if self.step is not None:
            control.should_save = control.should_evaluate = False

    on_epoch_end = on_step_end

    def _watch(self, module: nn.Module, inputs: Any, output: Any) -> None:
        values = output.values() if isinstance(output, dict) else [output]
        for value in values:
            if isinstance(value, Tensor):
                finite = value.detach().isfinite().all()
                self._finite = finite if self._finite is None else self._finite & finite


@torch.no_grad()
def non_finite(module: nn.Module) -> str | None:
    """Return the name of the first parameter with a NaN or an infinite value; None if all are finite."""
    for name, parameter in module.named_parameters():
        if not bool(parameter.isfinite().all()):
            return name
    return None
