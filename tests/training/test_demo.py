"""``demonstrate`` on a tiny encoder, and the graded pairs that the notebooks choose by and report on.

tests/cli/test_demo.py runs it on the packaged encoder.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.evaluation.sts_data import development_and_test
from st_extras.samples import graded_pairs
from st_extras.training import demo
from tests.conftest import build_encoder


def test_the_sample_pairs_are_scored_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def rows(data: STSDataset) -> list[tuple[str, str, float]]:
    return list(zip(data.sentences1, data.sentences2, data.scores, strict=True))


@pytest.mark.parametrize("nowhere", [None, ""])
def test_the_sample_pairs_are_halved_and_no_pair_is_on_both_sides(nowhere: str | None) -> None:
    development, test = development_and_test(nowhere)
    assert (development.name, test.name) == ("sample_dev", "sample_test")
    assert len(development) == len(test) == len(development.subsets) == len(test.subsets) == 150
    assert sorted(rows(development) + rows(test)) == sorted(zip(*graded_pairs(), strict=True))
    assert not set(rows(development)) & set(rows(test))


def test_stsb_is_read_where_a_source_is_given(tmp_path: Path) -> None:
    for split, score in (("dev", 4), ("test", 2)):
        lines = ["subset\tscore\tsentence1\tsentence2", f"x\t{score}\ta {split}\tb", "x\t0\tc\td"]
        (tmp_path / f"stsb_{split}.tsv").write_text("\n".join(lines), encoding="utf8")
    development, test = development_and_test(tmp_path)
    assert (development.name, test.name) == ("stsb_dev", "stsb_test")
    assert (rows(development)[0], rows(test)[0]) == (("a dev", "b", 4.0), ("a test", "b", 2.0))
