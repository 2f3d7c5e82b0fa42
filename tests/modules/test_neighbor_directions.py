"""Directions on which neighbours agree: against loops in float64 and scipy's generalised eigenproblem."""

import dataclasses
import random

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.isotonic import isotonic_regression

from st_extras import functional
from st_extras.modules import neighbor_directions as neighbor_directions_file
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


def kernel_of(c, w, rho, recolor):
    """The kernel of directions w with w^T C w = 1 and agreement rho."""
    back = scipy.linalg.fractional_matrix_power(c, (1 + recolor) / 2).real
    return sum(rho[k] * np.outer(w[:, k], back @ w[:, k]) for k in range(len(rho)))


@pytest.mark.parametrize(("neighbors", "epsilon", "worded"), [(10, 0.1, False), (3, 0.0, False), (10, 0.1, True)])
def test_against_the_generalised_eigenproblem(monkeypatch, neighbors, epsilon, worded):
    """M w = rho C w, with rho of texts that w was not computed from; neighbours by embeddings, or by words too."""
    monkeypatch.setattr(neighbor_directions_file, "_NEIGHBORS", neighbors)
    monkeypatch.setattr(neighbor_directions_file, "_EPSILON", epsilon)
    rows, words = embeddings(len(DISTINCT)), character_tfidf(DISTINCT)
    mean, z = centred(rows)
    shared = (words @ words.T).toarray().astype(np.float64) if worded else np.zeros((80, 80))
    spread = ((z @ z.T).std(ddof=1), shared.std(ddof=1)) if worded else (1.0, 1.0)
    n = nearest_means(z, lambda i, j: z[i] @ z[j] / spread[0] + shared[i, j] / spread[1], neighbors)
    c, held_out = covariance_of(z, epsilon), []
    for part in torch.tensor(random.Random(7).sample(range(80), 80)).tensor_split(5):
        others = np.setdiff1d(range(80), part)
        w = scipy.linalg.eigh(both(z[others], n[others]), c)[1][:, ::-1]
        held_out.append(np.diag(w.T @ both(z[part], n[part]) @ w) / len(part))
    rho = np.clip(isotonic_regression(np.mean(held_out, axis=0), increasing=False), 1e-3, 1)
    w = scipy.linalg.eigh(both(z, n), c)[1][:, ::-1]
    found = neighbor_directions(rows, tfidf=words if worded else None, seed=7)
    assert found.count == 80
    assert np.abs(found.mean.numpy() - mean).max() < 1e-12
    assert np.abs(found.agreement.numpy() - rho).max() < 1e-9
    assert len(set(rho.round(9))) > 2
    for recolor in (0.0, 0.5, 1.0):
        assert np.abs(found.kernel(recolor).numpy() - kernel_of(c, w, rho, recolor)).max() < 1e-8


def test_a_direction_without_variance_is_left_out(monkeypatch):
    monkeypatch.setattr(neighbor_directions_file, "_EPSILON", 0.0)
    rows = embeddings()
    flat = torch.cat([rows, rows.sum(dim=1, keepdim=True)], dim=1)  # seven dimensions, six of them independent
    found = neighbor_directions(flat)
    assert found.agreement.shape == (6,)
    missing = torch.cat([torch.ones(6), -torch.ones(1)]).double()
    assert (missing @ found.kernel(0.5)).abs().max() < 1e-9
    kernel = dataclasses.replace(found, agreement=torch.ones(6).double()).kernel(recolor=1)
    assert ((flat - found.mean) @ kernel - (flat - found.mean)).abs().max() < 1e-9


def test_equal_rows_count_once_and_leave_their_words_out():
    rows, words = embeddings(80), character_tfidf(DISTINCT)
    again = [0, 1, 0, *range(2, 80)]
    close = rows[again] + 1e-7 * draw(81, 6, seed=2)
    found = neighbor_directions(close, tfidf=words[[0, 1, 5, *range(2, 80)]])
    assert found.count == 80
    assert (found.kernel(0.5) - neighbor_directions(rows, tfidf=words).kernel(0.5)).abs().max() < 1e-5


def test_blocks_change_nothing(monkeypatch):
    rows, words = embeddings(80), character_tfidf(DISTINCT)
    whole = neighbor_directions(rows, tfidf=words)
    monkeypatch.setattr(functional, "_SCORES", 560)  # seven rows at a time
    assert torch.allclose(neighbor_directions(rows, tfidf=words).kernel(0.5), whole.kernel(0.5))


def test_too_few_different_rows_are_refused():
    rows = embeddings(49)
    for few, count in ((rows, 49), (rows[:1].repeat(80, 1), 0), (rows[:0], 0), (rows[:20].repeat(9, 1), 20)):
        with pytest.raises(ValueError, match=rf"at least 50 different embeddings, got {count}"):
            neighbor_directions(few)
