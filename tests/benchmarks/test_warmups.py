from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.warmups import warmup_choice

CURVE = [(0, 0.5), (50, 0.7), (100, 0.6), (150, 0.65), (200, 0.65)]


@pytest.mark.parametrize(("option", "steps", "expected"), [
    ("warmup_steps", 50, {"steps": 50, "kept_from": "warm-up", "best_step_after": 150, "dev_after": 65.0}),
    ("decoder_warmup_steps", 40, {"steps": 40, "kept_from": "after", "best_step_after": 50, "dev_after": 70.0}),
    ("warmup_steps", 200, {"steps": 200, "kept_from": "warm-up", "best_step_after": None, "dev_after": None}),
])  # fmt: skip
def test_the_best_checkpoint_after_the_warmup_is_told_apart(option, steps, expected):
    run: Any = SimpleNamespace(curve=CURVE, best_step=50)
    found = warmup_choice(run, {"options": {option: steps}})["warmup"]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("method", [{}, {"options": {"mlm_weight": 0.0}}, {"options": {"warmup_steps": 0}}])
def test_without_a_warmup_there_is_nothing_to_tell(method):
    run: Any = SimpleNamespace(curve=CURVE, best_step=50)
    assert warmup_choice(run, method) == {}
