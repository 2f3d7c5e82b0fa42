"""Evaluations at steps of a study's choice, beside those at every ``eval_steps``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class EvaluateAt(TrainerCallback):
    """Logs, evaluates and saves a checkpoint at further steps: some methods are best before the first evaluation.

    Args:
        steps: the steps.
    """

    def __init__(self, steps: Iterable[int]) -> None:
        self.steps = frozenset(steps)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for all three if it is one of the steps."""
        if state.global_step in self.steps:
            control.should_log = control.should_evaluate = control.should_save = True
