"""Stops a training with NaN or infinite values, or with a loss that teaches nothing, before its weights are saved."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers.util import get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_extras.losses.parts.pair_step import pair_step_of


class DivergenceError(ValueError):
    """A training ended in NaN or infinite values; nothing was saved after the last finite checkpoint."""


class DivergenceCallback(TrainerCallback):
    """Stops a training whose loss or weights are no longer finite, before they are scored or saved.

    The weights are checked before every evaluation and checkpoint; the losses of all steps are checked then and at
    every log entry. In between, a single process checks the loss of a GPU one step late, while the next step is
    running, so that it never waits for the GPU. Several processes check, and stop, together.

    Args:
        loss: the loss, which holds the model.

    Attributes:
        step: the step at which training diverged; None if it did not.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss
        self.step: int | None = None
        self._finite: Tensor | None = None
        self._unread: list[tuple[int, Tensor]] = []
        self._handle = loss.register_forward_hook(self._watch)

    def detach(self) -> None:
        """Stop watching the loss."""
        self._handle.remove()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop if a loss was not finite or, before a checkpoint or evaluation, the weights are not.

        Raises:
            ValueError: if both views of each sentence are the same vector, and nothing else trains the encoder.
        """
        if (step := pair_step_of(self.loss)) is not None:
            step.checks.refuse_equal_views()
        kept = control.should_save or control.should_evaluate
        self._check(state.global_step, everything=kept or control.should_log, weights=kept)
        if self.step is not None:
            control.should_training_stop = True
            control.should_save = control.should_evaluate = False

    on_epoch_end = on_step_end

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check the steps since the last log entry."""
        self._check(state.global_step, everything=True, weights=False)

    def _check(self, step: int, *, everything: bool, weights: bool) -> None:
        """Set ``self.step`` to the step at which training diverged, if it did; see the class."""
        if self._finite is not None:
            self._unread.append((step, self._finite))
            self._finite = None
        several = get_world_size() > 1
        if self.step is not None or (several and not everything):
            return
        diverged = self._first_not_finite(everything=everything)
        if diverged is None and weights and non_finite(self.loss) is not None:
            diverged = step
        self.step = self._first_of_all(diverged) if several else diverged

    def _first_not_finite(self, *, everything: bool) -> int | None:
        """Read the losses: return the first step whose loss was not finite, None if there is none."""
        while self._unread and (everything or len(self._unread) > steps_behind(self._unread[0][1].device)):
            step, finite = self._unread.pop(0)
            if not bool(finite):
                return step
        return None

    def _first_of_all(self, step: int | None) -> int | None:
        """Return the first step at which any process diverged."""
        never = torch.iinfo(torch.long).max
        first = torch.tensor(never if step is None else step, device=next(self.loss.parameters()).device)
        dist.all_reduce(first, op=dist.ReduceOp.MIN)
        return None if int(first) == never else int(first)

    def _watch(self, module: nn.Module, inputs: Any, output: Any) -> None:
        values = output.values() if isinstance(output, dict) else [output]
        for value in values:
            if isinstance(value, Tensor):
                finite = value.detach().isfinite().all()
                self._finite = finite if self._finite is None else self._finite & finite


def steps_behind(device: torch.device) -> int:
    """Return how many steps late the losses are read: 1 on a device that runs asynchronously, 0 on the CPU."""
    return 0 if device.type == "cpu" else 1


@torch.no_grad()
def non_finite(module: nn.Module) -> str | None:
    """Return the name of the first parameter with a NaN or an infinite value; None if all are finite."""
    for name, parameter in module.named_parameters():
        if not bool(parameter.isfinite().all()):
            return name
    return None
