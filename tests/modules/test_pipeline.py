"""What the post-processing modules share: streams of embeddings, and the model that a module belongs to."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_extras.modules import RepALPostProcessor
from tests.modules.cases import TEXTS, attach, watch


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


def test_a_module_outside_a_model_is_named(still_encoder):
    module, replaced = RepALPostProcessor(16), RepALPostProcessor(16)
    model = SentenceTransformer(modules=[*still_encoder, replaced], device="cpu")
    replaced.fit(TEXTS)
    model[2] = module
    for outside in (module, replaced):
        with pytest.raises(ValueError, match=r"RepALPostProcessor is not part of a model.*attach"):
            outside.fit(TEXTS)


def test_a_value_that_is_not_finite_is_named_and_changes_nothing(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 1)
    processor = attach(still_encoder, corpus=None)[2]
    dog = still_encoder.tokenizer.convert_tokens_to_ids("dog")
    with torch.no_grad():
        still_encoder.transformers_model.embeddings.word_embeddings.weight[dog] = float("nan")
    for call in (
        lambda: processor.fit(["a cat", "the dog ran"]),
        lambda: processor.tune([("a cat", "a mat"), ("a", "the dog ran")], [1, 2]),
    ):
        with pytest.raises(ValueError, match=r"^the embedding of 'the dog ran' is not finite \(NaN or infinity\)\.$"):
            call()
    assert (processor.lambda_1, processor.lambda_2, processor.corpus_size) == (0.6, 1.3, 0)
    assert not processor.corpus_mean.any()


class Shifted(Pooling):
    """A module of a user's own, whose ``forward`` takes an argument of ``encode``."""

    def forward(self, features, task=None, **kwargs):
        features = super().forward(features, **kwargs)
        return features | {"sentence_embedding": features["sentence_embedding"] + (task is not None)}


def test_an_argument_of_encode_still_reaches_its_module(still_encoder):
    """Behind another module, so that its place is another one in the refined model."""
    model = SentenceTransformer(modules=[still_encoder[0], torch.nn.Identity(), Shifted(16)], device="cpu")
    model.module_kwargs = {"2": ["task"]}
    refined = RepALPostProcessor.attach(model, lambda_1=0, lambda_2=0.5, redundancy="encoder", corpus=TEXTS)
    for found in (refined, RepALPostProcessor.detach(refined)):
        np.testing.assert_allclose(found.encode(TEXTS, task="query") - found.encode(TEXTS), 1, atol=1e-5)


def test_several_devices_get_one_pool_for_all_chunks(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 2)
    calls, encode = [], SentenceTransformer.encode
    monkeypatch.setattr(
        SentenceTransformer,
        "start_multi_process_pool",
        lambda self, devices: calls.append(devices) or {"pool": len(self)},
    )
    monkeypatch.setattr(SentenceTransformer, "stop_multi_process_pool", lambda self, pool: calls.append("stopped"))

    def recorded(self, sentences, pool=None, **options):
        calls.append(pool)
        return encode(self, sentences, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", recorded)
    attach(still_encoder, corpus=[*TEXTS, "a dog"][:4], device=["cpu", torch.device("cpu")])
    pool = {"pool": 2}  # of the modules before RepAL
    assert calls == [["cpu", "cpu"], pool, pool, "stopped"]
