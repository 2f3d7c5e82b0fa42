"""``train_and_refine``: DCLR on ConSERT's views, whitening, RepAL's sentence term."""

from dataclasses import replace

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim

import st_extras
from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.losses import DCLRLoss
from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor
from st_extras.training import recipe as recipes
from st_extras.training.recipe import train_and_refine
from tests.conftest import SENTENCES, build_encoder

MORE = [*SENTENCES, *(" ".join(reversed(sentence.split())) for sentence in SENTENCES)]
SHORT = {"max_steps": 4, "eval_steps": 2, "batch_size": 4, "show_progress_bar": False}


@pytest.fixture(scope="module")
def untuned(tmp_path_factory):
    """What the defaults make without labelled pairs: the output folder, the trained encoder, the result."""
    folder = tmp_path_factory.mktemp("untuned")
    encoder = build_encoder(folder / "start")
    return folder / "out", encoder, train_and_refine(encoder, MORE, folder / "out", **SHORT)


@pytest.fixture
def dev():
    pairs = [(sentence, other) for i, sentence in enumerate(SENTENCES) for other in SENTENCES[i + 1 :]]
    first, second = map(list, zip(*pairs, strict=True))
    scores = [float(i * 7 % 6) for i in range(len(pairs))]
    return STSDataset("pairs", first, second, scores, ["pairs"] * len(pairs))


def test_the_encoder_is_plain_and_the_refined_one_is_it_with_the_sentence_term(encoder, dev, tmp_path):
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


def test_without_pairs_nothing_labelled_is_needed(untuned):
    out, encoder, made = untuned
    assert made.tuning is None
    assert not made.whitened
    assert made.run.metric is not None  # the weights were chosen all the same
    refined = st_extras.load(str(out / "refined"), device="cpu")
    assert next(m.lambda_1 for m in refined if isinstance(m, RepALPostProcessor)) == recipes.UNTUNED_LAMBDA_1
    by_hand = RepALPostProcessor.attach(encoder, lambda_1=recipes.UNTUNED_LAMBDA_1, lambda_2=0, redundancy="pooled")
    np.testing.assert_allclose(refined.encode(SENTENCES), by_hand.encode(SENTENCES), atol=1e-6)


def test_whitening_is_fitted_on_the_trained_encoder(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "MAX_WHITENED_DIMENSIONS", 5)
    monkeypatch.setattr(recipes, "MAX_WHITENING_SENTENCES", 10)
    made = train_and_refine(encoder, MORE, tmp_path / "out", whiten=True, **SHORT)
    assert made.whitened
    some = MORE[:: -(-len(MORE) // 10)]
    assert 5 < len(some) <= 10
    whitened = WhiteningPostProcessor.attach(encoder, dimensions=5, corpus=some)
    by_hand = RepALPostProcessor.attach(whitened, lambda_1=recipes.UNTUNED_LAMBDA_1, lambda_2=0, redundancy="pooled")
    refined = st_extras.load(str(tmp_path / "out" / "refined"), device="cpu")
    np.testing.assert_allclose(refined.encode(SENTENCES), by_hand.encode(SENTENCES), atol=1e-4)
    plain = SentenceTransformer(str(tmp_path / "out" / "encoder"), device="cpu")
    np.testing.assert_allclose(plain.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-6)


def test_the_views_are_those_of_consert_or_those_asked_for(encoder, untuned, tmp_path):
    made = untuned[2]
    assert isinstance(made.run.trainer.loss, DCLRLoss)
    assert made.run.trainer.loss.get_config_dict()["augmentations"] == ["feature_cutoff", "shuffle"]
    other = train_and_refine(encoder, MORE, tmp_path / "other", augmentations=["dropout", "dropout"], **SHORT)
    assert isinstance(other.run.trainer.loss, DCLRLoss)
    assert other.run.trainer.loss.get_config_dict()["augmentations"] == ["dropout", "dropout"]
    with pytest.raises(ValueError, match="augmentations must be two of"):
        train_and_refine(encoder, MORE, tmp_path / "third", augmentations=["shuffle"], **SHORT)
    assert not (tmp_path / "third").exists()


def test_what_repal_cannot_refine_is_refused_before_the_training(encoder, tmp_path):
    refined = RepALPostProcessor.attach(encoder, lambda_1=0.5, lambda_2=0)
    before = encoder.encode(SENTENCES)
    with pytest.raises(ValueError, match="attached already"):
        train_and_refine(refined, MORE, tmp_path / "out", **SHORT)
    whitened = WhiteningPostProcessor.attach(encoder, corpus=MORE)
    with pytest.raises(ValueError, match="attached already"):
        train_and_refine(whitened, MORE, tmp_path / "out", whiten=True, **SHORT)
    assert not (tmp_path / "out").exists()
    np.testing.assert_array_equal(encoder.encode(SENTENCES), before)


@pytest.mark.parametrize("better", [False, True])
def test_the_pairs_decide_on_whitening(better, encoder, dev, tmp_path, monkeypatch):
    """The grades are the cosines of the one or the other."""
    monkeypatch.setattr(recipes, "train_encoder", lambda *_, **__: None)
    model = train_and_refine(encoder, MORE, tmp_path / "first", whiten=better).model
    gold = pairwise_cos_sim(model.encode(dev.sentences1), model.encode(dev.sentences2)).tolist()
    made = train_and_refine(encoder, MORE, tmp_path / "second", dev=replace(dev, scores=gold))
    assert made.whitened is better
    assert made.tuning is not None
    assert made.tuning.spearman > 0.99
    assert made.tuning.lambda_1 == pytest.approx(recipes.UNTUNED_LAMBDA_1, abs=0.11)
    refined = st_extras.load(str(tmp_path / "second" / "refined"), device="cpu")
    assert any(isinstance(module, WhiteningPostProcessor) for module in refined) is better


def test_every_setting_reaches_the_training(encoder, dev, tmp_path, monkeypatch):
    class Reached(Exception):
        pass

    seen: dict[str, object] = {}

    def note(model: object, loss: object, data: object, output: object, **options: object) -> None:
        seen.update(options, data=data, output=output)
        raise Reached

    monkeypatch.setattr(recipes, "train_encoder", note)
    wanted = {"learning_rate": 3e-4, "max_steps": 7, "eval_steps": 3, "batch_size": 5, "seed": 11, "bf16": True}
    with pytest.raises(Reached):
        train_and_refine(encoder, MORE, tmp_path / "out", dev=dev, overwrite=True, **wanted)
    assert {name: seen[name] for name in wanted} == wanted
    assert (seen["overwrite"], seen["data"], seen["output"]) == (True, MORE, tmp_path / "out" / "encoder")
    assert isinstance(seen["evaluator"], STSEvaluator)


def test_overwriting_replaces_both_folders(encoder, tmp_path):
    for overwrite in (False, True):
        train_and_refine(encoder, MORE, tmp_path / "out", overwrite=overwrite, **SHORT)
    (tmp_path / "own").mkdir()
    encoder.save(str(tmp_path / "own" / "refined"))
    with pytest.raises(ValueError, match="which no earlier run wrote"):
        train_and_refine(encoder, MORE, tmp_path / "own", overwrite=True, **SHORT)
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == ["refined"]
