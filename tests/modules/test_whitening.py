import logging

import numpy as np
import pytest
import torch

from st_extras.modules import CorpusStatistics, WhiteningPostProcessor
from tests.modules.cases import corpus_of_words


@pytest.fixture
def corpus():
    return corpus_of_words(60)


@pytest.mark.parametrize(("epsilon", "dimensions"), [(0.0, 5), (0.03, None), (1.0, 5)])
def test_the_formula_in_float64(still_encoder, corpus, epsilon, dimensions):
    vectors = still_encoder.encode(corpus).astype(np.float64)
    values, axes = np.linalg.eigh(np.cov(vectors.T))
    values, axes = np.clip(values[::-1], 0, None)[:dimensions], axes[:, ::-1][:, :dimensions]
    variance = np.trace(np.cov(vectors.T)) / 16
    expected = (vectors - vectors.mean(axis=0)) @ axes / np.sqrt(values + epsilon * variance)
    out = WhiteningPostProcessor.attach(still_encoder, dimensions=dimensions, epsilon=epsilon, corpus=corpus).encode(
        corpus
    )
    if dimensions is None:
        expected = expected @ axes.T  # rotated back
    else:
        expected *= np.sign((out * expected).sum(axis=0))  # an eigenvector has no sign
    assert np.abs(out - expected).max() < 1e-4


def test_directions_without_variance_come_out_as_zero(still_encoder, corpus, caplog):
    with caplog.at_level(logging.WARNING):
        whitened = WhiteningPostProcessor.attach(still_encoder, corpus=corpus[:4])
    assert "vary in 3 directions only" in caplog.text
    out = whitened.encode(corpus)
    assert np.isfinite(out).all()
    assert np.abs(out[:, 3:]).max() == 0
    assert np.abs(out[:, :3]).max() < 1e4


@pytest.mark.parametrize("corpus", [["a cat"], ["the old man read a red book", "THE old man read a red book"] * 9])
def test_rounding_is_no_variance(still_encoder, corpus):
    """Equal sentences in batches of other sizes differ in the last digit: whitening would scale that up."""
    processor = WhiteningPostProcessor.attach(still_encoder)[2]
    with pytest.raises(ValueError, match=f"two different embeddings.*got {len(corpus)} sentences"):
        processor.fit(corpus, batch_size=32)
    noise = 1e-7 * torch.randn(50, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"two different embeddings.*got 50 sentences"):
        processor.fit(statistics=CorpusStatistics(16).update(3.0 + noise))
    assert processor.corpus_size == 0
