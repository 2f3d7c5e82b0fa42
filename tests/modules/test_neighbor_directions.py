"""Directions on which neighbours agree: against loops in float64 and scipy's generalised eigenproblem."""

import random

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.isotonic import isotonic_regression

from st_extras import functional
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.term_weights import character_tfidf
from tests.helpers import draw
from tests.modules.cases import corpus_of_words

DISTINCT = list(dict.fromkeys(corpus_of_words(100)))[:80]
SCALES = torch.tensor([3.0, 2.0, 1.0, 1.0, 0.5, 0.2])


def embeddings(count=90, seed=0):
    """Six dimensions, of different strength, far from 0."""
    return draw(count, 6, seed=seed).double() * SCALES + 1.5


def centred(rows):
    """The mean, and the unit vectors from it to each row."""
    rows = np.asarray(rows, dtype=np.float64)
    away = rows - rows.mean(axis=0)
    return rows.mean(axis=0), away / np.linalg.norm(away, axis=1, keepdims=True)


def nearest_means(z, similarity, neighbors):
    numbers = range(len(z))
    nearest = [sorted((j for j in numbers if j != i), key=lambda j: -similarity(i, j))[:neighbors] for i in numbers]
    return np.array([z[others].mean(axis=0) for others in nearest])


def both(z, n):
    """The sum of (z n^T + n z^T) / 2 over the rows."""
    return (z.T @ n + n.T @ z) / 2


def covariance_of(z, epsilon):
    c = z.T @ z / len(z)
    return c + epsilon * np.trace(c) / len(c) * np.eye(len(c))


def reference(rows, neighbors, epsilon, similarity=None):
    """The generalised eigenproblem M w = rho C w: agreement and a function that gives the kernel."""
    mean, z = centred(rows)
    n = nearest_means(z, similarity or (lambda i, j: z[i] @ z[j]), neighbors)
    c, m = covariance_of(z, epsilon), both(z, n) / len(z)
    rho, w = scipy.linalg.eigh(m, c)  # w^T C w = 1
    rho, w = np.clip(rho[::-1], 1e-3, 1), w[:, ::-1]

    def kernel(power, recolor):
        back = scipy.linalg.fractional_matrix_power(c, (1 + recolor) / 2).real
        return sum(rho[k] ** power * np.outer(w[:, k], back @ w[:, k]) for k in range(len(rho)))

    return mean, rho, kernel


@pytest.mark.parametrize(("neighbors", "epsilon", "worded"), [(10, 0.1, False), (3, 0.0, False), (10, 0.1, True)])
def test_against_the_generalised_eigenproblem(neighbors, epsilon, worded):
    """Neighbours by embeddings, or by embeddings and words together."""
    rows, words, similarity = embeddings(len(DISTINCT)), character_tfidf(DISTINCT), None
    if worded:
        z, shared = centred(rows)[1], (words @ words.T).toarray().astype(np.float64)
        spread = (z @ z.T).std(ddof=1), shared.std(ddof=1)
        similarity = lambda i, j: z[i] @ z[j] / spread[0] + shared[i, j] / spread[1]  # noqa: E731
    found = neighbor_directions(rows, neighbors, epsilon, tfidf=words if worded else None, folds=None)
    mean, rho, kernel = reference(rows, neighbors, epsilon, similarity)
    assert found.count == 80
    assert np.abs(found.mean.numpy() - mean).max() < 1e-12
    assert np.abs(found.agreement.numpy() - rho).max() < 1e-9
    assert len(set(rho.round(9))) > 3
    for power, recolor in ((1.0, 0.5), (0.5, 1.0), (2.0, 0.0)):
        assert np.abs(found.kernel(power, recolor).numpy() - kernel(power, recolor)).max() < 1e-8


def test_the_agreement_is_that_of_texts_that_the_directions_were_not_computed_from():
    rows, folds = embeddings(93), 5
    _, z = centred(rows)
    n = nearest_means(z, lambda i, j: z[i] @ z[j], 10)
    c, held_out = covariance_of(z, 0.1), []
    for part in torch.tensor(random.Random(7).sample(range(93), 93)).tensor_split(folds):
        others = np.setdiff1d(range(93), part)
        w = scipy.linalg.eigh(both(z[others], n[others]), c)[1][:, ::-1]
        held_out.append(np.diag(w.T @ both(z[part], n[part]) @ w) / len(part))
    rho = np.clip(isotonic_regression(np.mean(held_out, axis=0), increasing=False), 1e-3, 1)
    found = neighbor_directions(rows, folds=folds, seed=7)
    assert np.abs(found.agreement.numpy() - rho).max() < 1e-9
    whole = neighbor_directions(rows, folds=None)
    assert (found.directions.abs() - whole.directions.abs()).abs().max() < 1e-9


def test_a_direction_without_variance_is_left_out():
    rows = embeddings()
    flat = torch.cat([rows, rows.sum(dim=1, keepdim=True)], dim=1)  # seven dimensions, six of them independent
    found = neighbor_directions(flat, epsilon=0)
    assert found.agreement.shape == (6,)
    missing = torch.cat([torch.ones(6), -torch.ones(1)]).double()
    assert (missing @ found.kernel(1, 0.5)).abs().max() < 1e-9
    kernel = found.kernel(power=0, recolor=1)
    assert ((flat - found.mean) @ kernel - (flat - found.mean)).abs().max() < 1e-9


def test_equal_rows_count_once_and_leave_their_words_out():
    rows, words = embeddings(80), character_tfidf(DISTINCT)
    again = [0, 1, 0, *range(2, 80)]
    close = rows[again] + 1e-7 * draw(81, 6, seed=2)
    found = neighbor_directions(close, tfidf=words[[0, 1, 5, *range(2, 80)]])
    assert found.count == 80
    assert (found.kernel(1, 0.5) - neighbor_directions(rows, tfidf=words).kernel(1, 0.5)).abs().max() < 1e-5


def test_blocks_change_nothing(monkeypatch):
    rows, words = embeddings(80), character_tfidf(DISTINCT)
    whole = neighbor_directions(rows, tfidf=words)
    monkeypatch.setattr(functional, "_SCORES", 560)  # seven rows at a time
    assert torch.allclose(neighbor_directions(rows, tfidf=words).kernel(1, 0.5), whole.kernel(1, 0.5))


def test_too_few_different_rows_are_refused():
    rows = embeddings(49)
    for few, count in ((rows, 49), (rows[:1].repeat(80, 1), 0), (rows[:0], 0), (rows[:20].repeat(9, 1), 20)):
        with pytest.raises(ValueError, match=rf"at least 50 different embeddings, got {count}"):
            neighbor_directions(few)
    with pytest.raises(ValueError, match="at least 62 different embeddings for neighbors=30, got 61"):
        neighbor_directions(embeddings(61), neighbors=30)
