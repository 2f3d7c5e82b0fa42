"""Watching a training for NaN, infinite values and a loss that teaches nothing, so that no such weights are saved."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers.util import get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_extras.losses.parts.batch_checks import refuse_same_views


class DivergenceError(ValueError):
    """A training ended in NaN or infinite values; nothing was saved after the last finite checkpoint."""


class DivergenceCallback(TrainerCallback):
    """Stops a training whose loss or weights are no longer finite, before they are scored or saved.

    The weights are checked before every evaluation and checkpoint, the loss of every step then and at every entry of
    the log. In between, a single process checks the loss one step late on a GPU, whose next step is then under way: it
    never waits for work that was just begun. Several processes check, and stop, together.

    Args:
        loss: the loss that is trained with; it holds the model.

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
        """Stop if the loss was not finite or, before a checkpoint or evaluation, the weights are not.

        Raises:
            ValueError: if both views of each sentence are the same vector, and nothing else teaches.
        """
        refuse_same_views(self.loss)
        kept = control.should_save or control.should_evaluate
        self._look(state.global_step, everything=kept or control.should_log, weights=kept)
        if self.step is not None:
            control.should_training_stop = True
            control.should_save = control.should_evaluate = False

    on_epoch_end = on_step_end

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Look at the steps since the last entry of the log."""
        self._look(state.global_step, everything=True, weights=False)

    def _look(self, step: int, *, everything: bool, weights: bool) -> None:
        """Find out at which step training diverged, if it did; see the class."""
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
    """Return how many steps the losses are read late: 1 where a device works beside this process, else 0."""
    return 0 if device.type == "cpu" else 1


@torch.no_grad()
def non_finite(module: nn.Module) -> str | None:
    """Return the name of the first parameter with a NaN or an infinite value; None if all are finite."""
    for name, parameter in module.named_parameters():
        if not bool(parameter.isfinite().all()):
            return name
    return None
