"""``train_and_refine`` and ``st-extras recipe``: DCLR on ConSERT's views, whitening, RepAL's sentence term."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim

import st_extras
from st_extras import recipes
from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.losses import DCLRLoss
from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor
from st_extras.recipes import train_and_refine
from tests.cli_fixtures import Run
from tests.conftest import SENTENCES

MORE = [*SENTENCES, *(" ".join(reversed(sentence.split())) for sentence in SENTENCES)]
SHORT = {"max_steps": 4, "eval_steps": 2, "batch_size": 4, "show_progress_bar": False}


@pytest.fixture
def dev() -> STSDataset:
    pairs = [(one, other) for i, one in enumerate(SENTENCES) for other in SENTENCES[i + 1 :]]
    first, second = map(list, zip(*pairs, strict=True))
    scores = [float(i * 7 % 6) for i in range(len(pairs))]
    return STSDataset("pairs", first, second, scores, ["pairs"] * len(pairs))


def test_the_encoder_is_plain_and_the_refined_one_is_it_with_the_sentence_term(
    encoder: SentenceTransformer, dev: STSDataset, tmp_path: Path
) -> None:
    before = encoder.encode(SENTENCES)
    made = train_and_refine(encoder, SENTENCES, tmp_path / "out", dev=dev, whiten=False, **SHORT)
    assert made.tuning is not None
    assert not made.whitened
    plain = SentenceTransformer(str(tmp_path / "out" / "encoder"), device="cpu")
    refined = st_extras.load(str(tmp_path / "out" / "refined"), device="cpu")
    assert np.abs(plain.encode(SENTENCES) - before).max() > 1e-4
    np.testing.assert_allclose(RepALPostProcessor.detach(refined).encode(SENTENCES), plain.encode(SENTENCES), atol=1e-6)
    processor = next(module for module in refined if isinstance(module, RepALPostProcessor))
    assert (processor.lambda_1, processor.lambda_2) == (made.tuning.lambda_1, 0)
    scored = {
        name: STSEvaluator([dev])(model)["pairs_spearman_cosine"] for name, model in (("r", refined), ("p", plain))
    }
    assert scored["r"] == pytest.approx(made.tuning.spearman, abs=2e-3)
    assert scored["p"] == pytest.approx(made.run.best, abs=2e-3)


def test_without_pairs_nothing_labelled_is_needed(encoder: SentenceTransformer, tmp_path: Path) -> None:
    made = train_and_refine(encoder, MORE, tmp_path / "out", **SHORT)
    assert made.tuning is None
    assert not made.whitened
    assert made.run.metric is not None  # the weights were chosen all the same
    refined = st_extras.load(str(tmp_path / "out" / "refined"), device="cpu")
    assert next(m.lambda_1 for m in refined if isinstance(m, RepALPostProcessor)) == recipes.LAMBDA_1
    by_hand = RepALPostProcessor.attach(encoder, lambda_1=recipes.LAMBDA_1, lambda_2=0, redundancy="pooled")
    np.testing.assert_allclose(refined.encode(SENTENCES), by_hand.encode(SENTENCES), atol=1e-6)


def test_whitening_is_fitted_on_the_trained_encoder(
    encoder: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "DIMENSIONS", 5)
    monkeypatch.setattr(recipes, "WHITENING_SENTENCES", 10)
    made = train_and_refine(encoder, MORE, tmp_path / "out", whiten=True, **SHORT)
    assert made.whitened
    some = MORE[:: -(-len(MORE) // 10)]
    assert 5 < len(some) <= 10
    whitened = WhiteningPostProcessor.attach(encoder, dimensions=5, corpus=some)
    by_hand = RepALPostProcessor.attach(whitened, lambda_1=recipes.LAMBDA_1, lambda_2=0, redundancy="pooled")
    refined = st_extras.load(str(tmp_path / "out" / "refined"), device="cpu")
    np.testing.assert_allclose(refined.encode(SENTENCES), by_hand.encode(SENTENCES), atol=1e-4)
    plain = SentenceTransformer(str(tmp_path / "out" / "encoder"), device="cpu")
    np.testing.assert_allclose(plain.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-6)


@pytest.mark.parametrize("better", [False, True])
def test_the_pairs_decide_on_whitening(
    better: bool, encoder: SentenceTransformer, dev: STSDataset, tmp_path: Path
) -> None:
    short = SHORT | {"eval_steps": 4}  # one checkpoint, whatever the pairs say
    start = {name: value.clone() for name, value in encoder.state_dict().items()}
    model = train_and_refine(encoder, MORE, tmp_path / "first", whiten=better, **short).model
    gold = pairwise_cos_sim(model.encode(dev.sentences1), model.encode(dev.sentences2)).tolist()
    encoder.load_state_dict(start)
    made = train_and_refine(encoder, MORE, tmp_path / "second", dev=replace(dev, scores=gold), **short)
    assert made.whitened is better
    assert made.tuning is not None
    assert made.tuning.spearman > 0.99
    assert made.tuning.lambda_1 == pytest.approx(recipes.LAMBDA_1, abs=0.11)
    refined = st_extras.load(str(tmp_path / "second" / "refined"), device="cpu")
    assert any(isinstance(module, WhiteningPostProcessor) for module in refined) is better


def test_the_views_are_consert_s_or_those_asked_for(encoder: SentenceTransformer, tmp_path: Path) -> None:
    made = train_and_refine(encoder, MORE, tmp_path / "out", **SHORT)
    assert isinstance(made.run.trainer.loss, DCLRLoss)
    assert made.run.trainer.loss.augmentations == ("feature_cutoff", "shuffle")
    other = train_and_refine(encoder, MORE, tmp_path / "other", augmentations=["dropout", "dropout"], **SHORT)
    assert other.run.trainer.loss.augmentations == ("dropout", "dropout")  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="augmentations must be two of"):
        train_and_refine(encoder, MORE, tmp_path / "third", augmentations=["shuffle"], **SHORT)
    assert not (tmp_path / "third").exists()


def test_what_repal_cannot_refine_is_refused_before_the_training(encoder: SentenceTransformer, tmp_path: Path) -> None:
    refined = RepALPostProcessor.attach(encoder, lambda_1=0.5, lambda_2=0)
    before = encoder.encode(SENTENCES)
    with pytest.raises(ValueError, match="attached already"):
        train_and_refine(refined, MORE, tmp_path / "out", **SHORT)
    whitened = WhiteningPostProcessor.attach(encoder, corpus=MORE)
    with pytest.raises(ValueError, match="attached already"):
        train_and_refine(whitened, MORE, tmp_path / "out", whiten=True, **SHORT)
    assert not (tmp_path / "out").exists()
    np.testing.assert_array_equal(encoder.encode(SENTENCES), before)


def test_an_output_in_use(encoder: SentenceTransformer, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        train_and_refine(encoder, MORE, tmp_path / "out", **SHORT)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


class TestCommand:
    def test_stages(self, run: Run) -> None:
        Path("more.txt").write_text("\n".join(MORE), "utf8")
        short = ["--steps", 4, "--eval-steps", 2, "--batch-size", 4]
        code, out, err = run(
            "recipe", "ENC", "more.txt", "-o", "made", "--dev", "STS", "--test", "STS", "--json", *short
        )
        assert code == 0, err
        found = json.loads(out)
        assert list(found) == ["before", "trained", "refined", "best_step", "whitened", "lambda_1", "output"]
        assert found["refined"]["stsb_dev"] >= found["trained"]["stsb_dev"]
        code, out, err = run("evaluate", "made/refined", "--sts", "STS", "--sets", "sts12", "--json")
        assert json.loads(out)["sts12"] == pytest.approx(found["refined"]["sts12"], abs=0.01)
        code, out, err = run("evaluate", "made/encoder", "--sts", "STS", "--sets", "sts12", "--json")
        assert json.loads(out)["sts12"] == pytest.approx(found["trained"]["sts12"], abs=0.01)
        assert run("recipe", "ENC", "more.txt", "-o", "made", *short)[0] == 2
        views = ["--augmentations", "dropout+shuffle"]
        code, out, err = run("recipe", "ENC", "more.txt", "-o", "made", "--overwrite", "--quiet", *views, *short)
        assert code == 0, err
        assert f", not whitened, lambda_1 {recipes.LAMBDA_1:g}" in out
        assert "Spearman" not in out
        code, out, err = run("recipe", "ENC", "more.txt", "-o", "made", "--overwrite", "--json", "--whiten", *short)
        assert json.loads(out)["whitened"], err

    def test_mistakes(self, run: Run) -> None:
        Path("more.txt").write_text("\n".join(MORE), "utf8")
        for arguments, reason in (
            (("recipe", "ENC", "TEXT", "-o", "out"), "at least 10"),
            (("recipe", "ENC", "none.txt", "-o", "out"), "none.txt"),
            (("recipe", "ENC", "TEXT", "-o", "out", "--dev", "nowhere"), "nowhere"),
            (("recipe", "ENC", "more.txt", "-o", "out", "--steps", "0"), "max_steps"),
            (("recipe", "ENC", "more.txt", "-o", "out", "--augmentations", "dropout"), "augmentations must be two"),
        ):
            code, _, err = run(*arguments)
            assert (code, reason in err) == (2, True), err
            assert not Path("out").exists()
