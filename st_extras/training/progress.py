"""The progress bar of a training: one bar, with the latest loss and score behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from sentence_transformers.base import model_card
from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sentence_transformers import SentenceTransformerTrainer


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
