from __future__ import annotations

from pathlib import Path

from benchmarks.records import write_json
from benchmarks.tables import pretraining


def test_the_pretraining_curve_by_hand(results: Path) -> None:
    assert pretraining.pretraining_table("mine") == "Not run yet."
    seen = {"stsb_dev_spearman_cosine": 0.5, "corpus_mean_cosine": 0.75, "corpus_iso_score": 0.05}
    settings = {"layers": 4, "width": 256, "steps": 30, "batch_size": 8, "learning_rate": 1e-3}
    record = {"settings": settings, "parameters": 11_000_000, "sha256": "0123456789abcdef0", "curve": []}
    record["curve"] = [{"step": 10, "loss": 7.125, **seen}, {"step": 17, "loss": 6.5}]
    write_json(results / "pretraining" / "mine.json", record)
    lines = pretraining.pretraining_table("mine").splitlines()
    assert lines[2:4] == ["| 10 | 7.12 | 50.00 | 0.75 | 0.05 |", "| 17 | 6.50 |  |  |  |"]
    assert "11,000,000 parameters; 30 steps of 8 sentences, learning rate 0.001; sha256" in lines[-1]
    assert lines[-1].endswith(" 0123456789abcdef.")
    settings |= {"masking": 0.4, "last_masking": 0.15, "count_words": True}
    write_json(results / "pretraining" / "mine.json", record)
    changed = (
        "learning rate 0.001, words started from counts, 40% of the tokens masked at first and 15% at last; sha256"
    )
    assert changed in pretraining.pretraining_table("mine")
