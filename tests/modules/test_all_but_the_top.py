"""All-but-the-top against plain loops in float64; centring; what it refuses."""

import numpy as np
import pytest

from st_extras.modules import AllButTheTopPostProcessor, CorpusStatistics
from tests.modules.cases import corpus_of_words

CORPUS = corpus_of_words(60)


def by_power_iteration(vectors, components):
    """The paper's formula written again: each direction by power iteration on what is left, in float64."""
    rest = vectors - sum(vectors) / len(vectors)
    for _ in range(components):
        direction = 1.0 + np.arange(vectors.shape[1])
        for _ in range(3000):
            direction = rest.T @ (rest @ direction)
            direction /= np.sqrt(direction @ direction)
        rest = np.array([v - (v @ direction) * direction for v in rest])
    return rest


@pytest.mark.parametrize("components", [0, 1, 3])
def test_against_power_iteration_in_float64(still_encoder, components):
    vectors = still_encoder.encode(CORPUS).astype(np.float64)
    model = AllButTheTopPostProcessor.attach(still_encoder, components=components, corpus=iter(CORPUS))
    assert np.abs(model.encode(CORPUS) - by_power_iteration(vectors, components)).max() < 1e-5


def test_the_paper_s_default():
    assert [AllButTheTopPostProcessor(size).components for size in (768, 16, 1)] == [8, 1, 0]


def test_a_corpus_that_leaves_nothing_is_refused(still_encoder):
    model = AllButTheTopPostProcessor.attach(still_encoder, components=3)
    distinct = list(dict.fromkeys(CORPUS))
    with pytest.raises(ValueError, match=r"^components must be below .*\(3\), got 3"):
        model[2].fit(distinct[:4])
    assert model[2].corpus_size == 0
    model[2].fit(statistics=CorpusStatistics.compute(still_encoder, distinct[:5]))
    assert model[2].corpus_size == 5
