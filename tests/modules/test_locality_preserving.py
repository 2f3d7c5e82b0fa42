"""The locality preserving step in a pipeline: what it is fitted on, files, exports, refusals."""

import random

import numpy as np
import pytest
import torch
from sentence_transformers.base.modules import Normalize

from st_extras.modules import CorpusStatistics, LocalityPreservingPostProcessor
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.corpus import reservoir_sample
from st_extras.text.lexical import character_tfidf
from tests.helpers import draw
from tests.modules.cases import corpus_of_words

CORPUS = list(dict.fromkeys(corpus_of_words(160)))[:120]
attach = LocalityPreservingPostProcessor.attach


@pytest.fixture
def model(still_encoder):
    return attach(still_encoder, corpus=CORPUS)


@pytest.mark.parametrize("words", [True, False])
def test_it_is_the_kernel_of_the_encoder_s_embeddings(still_encoder, words):
    still_encoder.append(Normalize())
    model = attach(
        still_encoder, neighbors=5, power=0.5, recolor=0.25, epsilon=0.2, words=words, seed=3, corpus=iter(CORPUS)
    )
    assert [type(part).__name__ for part in model][2:] == ["LocalityPreservingPostProcessor", "Normalize"]
    plain = torch.nn.Sequential(*list(still_encoder)[:2])
    vectors = torch.cat([plain(still_encoder.preprocess([text]))["sentence_embedding"] for text in CORPUS]).detach()
    vectors = vectors.double()
    found = neighbor_directions(vectors, 5, 0.2, words=character_tfidf(CORPUS) if words else None, seed=3)
    expected = (vectors - found.mean) @ found.kernel(0.5, 0.25)
    expected /= expected.norm(dim=1, keepdim=True)
    assert np.abs(model.encode(CORPUS) - expected.numpy()).max() < 1e-4
    assert model[2].corpus_size == found.count > 100
    assert (model[2].agreement - found.agreement).abs().max() < 1e-4
    assert model.get_embedding_dimension() == 16


def test_embeddings_that_are_there_already(still_encoder, model):
    vectors = still_encoder.encode(CORPUS)
    alone = LocalityPreservingPostProcessor(16)
    assert alone.fit_embeddings(vectors, CORPUS) is alone
    assert torch.allclose(alone.kernel, model[2].kernel, atol=1e-4)
    without = LocalityPreservingPostProcessor(16, words=False).fit_embeddings(torch.from_numpy(vectors).bfloat16())
    assert without.corpus_size > 100
    assert not torch.allclose(without.kernel, alone.kernel, atol=1e-2)
    other = LocalityPreservingPostProcessor(16, words=False).fit_embeddings(vectors, CORPUS)
    assert torch.allclose(without.kernel, other.kernel, atol=0.1)


def test_a_sample_of_a_long_text(still_encoder):
    drawn = reservoir_sample(CORPUS, 60, 5, distinct=True)
    sampled = attach(still_encoder, max_sentences=60, seed=5, corpus=(text for text in CORPUS))
    by_hand = attach(still_encoder, seed=5, corpus=drawn)
    assert torch.equal(sampled[2].kernel, by_hand[2].kernel)
    assert sampled[2].corpus_size <= 60
    vectors = still_encoder.encode(CORPUS)
    modules = [
        LocalityPreservingPostProcessor(16, max_sentences=60, seed=seed).fit_embeddings(vectors, CORPUS)
        for seed in (0, 0, 1)
    ]
    assert modules[0].corpus_size <= 60
    assert torch.equal(modules[0].kernel, modules[1].kernel)
    assert not torch.equal(modules[0].kernel, modules[2].kernel)
    rows = sorted(random.Random(0).sample(range(120), 60))
    found = neighbor_directions(torch.from_numpy(vectors[rows]), words=character_tfidf([CORPUS[i] for i in rows]))
    assert torch.allclose(modules[0].kernel, found.kernel(1.0, 0.5).float(), atol=1e-6)


def test_texts_and_embeddings_go_together(still_encoder):
    vectors, module = still_encoder.encode(CORPUS), LocalityPreservingPostProcessor(16)
    for texts, count in ((None, 0), (CORPUS[1:], 119)):
        with pytest.raises(
            ValueError, match=rf"^texts must be the texts of the 120 embeddings .*got {count}: give all"
        ):
            module.fit_embeddings(vectors, texts)
    for wrong, message in ((np.zeros((60, 8)), r"shape \(N, 16\), got \(60, 8\)"), (vectors * np.nan, "in row 0")):
        with pytest.raises(ValueError, match=message):
            module.fit_embeddings(wrong, CORPUS[: len(wrong)])
    assert module.corpus_size == 0
    assert not module.agreement.any()


def test_few_texts_are_told(still_encoder, caplog):
    attach(still_encoder, corpus=CORPUS)
    assert "texts with different embeddings: below about 1000, a good encoder can come out worse." in caplog.text
    caplog.clear()
    LocalityPreservingPostProcessor(8, words=False).fit_embeddings(draw(1000, 8))
    assert not caplog.text


def test_statistics_are_refused(still_encoder):
    model, statistics = attach(still_encoder), CorpusStatistics.compute(still_encoder, CORPUS)
    with pytest.raises(ValueError, match=r"^statistics must be None .* the texts themselves, got CorpusStatistics\("):
        model[2].fit(statistics=statistics)
    assert model[2].corpus_size == 0


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        (CORPUS[:49], r"at least 50 different embeddings, got 4[0-9]: give more\.$"),
        ([], "sentences must hold at least one text, got none"),
        ([*CORPUS, 5], "sentences, row 120: expected a sentence, got 5"),
    ],
)
def test_text_that_is_not_enough(still_encoder, corpus, message):
    model = attach(still_encoder)
    with pytest.raises(ValueError, match=message):
        model[2].fit(corpus)
    assert model[2].corpus_size == 0


@pytest.mark.parametrize(
    "settings",
    [{"neighbors": 0}, {"power": -1}, {"recolor": 1.5}, {"epsilon": -0.1}, {"words": 1}, {"max_sentences": 49},
     {"max_sentences": 61, "neighbors": 30}, {"seed": 1.0}],
)  # fmt: skip
def test_wrong_settings_are_named(still_encoder, settings):
    with pytest.raises(ValueError, match=rf"^{next(iter(settings))} must be .*got"):
        attach(still_encoder, **settings)
