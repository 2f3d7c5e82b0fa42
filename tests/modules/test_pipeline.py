"""What the post-processing modules share: streams of embeddings, and the model that a module belongs to."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor
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
