"""The largest eigenvalue and the correlation over RepAL's weights, against the model set to each of them."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from benchmarks.figures.lambda_curves import lambda_surface, largest_eigenvalues
from st_extras.modules import RepALPostProcessor
from tests.benchmarks.figures.test_redundancy import model_cosine

pytest.importorskip("jieba")
pytest.importorskip("matplotlib").use("Agg")


def by_loop(vectors) -> float:
    """The largest eigenvalue of the uncentred second moment."""
    return float(torch.linalg.eigvalsh(sum(torch.outer(v, v).double() for v in vectors) / len(vectors)).max())


def test_the_largest_eigenvalues_are_those_of_a_loop():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(30, 5, generator=generator, dtype=torch.float64) + 3
    mean = torch.randn(5, generator=generator, dtype=torch.float64)
    found = largest_eigenvalues(vectors, mean, [0.0, 0.7, 3.0])
    assert found == pytest.approx([by_loop(vectors - value * mean) for value in (0.0, 0.7, 3.0)])
    assert found[0] > 2 * by_loop(vectors - vectors.mean(dim=0)), "uncentred"


def test_surface_is_the_spearman_correlation_of_every_pair_of_weights(still_encoder, sentences):
    pairs, scores = list(zip(sentences[:4], sentences[4:], strict=True)), [1.0, 3.0, 2.0, 0.5]
    model = RepALPostProcessor.attach(still_encoder, lambda_1=0.3, lambda_2=0.2, corpus=sentences)
    lambda_1, lambda_2 = [0.0, 0.5], [0.0, 0.7, 1.4]
    surface = lambda_surface(model, pairs, scores, lambda_1_grid=lambda_1, lambda_2_grid=lambda_2)
    assert (model[2].lambda_1, model[2].lambda_2) == (0.3, 0.2)
    assert surface.shape == (2, 3)
    assert len(np.unique(surface.round(6))) > 1
    for i, j in np.ndindex(2, 3):
        model[2].lambda_1, model[2].lambda_2 = lambda_1[i], lambda_2[j]
        expected = spearmanr([model_cosine(model, x, y) for x, y in pairs], scores).statistic
        assert surface[i, j] == pytest.approx(expected, abs=1e-6)
    assert model[2].tune(pairs, scores).spearman == lambda_surface(model, pairs, scores).max()
