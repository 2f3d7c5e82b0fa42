"""Whether the weights that a training kept are those of a warm-up, in which the mechanism had not acted yet."""

from __future__ import annotations

from typing import Any

from st_extras.training import TrainingRun


def warmup_choice(run: TrainingRun, method: dict[str, Any]) -> dict[str, Any]:
    """Return whether the weights that were kept are from the warm-up, and the best dev score after it.

    Empty for a method without a warm-up. In SLT-FAI's, the encoder is its base's; in PaSeR's, it is the start.
    """
    options = method.get("options", {})
    steps = options.get("warmup_steps", 0) or options.get("decoder_warmup_steps", 0)
    if not steps:
        return {}
    after = [(value, step) for step, value in run.curve if step > steps]
    value, step = max(after, key=lambda found: (found[0], -found[1])) if after else (None, None)
    return {
        "warmup": {
            "steps": steps,
            "kept_from": "warm-up" if run.best_step <= steps else "after",
            "best_step_after": step,
            "dev_after": None if value is None else 100 * value,
        }
    }
