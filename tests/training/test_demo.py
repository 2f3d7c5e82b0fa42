"""``demonstrate`` on a tiny encoder.

tests/cli/test_demo.py runs it on the packaged encoder.
"""

from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.samples import graded_pairs
from st_extras.training import demo
from tests.conftest import build_encoder


def test_the_sample_pairs_are_scored_before_and_after(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "raw_encoder", lambda: build_encoder(tmp_path / "encoder"))
    made = demo.demonstrate(tmp_path / "out", steps=2, show_progress_bar=False)
    first, second, scores = graded_pairs()
    pairs = STSEvaluator([STSDataset("sample_pairs", first, second, scores)], write_csv=False)
    for shown, model in (
        (made.before, build_encoder(tmp_path / "again")),
        (made.after, SentenceTransformer(str(tmp_path / "out"), device="cpu")),
    ):
        expected = 100 * pairs(model)["sample_pairs_spearman_cosine"]
        assert shown == {key: pytest.approx(expected, abs=1e-6) for key in shown}
        assert len(shown) == 1
    assert made.before != made.after
    assert (made.run.steps, made.run.metric) == (2, None)
