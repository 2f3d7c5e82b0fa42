"""``demonstrate`` on a tiny encoder.

tests/cli/test_demo.py runs it on the packaged encoders.
"""

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.adaptation import demo
from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.modules import RepALPostProcessor
from st_extras.samples import graded_pairs, sample_sentences
from tests.fixtures import build_encoder
from tests.helpers import some_fast

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("shown", some_fast([True, False], [True]))
def test_the_sample_pairs_are_scored_before_and_after(tmp_path, monkeypatch, capsys, shown):
    monkeypatch.setattr(demo, "raw_encoder", lambda: build_encoder(tmp_path / "encoder"))
    monkeypatch.setattr(demo, "packaged_minilm", lambda: tmp_path / "encoder")
    monkeypatch.setattr(demo, "sample_sentences", lambda: sample_sentences()[:60])
    made = demo.demonstrate(tmp_path / "out", steps=2, seed=7, show_progress_bar=shown)
    (_, start, trained), (_, again, refined), (_, good, adapted) = made
    first, second, scores = graded_pairs()
    pairs = STSEvaluator([STSDataset("sample_pairs", first, second, scores)], write_csv=False)
    saved = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    for shown_score, model in (
        (start, build_encoder(tmp_path / "again")),
        (trained, saved),
        (refined, RepALPostProcessor.attach(saved, lambda_1=0.5, lambda_2=0, redundancy="pooled")),
    ):
        assert shown_score == pytest.approx(100 * pairs(model)["sample_pairs_spearman_cosine"], abs=0.02)
    assert (again, adapted) == (trained, good), "too few texts to adapt to"
    assert len({start, trained, refined}) == 3
    assert ("2/2" in capsys.readouterr().err) == shown
