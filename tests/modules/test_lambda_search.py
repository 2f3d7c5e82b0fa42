"""The search of RepAL's weights against correlations taken one setting at a time."""

import itertools

import numpy as np
import pytest
from scipy.stats import spearmanr

from st_extras.modules.lambda_search import search_lambdas


def test_the_edge_of_one_grid_alone_is_reported():
    """The best is 1 for both weights: the last of one grid, or inside of both."""
    generator = np.random.default_rng(5)
    a, a_star, b, b_star = generator.normal(size=(4, 200, 6))
    mean = 5 * np.ones(6)
    scores = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    first, second = (a + a_star + mean, a_star), (b + b_star + mean, b_star)
    short, long = [0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.5]
    for grids in ((short, long), (long, short), (long, long)):
        found = search_lambdas(first, second, mean, scores, *grids)
        assert (found.lambda_1, found.lambda_2, found.at_edge) == (1.0, 1.0, short in grids)


def test_the_best_weights_are_those_of_a_loop():
    generator = np.random.default_rng(3)
    a, a_star, b, b_star = generator.normal(size=(4, 60, 5))
    mean, scores = generator.normal(size=5), generator.integers(0, 5, 60)
    found = search_lambdas((a, a_star), (b, b_star), mean, scores, [0.0, 0.5, 1.0], [0.0, 0.8, 3.0])
    best = {}
    for lambda_1, lambda_2 in itertools.product((0.0, 0.5, 1.0), (0.0, 0.8, 3.0)):
        x, y = ((p - lambda_1 * q - lambda_2 * mean) for p, q in ((a, a_star), (b, b_star)))
        cosines = (x * y).sum(axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
        best[lambda_1, lambda_2] = spearmanr(cosines, scores).statistic
    assert found.spearman == pytest.approx(max(best.values()))
    assert (found.lambda_1, found.lambda_2) == max(best, key=best.get)
    assert found.plain_spearman == pytest.approx(best[0.0, 0.0])
