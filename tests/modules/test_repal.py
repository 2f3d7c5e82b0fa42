"""RepAL against equation 3 written again, in every pipeline that it may stand in, and what it refuses."""

import dataclasses

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from st_extras.modules import RepALPostProcessor, load
from st_extras.modules.lambda_search import pair_sides, search_lambdas
from tests.modules.cases import LAMBDA_1, LAMBDA_2, TEXTS, attach, pairs_and_scores, reference, reference_mask, watch

# --- equation 3 ---


@pytest.mark.parametrize("pooling", ["mean", "weightedmean", ("cls", "max")])
def test_equation_3_against_explicit_encodes(make_encoder, pooling):
    model = make_encoder(pooling=pooling)
    attached = attach(model)
    expected = reference(model, TEXTS)
    assert reference_mask(TEXTS[1]) == "the woman and the [MASK]"
    assert np.abs(attached.encode(TEXTS, batch_size=5) - expected).max() < 1e-5
    assert np.abs(attached.encode(TEXTS[0]) - expected[0]).max() < 1e-5
    assert np.abs(model.encode(TEXTS) - expected)[0].max() > 0.05, "something was subtracted"


def test_one_pass_over_twice_the_rows_and_none_without_a_sentence_term(still_encoder):
    attached, seen = attach(still_encoder), watch(still_encoder)
    attached.encode(TEXTS[:3], batch_size=8)
    assert [shape[0] for shape in seen] == [6]
    seen.clear()
    attached[2].lambda_1 = 0.0
    attached.encode(TEXTS[:3], batch_size=8)
    assert [shape[0] for shape in seen] == [3]


def test_zero_weights_are_the_plain_model_exactly(still_encoder):
    attached = attach(still_encoder, lambda_1=0.0, lambda_2=0.0)
    plain = still_encoder.encode(TEXTS)
    assert np.array_equal(attached.encode(TEXTS), plain)
    attached[2].lambda_2 = LAMBDA_2
    assert np.abs(attached.encode(TEXTS) - (plain - LAMBDA_2 * attached[2].corpus_mean.numpy())).max() < 1e-6


def test_normalize_stays_last_and_dense_stays_before(still_encoder):
    dense = Dense(16, 6)
    attached = attach(SentenceTransformer(modules=[*still_encoder, dense, Normalize()], device="cpu"))
    names = ["PartialMaskTransformer", "Pooling", "Dense", "RepALPostProcessor", "Normalize"]
    assert [type(m).__name__ for m in attached] == names
    raw = reference(SentenceTransformer(modules=[*still_encoder, dense], device="cpu"), TEXTS)
    expected = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.abs(attached.encode(TEXTS) - expected).max() < 1e-5


# --- what encode gives ---


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_other_output_values_are_those_of_the_plain_model(still_encoder, redundancy):
    attached = attach(still_encoder, redundancy=redundancy)
    mine = attached.encode(TEXTS, output_value="token_embeddings", batch_size=5)
    theirs = still_encoder.encode(TEXTS, output_value="token_embeddings", batch_size=5)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    everything = attached.encode(TEXTS, output_value=None, batch_size=5)
    plain = still_encoder.encode(TEXTS, output_value=None, batch_size=5)
    refined = attached.encode(TEXTS)
    for item, other, row in zip(everything, plain, refined, strict=True):
        assert item.keys() == other.keys()
        assert np.abs(item["sentence_embedding"].numpy() - row).max() < 1e-5
        length = int(other["attention_mask"].sum())
        assert int(item["attention_mask"].sum()) == length
        assert torch.equal(item["input_ids"][:length], other["input_ids"][:length])


def test_the_given_model_stays_plain(still_encoder):
    before = still_encoder.encode(TEXTS)
    attached = attach(still_encoder)
    assert attached[0].model is still_encoder[0].model, "weights are shared"
    for model in (still_encoder, RepALPostProcessor.detach(attached)):
        assert [type(part) for part in model] == [Transformer, Pooling]
        assert model[0].unpad_inputs is None
        assert np.array_equal(model.encode(TEXTS), before)


# --- tune ---


def test_tune_encodes_once_and_never_loses_to_plain(still_encoder):
    pairs, scores = pairs_and_scores()
    attached, seen = attach(still_encoder), watch(still_encoder)
    mean = attached[2].corpus_mean.clone()
    result = attached[2].tune(pairs, scores)
    assert sum(rows for rows, _ in seen) == 2 * len({text for pair in pairs for text in pair})  # with masked copies
    assert result.settings >= 2000
    assert (attached[2].lambda_1, attached[2].lambda_2) == (result.lambda_1, result.lambda_2)
    assert torch.equal(attached[2].corpus_mean, mean)
    assert result.spearman > result.plain_spearman
    evaluator = EmbeddingSimilarityEvaluator(*zip(*pairs, strict=True), scores, show_progress_bar=False)
    for model, expected in ((attached, result.spearman), (still_encoder, result.plain_spearman)):
        assert evaluator(model)["spearman_cosine"] == pytest.approx(expected, abs=2e-3)
    only = attached[2].tune(pairs, scores, lambda_1_grid=np.array([0.3]), lambda_2_grid=[9.0])
    assert only.settings == 4  # zeros too


def test_the_settings_of_tune_arrive(still_encoder, capfd):
    pairs, scores = pairs_and_scores()
    processor = attach(still_encoder)[2]
    parts = pair_sides(*processor.parts([text for side in zip(*pairs, strict=True) for text in side]))
    grids = {"lambda_1_grid": [0.5], "lambda_2_grid": [0.2, 0.7]}
    expected = search_lambdas(*parts, processor.corpus_mean.double().numpy(), scores, **grids)
    seen = watch(still_encoder)
    result = processor.tune(pairs, scores, **grids, batch_size=5, show_progress_bar=True)
    assert max(rows for rows, _ in seen) == 10  # five texts and their copies
    assert "Batches" in capfd.readouterr().err
    assert result == dataclasses.replace(expected, spearman=pytest.approx(expected.spearman, abs=1e-6))
    assert (processor.lambda_1, processor.lambda_2) == (result.lambda_1, result.lambda_2)


def test_tune_takes_the_pairs_mean_of_an_unfitted_module(still_encoder):
    pairs, scores = pairs_and_scores()
    unfitted = attach(still_encoder, corpus=None)[2]
    unfitted.tune(pairs, scores, lambda_1_grid=[0.5], lambda_2_grid=[0.5])
    mean = still_encoder.encode([text for pair in pairs for text in pair]).mean(axis=0)
    assert np.abs(unfitted.corpus_mean.numpy() - mean).max() < 1e-6


# --- errors ---


def test_training_is_refused(still_encoder):
    attached = attach(still_encoder).train()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"cannot be trained.*detach"):
            MultipleNegativesRankingLoss(attached)([attached.preprocess(TEXTS)] * 2, None)
        attached[2].lambda_1 = 0.0  # no masked copies
    assert attached.eval()(attached.preprocess(TEXTS))["sentence_embedding"].requires_grad


def test_a_module_without_its_corpus_or_its_masked_copies(still_encoder):
    with pytest.raises(ValueError, match=r"lambda_2=1.3 needs .*fit\(sentences\)"):
        attach(still_encoder, corpus=None).encode(TEXTS)
    with pytest.raises(ValueError, match=r"^inputs must be strings"):
        attach(still_encoder).encode([("a", "b")])
    appended = SentenceTransformer(modules=[*still_encoder], device="cpu").append(RepALPostProcessor(16, 0.5))
    with pytest.raises(ValueError, match=r"lambda_1=0.5 needs masked copies.*attach"):
        appended.encode(TEXTS)


def test_two_of_them_are_refused(still_encoder):
    attached = attach(still_encoder)
    with pytest.raises(ValueError, match=r"^model must not have RepAL attached already"):
        attach(attached)


def test_the_options_of_encode_arrive(still_encoder, monkeypatch):
    """Both from attach and from fit, for the corpus alone."""
    still_encoder.prompts, seen = {"query": "the dog "}, []
    encode = SentenceTransformer.encode

    def recorded(self, sentences, **options):
        if len(sentences) == len(TEXTS):
            seen.append(options)
        return encode(self, sentences, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", recorded)
    options = {"batch_size": 5, "prompt_name": "query", "chunk_size": 7}
    attached = attach(still_encoder, **options)
    attached[2].fit(TEXTS, show_progress_bar=True, **options)
    wanted = {"prompt_name": "query", "chunk_size": 7, "batch_size": 5}
    assert [{name: options[name] for name in wanted} for options in seen] == [wanted, wanted]
    assert [options["show_progress_bar"] for options in seen] == [False, True]
    mean = still_encoder.encode(TEXTS, prompt_name="query").mean(axis=0)
    assert np.abs(attached[2].corpus_mean.numpy() - mean).max() < 1e-5


class OwnTransformer(Transformer):
    """A user's subclass."""


def test_a_users_own_transformer_is_refused(still_encoder, tmp_path):
    still_encoder.save(str(tmp_path))
    own = SentenceTransformer(modules=[OwnTransformer(str(tmp_path)), Pooling(16)], device="cpu")
    with pytest.raises(ValueError, match="own Transformer module, got OwnTransformer"):
        attach(own)


@pytest.mark.parametrize("given", [None, True])
def test_rows_are_never_flattened_and_detach_gives_the_setting_back(still_encoder, tmp_path, given):
    still_encoder[0].unpad_inputs = given
    attached = attach(still_encoder, keywords="rake")
    attached[0].can_flatten_inputs = True
    assert attached.preprocess(TEXTS)["input_ids"].shape[0] == 2 * len(TEXTS)
    attached.save(str(tmp_path))
    for model in (attached, load(str(tmp_path), device="cpu")):
        assert RepALPostProcessor.detach(model)[0].unpad_inputs is given


PAIRS = [("a cat", "the dog"), ("red", "book"), ("a", "b")]


@pytest.mark.parametrize(
    ("pairs", "scores", "options", "message"),
    [
        (PAIRS, [float("nan"), 1.0, 2.0], {}, "scores must be"),
        (PAIRS, torch.ones(3), {}, "not all equal"),
        ([("a", "b"), "cd"], [1, 2], {}, "^pairs must"),
        (PAIRS, [1, 2, 3], {"lambda_2_grid": [0.1, -0.1]}, "^lambda_2_grid must be"),
    ],
)
def test_what_cannot_be_tuned_on_changes_nothing(still_encoder, pairs, scores, options, message):
    processor = attach(still_encoder)[2]
    with pytest.raises(ValueError, match=message):
        processor.tune(pairs, scores, **options)
    assert (processor.lambda_1, processor.lambda_2) == (LAMBDA_1, LAMBDA_2)
