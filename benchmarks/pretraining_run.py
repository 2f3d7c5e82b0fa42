"""What happens while an encoder is pre-trained: when it stops, how much is masked, and its curve."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class StopAfter(TrainerCallback):
    """Stops a run, with a checkpoint, when its time is over.

    Args:
        seconds: time from now.
    """

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if time.monotonic() >= self.end:
            control.should_save = control.should_training_stop = True


class MaskingSchedule(TrainerCallback):
    """Changes the share of masked tokens linearly over the steps. It depends on the step alone, so it needs no state.

    Args:
        masked_lm: the objective whose ``probability`` is set.
        first: share at the first step.
        last: share after the last step.
    """

    def __init__(self, masked_lm: Any, first: float, last: float) -> None:
        self.masked_lm, self.first, self.last = masked_lm, first, last

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.masked_lm.probability = self.first + (self.last - self.first) * state.global_step / state.max_steps


def curve(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return training loss, STS-B dev and isotropy of every evaluation in the trainer's log, in the order of steps."""
    rows: dict[int, dict[str, float]] = {}
    for entry in history:
        row = rows.setdefault(int(entry["step"]), {"step": int(entry["step"])})
        row |= {"loss": round(entry["loss"], 4)} if "loss" in entry else {}
        for key, value in entry.items():
            if key.startswith("eval_") and key.endswith(("spearman_cosine", "mean_cosine", "iso_score")):
                row[key.removeprefix("eval_")] = round(value, 4)
    return [row for row in rows.values() if len(row) > 1]
