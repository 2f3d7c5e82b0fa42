"""Statistics of a corpus: two-pass formulas, streams, prompts, what is refused."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers.base.modules import Normalize

from st_extras.modules import CorpusStatistics
from tests.modules.cases import corpus_of_words

CORPUS = corpus_of_words(64)


def two_passes(rows):
    """Mean and scatter by exact sums."""
    size = rows.shape[1]
    mean = [math.fsum(column) / len(rows) for column in rows.T]
    scatter = [[math.fsum((v[i] - mean[i]) * (v[j] - mean[j]) for v in rows) for j in range(size)] for i in range(size)]
    return np.array(mean), np.array(scatter)


def assert_same(one, other, tolerance=1e-9):
    assert one.count == other.count
    scale = max(1.0, other.scatter.abs().max().item())
    assert (one.mean - other.mean).abs().max() <= tolerance * max(1.0, other.mean.abs().max().item())
    assert (one.scatter - other.scatter).abs().max() <= tolerance * scale


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_against_two_passes_far_from_the_origin(offset):
    """In chunks of several sizes, one of which is empty."""
    rows = offset + np.random.default_rng(0).normal(size=(300, 4)) * [0.1, 1, 2, 3]
    mean, scatter = two_passes(rows)
    for sizes in ([300], [1, 0, 99, 200]):
        found = CorpusStatistics(4)
        for part in np.split(rows, np.cumsum(sizes)[:-1]):
            found.update(part)
        assert found.count == 300
        assert np.abs(found.mean.numpy() - mean).max() <= 1e-15 * offset + 1e-12
        assert np.abs(found.scatter.numpy() - scatter).max() < 1e-7 * np.abs(scatter).max()


def test_the_encoder_is_left_as_it_was(still_encoder, monkeypatch):
    """Also where the sentences come in chunks; the statistics are those before Normalize and truncation."""
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 7)
    vectors = still_encoder.encode(CORPUS)
    still_encoder.append(Normalize())
    still_encoder.truncate_dim = 8
    state, modules = torch.random.get_rng_state(), list(still_encoder)
    assert_same(CorpusStatistics.compute(still_encoder, iter(CORPUS)), CorpusStatistics(16).update(vectors), 1e-5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert list(still_encoder) == modules
    assert still_encoder.truncate_dim == 8
    assert "encode" not in vars(still_encoder)


def test_with_a_prompt(still_encoder):
    still_encoder.prompts = {"query": "the dog "}
    expected = CorpusStatistics(16).update(still_encoder.encode(CORPUS, prompt_name="query"))
    for options in ({"prompt_name": "query"}, {"prompt": "the dog "}):
        assert_same(CorpusStatistics.compute(still_encoder, CORPUS, **options), expected, 1e-5)
    still_encoder.default_prompt_name = "query"
    assert_same(CorpusStatistics.compute(still_encoder, CORPUS), expected, 1e-5)


def test_wrong_embeddings_change_nothing():
    statistics = CorpusStatistics(2)
    for wrong, message in ((torch.zeros(2, 3), "the shape"), ([[1.0, 2.0], [math.nan, 0.0]], "infinity in row 1")):
        with pytest.raises(ValueError, match=message):
            statistics.update(wrong)
    assert statistics.count == 0
