"""What a training shows while it runs: one bar with the latest loss and score, and what the loss measures of itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base import model_card
from torch import nn
from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback


class TrainingBar(ProgressCallback):
    """Shows the latest loss and score behind the bar, where transformers prints a line above it for each."""

    training_bar: Any

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar, at the step that training is resumed from."""
        self.shown: dict[str, float] = {}
        self.current_step = state.global_step
        if state.is_world_process_zero:
            self.training_bar = tqdm(
                total=state.max_steps, initial=state.global_step, desc="Training", unit="step", dynamic_ncols=True
            )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the loss and the score from an entry of the log."""
        if self.training_bar is None or logs is None:
            return
        for key, name in (("loss", "loss"), (args.metric_for_best_model, "score")):
            if key in logs:
                self.shown[name] = logs[key]
        self.training_bar.set_postfix(self.shown)


def use_one_bar(trainer: SentenceTransformerTrainer) -> None:
    """Put :class:`TrainingBar` in the place of transformers' bar; a notebook keeps its table."""
    if trainer.pop_callback(ProgressCallback) is not None:
        trainer.add_callback(TrainingBar())


def log_above_the_bar(trainer: SentenceTransformerTrainer) -> AbstractContextManager[None]:
    """Print what is logged above the bar of the trainer, on lines of its own."""
    shown = any(isinstance(callback, TrainingBar) for callback in trainer.callback_handler.callbacks)
    return logging_redirect_tqdm() if shown else nullcontext()


@contextmanager
def no_bar_of_the_model_card() -> Iterator[None]:
    """Hide the bar that Sentence Transformers shows while it chooses examples for the model card."""
    module: Any = model_card
    bar = module.tqdm
    module.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        module.tqdm = bar


def log_instruments(trainer: SentenceTransformerTrainer) -> None:
    """Put what the trainer's losses measure of themselves into each entry of its log that has the training loss.

    That is the place all callbacks read, wherever they stand. Instruments are read only then, so no other step waits
    for the GPU. NaN, before the first step, is left out; a name that the entry has already stays as it is.
    """
    log = trainer.log

    def log_with_instruments(logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        found = _read(trainer.loss) if "loss" in logs else {}
        log(logs | {name: value for name, value in found.items() if name not in logs}, *args, **kwargs)

    trainer.log = log_with_instruments  # type: ignore[method-assign]


def _read(losses: Any) -> dict[str, float]:
    """Return the instruments of a loss, or of a dict of losses with the data set's name before each."""
    named = {f"{prefix}_": loss for prefix, loss in losses.items()} if isinstance(losses, dict) else {"": losses}
    values = {
        f"{prefix}{name}": float(value) for prefix, loss in named.items() for name, value in _instruments(loss).items()
    }
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _instruments(loss: nn.Module) -> dict[str, Any]:
    """Return the instruments of a loss, or of the losses that it wraps if it has none itself."""
    own: dict[str, Any] | None = getattr(loss, "instruments", None)
    if own is not None or isinstance(loss, SentenceTransformer):
        return own or {}
    found: dict[str, Any] = {}
    for part in loss.children():
        found |= _instruments(part)
    return found
