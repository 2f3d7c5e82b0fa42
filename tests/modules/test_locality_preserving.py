"""The locality preserving transform in a pipeline: what it is fitted on, and refusals."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.modules import CorpusStatistics, LocalityPreservingPostProcessor
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.corpus import distinct_sample
from st_extras.text.term_weights import character_tfidf
from tests.modules.cases import corpus_of_words

CORPUS = list(dict.fromkeys(corpus_of_words(160)))[:120]
attach = LocalityPreservingPostProcessor.attach


@pytest.mark.parametrize("tfidf", [True, False])
def test_it_is_the_kernel_of_the_encoder_s_embeddings(still_encoder, tfidf):
    still_encoder.append(Normalize())
    model = attach(
        still_encoder, neighbors=5, power=0.5, recolor=0.25, epsilon=0.2, tfidf=tfidf, seed=3, corpus=iter(CORPUS)
    )
    plain = SentenceTransformer(modules=list(still_encoder)[:2], device="cpu")
    vectors = plain.encode(CORPUS, convert_to_tensor=True).double()
    found = neighbor_directions(vectors, 5, 0.2, tfidf=character_tfidf(CORPUS) if tfidf else None, seed=3)
    expected = (vectors - found.mean) @ found.kernel(0.5, 0.25)
    expected /= expected.norm(dim=1, keepdim=True)
    assert np.abs(model.encode(CORPUS) - expected.numpy()).max() < 1e-4
    assert model[2].corpus_size == found.count > 100
    assert (model[2].agreement - found.agreement).abs().max() < 1e-4


def test_a_sample_of_a_long_text(still_encoder):
    drawn = distinct_sample(CORPUS, 60, 5)
    sampled = attach(still_encoder, max_sentences=60, seed=5, corpus=(text for text in CORPUS))
    by_hand = attach(still_encoder, seed=5, corpus=drawn)
    assert torch.equal(sampled[2].kernel, by_hand[2].kernel)
    assert sampled[2].corpus_size <= 60
    assert not torch.equal(attach(still_encoder, max_sentences=60, seed=6, corpus=CORPUS)[2].kernel, by_hand[2].kernel)


def test_what_it_cannot_be_fitted_on(still_encoder):
    module, statistics = attach(still_encoder)[2], CorpusStatistics.compute(still_encoder, CORPUS)
    with pytest.raises(ValueError, match=r"^statistics must be None"):
        module.fit(statistics=statistics)
    for corpus, message in (([], "at least one text, got none"), ([*CORPUS, 5], "sentences, row 120")):
        with pytest.raises(ValueError, match=message):
            module.fit(corpus)
    assert module.corpus_size == 0
