"""What the post-processing modules share: streams of embeddings, and the model that a module belongs to."""

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_extras.modules import AllButTheTopPostProcessor, RepALPostProcessor, WhiteningPostProcessor
from tests.modules.cases import TEXTS, attach, watch

pytest.importorskip("jieba")


def test_fit_takes_the_mean_of_any_stream(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 5)
    attached = attach(still_encoder, corpus=None)
    assert attached[2].corpus_size == 0
    attached[2].fit(text for text in TEXTS)
    assert attached[2].corpus_size == len(TEXTS)
    mean = still_encoder.encode(TEXTS).astype(np.float64).mean(axis=0)
    assert np.abs(attached[2].corpus_mean.numpy() - mean).max() < 1e-6


def test_fit_reads_no_further_than_it_encodes(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 4)
    attached, ahead, read, seen = attach(still_encoder, corpus=None), [], 0, watch(still_encoder)

    def stream():
        nonlocal read
        for i in range(40):
            read += 1
            ahead.append(read - sum(rows for rows, _ in seen))
            yield TEXTS[i % 3]

    attached[2].fit(stream(), batch_size=4)
    assert read == sum(rows for rows, _ in seen) == 40
    assert max(ahead) == 4, "no more than a chunk is held"


def test_a_value_that_is_not_finite_is_named(still_encoder):
    attached = attach(still_encoder, corpus=None)
    dog = still_encoder.tokenizer.convert_tokens_to_ids("dog")
    with torch.no_grad():
        still_encoder.transformers_model.embeddings.word_embeddings.weight[dog] = float("nan")
    with pytest.raises(ValueError, match=r"sentence 1 is not finite.*the dog ran"):
        attached[2].fit(["a cat", "the dog ran"])
    assert attached[2].corpus_size == 0
    assert attached[2].corpus_mean.abs().sum() == 0


@pytest.mark.parametrize("module", [RepALPostProcessor(16), WhiteningPostProcessor(16)])
def test_a_module_outside_a_model_is_named(still_encoder, module):
    with pytest.raises(ValueError, match=rf"{type(module).__name__} is not part of a model.*attach"):
        module.fit(TEXTS)
    model = SentenceTransformer(modules=[*still_encoder, module], device="cpu")
    module.fit(TEXTS)
    model[2] = type(module)(16)
    with pytest.raises(ValueError, match="not part of a model"):
        module.fit(TEXTS)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True, "32", None, 10**11])
def test_a_wrong_batch_size_is_named(still_encoder, batch_size):
    whitened = WhiteningPostProcessor.attach(still_encoder, corpus=TEXTS)
    attached = attach(whitened)
    pairs = [("a cat", "the dog"), ("a mat", "the man")]
    for call in (
        lambda: WhiteningPostProcessor.attach(still_encoder, batch_size=batch_size),
        lambda: RepALPostProcessor.attach(still_encoder, lambda_1=0, lambda_2=0, batch_size=batch_size),
        lambda: whitened[2].fit(TEXTS, batch_size=batch_size),
        lambda: attached[3].fit(TEXTS, batch_size=batch_size),
        lambda: attached[3].parts(TEXTS, batch_size=batch_size),
        lambda: attached[3].tune(pairs, [1, 2], batch_size=batch_size),
    ):
        with pytest.raises(ValueError, match="batch_size must be a whole number between 1 and 1048576, got"):
            call()


@pytest.mark.parametrize("model", [0, None, "bert-base-uncased"])
def test_a_model_of_another_kind_is_named(model):
    for call in (
        lambda: WhiteningPostProcessor.attach(model),
        lambda: RepALPostProcessor.attach(model, lambda_1=0, lambda_2=0),
    ):
        with pytest.raises(ValueError, match=f"model must be a SentenceTransformer, got {model!r}"):
            call()


def test_a_redundancy_of_another_kind_is_named(still_encoder):
    with pytest.raises(ValueError, match=r"redundancy must be one of 'encoder', 'pooled', got array\("):
        RepALPostProcessor.attach(still_encoder, lambda_1=0, lambda_2=0, keywords="rake", redundancy=np.zeros(2))


@pytest.mark.parametrize("value", ["False", 0, None])
def test_a_progress_bar_is_shown_or_not(still_encoder, value):
    processor = attach(still_encoder)[2]
    pairs = [("a cat", "the dog"), ("a mat", "the man")]
    for call in (
        lambda: processor.fit(TEXTS, show_progress_bar=value),
        lambda: processor.parts(TEXTS, show_progress_bar=value),
        lambda: processor.tune(pairs, [1, 2], show_progress_bar=value),
    ):
        with pytest.raises(ValueError, match="show_progress_bar must be True or False, got"):
            call()


@pytest.mark.parametrize("kind", [RepALPostProcessor, WhiteningPostProcessor])
@pytest.mark.parametrize("option", ["embedding_dimension", "corpus_size"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "16", 10**12, float("nan")])
def test_wrong_sizes_of_a_module_are_named(kind, option, value):
    if (option, value) == ("corpus_size", 10**12):
        pytest.skip("a corpus may be large")
    with pytest.raises(ValueError, match=f"{option} must be a whole number .*got"):
        kind(**{"embedding_dimension": 16, option: value})


def test_the_numbers_of_numpy_are_taken(still_encoder):
    whitened = WhiteningPostProcessor.attach(still_encoder, dimensions=np.int64(3), corpus=TEXTS, batch_size=np.int8(4))
    attached = attach(whitened, lambda_1=np.float32(0.5), lambda_2=np.int64(1))
    assert attached[3].lambda_1 == 0.5
    assert attached[3].tune([("a cat", "a dog"), ("a", "b")], np.array([1, 2]), lambda_1_grid=np.arange(2)).settings > 2


def test_a_data_set_is_a_corpus(still_encoder):
    rows = Dataset.from_dict({"sentence": TEXTS})
    for kind, options in (
        (WhiteningPostProcessor, {"dimensions": 3}),
        (RepALPostProcessor, {"lambda_1": 0, "lambda_2": 1}),
    ):
        for extra in ({}, {"keywords": "tfidf"}) if kind is RepALPostProcessor else ({},):
            expected = kind.attach(still_encoder, corpus=TEXTS, **options, **extra)
            assert torch.equal(
                kind.attach(still_encoder, corpus=rows, **options, **extra)[2].corpus_mean, expected[2].corpus_mean
            )
        assert expected[2].fit(rows).corpus_size == len(TEXTS)
        for wrong in (
            {"corpus": DatasetDict(train=rows, dev=rows)},
            {"corpus": Dataset.from_dict({"label": [0] * len(TEXTS)})},
        ):
            with pytest.raises(ValueError, match=r"train.*dev|no column.*label"):
                kind.attach(still_encoder, **options, **wrong)
    embeddings, _ = expected[2].parts(rows)
    assert torch.equal(embeddings, expected[2].parts(TEXTS)[0])


def test_parts_of_no_sentences_and_of_sentences_that_are_none(still_encoder):
    processor = attach(still_encoder)[2]
    for wrong, message in (
        ([], "at least one text"),
        ("a cat", "got the string 'a cat'"),
        (["a", 3], "row 1: expected a sentence, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            processor.parts(wrong)
    dog = still_encoder.tokenizer.convert_tokens_to_ids("dog")
    with torch.no_grad():
        still_encoder.transformers_model.embeddings.word_embeddings.weight[dog] = float("nan")
    with pytest.raises(ValueError, match=r"sentence 1 is not finite.*the dog ran"):
        processor.parts(["a cat", "the dog ran"])
    with pytest.raises(ValueError, match=r"sentence 3 is not finite.*the dog ran"):
        processor.tune([("a cat", "a mat"), ("a", "the dog ran")], [1, 2])
    assert (processor.lambda_1, processor.lambda_2) == (0.6, 1.3)


def test_a_mean_of_one_sentence_is_said(still_encoder, caplog):
    for corpus in (["a cat"], ["a cat"] * 3):
        caplog.clear()
        attach(still_encoder, corpus=corpus)
        assert "the corpus mean is the embedding of one sentence" in caplog.text
    caplog.clear()
    attach(still_encoder, corpus=["a cat", "a dog"])
    assert not caplog.text


class Shifted(Pooling):
    """A module of a user's own, whose ``forward`` takes an argument of ``encode``."""

    def forward(self, features, task=None, **kwargs):
        features = super().forward(features, **kwargs)
        shift = 0 if task is None else torch.arange(features["sentence_embedding"].shape[1])
        return features | {"sentence_embedding": features["sentence_embedding"] + shift}


@pytest.mark.parametrize("first", [False, True])
def test_an_argument_of_encode_still_reaches_its_module(still_encoder, first):
    modules = [still_encoder[0], Shifted(16)]
    if first:  # behind another module, so that its place is another one in the refined model
        modules.insert(1, torch.nn.Identity())
    model = SentenceTransformer(modules=modules, device="cpu")
    model.module_kwargs = {str(len(modules) - 1): ["task"]}
    plain = AllButTheTopPostProcessor.attach(model, components=0, corpus=TEXTS)
    refined = RepALPostProcessor.attach(plain, lambda_1=0, lambda_2=0.5, redundancy="encoder", corpus=TEXTS)
    for found in (plain, refined, RepALPostProcessor.detach(refined)):
        difference = found.encode(TEXTS, task="query") - found.encode(TEXTS)
        np.testing.assert_allclose(difference, np.arange(16)[None].repeat(len(TEXTS), 0), atol=1e-5)


def test_a_model_keeps_its_truncation(still_encoder):
    still_encoder.truncate_dim = 8
    refined = AllButTheTopPostProcessor.attach(still_encoder, components=0, corpus=TEXTS)
    assert refined.truncate_dim == 8
