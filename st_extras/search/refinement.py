"""What an index of documents can do for a search on its own: smoothing, and a dimension against hubs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from st_extras.checks import check_count, check_interval
from st_extras.evaluation.reporting import check_embeddings
from st_extras.modules.neighbor_directions import mean_neighbors

Floats = NDArray[np.float32]
Nearest = Callable[[Floats, int], tuple[Any, Any]]
"""Takes (B, D) rows and k; returns the (B, k) inner products with the nearest documents, and their numbers."""
_BLOCK = 2**24  # cosines held at a time: 64 MiB


def refine_documents(
    embeddings: Any,
    *,
    smoothing: float = 0.0,
    hubness: float = 0.25,
    neighbors: int = 10,
    nearest: Nearest | None = None,
) -> Floats:
    """Return documents for an index that is searched by inner product: with one dimension more, against hubs.

    A hub is a document that is near to many others, and found for many queries that it does not answer. Equation, for
    a document d of length 1 and its ``neighbors`` nearest other documents n: s = d + smoothing mean(n), divided by its
    length; the row is [s, -hubness mean cos(s, its nearest s')]. Queries get a 1 there: :func:`refine_queries`.
    Where queries are many, the mean over queries in place of documents is known as CSLS.

    Args:
        embeddings: (N, D), of any length; N > ``neighbors``.
        smoothing: share of the neighbours' mean, 0 to 1.
        hubness: weight of the dimension, 0 to 10.
        neighbors: number of nearest documents, at least 1.
        nearest: finds them, such as ``index.search`` of faiss over the normalized documents by inner product, if
            ``smoothing`` is 0.
            None: exact, in blocks; a million rows of 384 dimensions take hours so, and no more memory than the result.

    Returns:
        (N, D + 1) float32.

    Raises:
        ValueError: if a setting is not allowed, the embeddings are too few, one is zero or not finite, or ``nearest``
            returns other numbers than cosines: distances, or what an approximate index gives for too few documents.

    Source: Conneau et al.: "Word Translation Without Parallel Data", ICLR 2018, equation 3.
    """
    smoothing = check_interval("smoothing", smoothing, 0, 1)
    hubness = check_interval("hubness", hubness, 0, 10)
    rows = _unit(embeddings, at_least=2)
    neighbors = check_count("neighbors", neighbors, 1, len(rows) - 1)
    if nearest is not None and smoothing:
        raise ValueError("nearest must be None with smoothing: the smoothed documents have other neighbours.")
    if smoothing:
        rows = _unit(rows + smoothing * mean_neighbors(torch.from_numpy(rows), neighbors).numpy())
    refined = np.empty((len(rows), rows.shape[1] + 1), dtype=np.float32)
    refined[:, :-1] = rows
    refined[:, -1] = -hubness * _mean_cosine_with_nearest(rows, neighbors, nearest)
    return refined


def refine_queries(embeddings: Any) -> Floats:
    """Return (Q, D + 1) queries of length 1 in D dimensions, with a 1 for what :func:`refine_documents` added.

    Args:
        embeddings: (Q, D), of any length.

    Raises:
        ValueError: if one is zero or not finite.
    """
    rows = _unit(embeddings)
    return np.concatenate([rows, np.ones((len(rows), 1), dtype=np.float32)], axis=1)


def nearest_rows(nearest: Nearest, queries: Floats, count: int, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and numbers (B, count) that an index finds for (B, D) queries among ``total`` rows; -1: none.

    Raises:
        ValueError: if the numbers have another shape, or are not those of the rows.
    """
    scores, numbers = (np.asarray(found) for found in nearest(queries, count))
    shape = (len(queries), count)
    if numbers.shape != shape or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"nearest must return scores and whole numbers of the shape {shape}, got {numbers!r:.80}.")
    if numbers.min() < -1 or numbers.max() >= total:
        found = f"of the {total} documents or -1, got {numbers.min()} to {numbers.max()}"
        raise ValueError(f"nearest must return numbers {found}: fill the index with these embeddings, in their order.")
    return scores, numbers


def _unit(embeddings: Any, at_least: int = 1) -> Floats:
    unit: Floats = check_embeddings("embeddings", embeddings, at_least).detach().cpu().float().numpy()
    return unit


def _mean_cosine_with_nearest(rows: Floats, neighbors: int, nearest: Nearest | None) -> Floats:
    """Return the mean cosine (N,) of each row with its nearest other rows."""
    size = max(1, _BLOCK // len(rows))
    means = np.empty(len(rows), dtype=np.float32)
    for first in range(0, len(rows), size):
        block = rows[first : first + size]
        own = np.arange(first, first + len(block))[:, None]
        if nearest is None:
            cosines = block @ rows.T
            np.put_along_axis(cosines, own, -np.inf, axis=1)
            cosines = np.partition(cosines, -neighbors, axis=1)[:, -neighbors:]
        else:
            cosines, numbers = nearest_rows(nearest, block, neighbors + 1, len(rows))
            others = np.argsort(numbers == own, axis=1, kind="stable")[:, :neighbors]  # itself last, or the farthest
            # itself: near 1, and rounding
            wrong = cosines[(numbers == own) & (cosines < 0.5) | ~(np.abs(cosines) < 1.01) | (numbers < 0)]
            if len(wrong):
                found = f"cosines of {neighbors + 1} documents, got {wrong[0]:g}"
                remedy = "let the index compare by inner product, and look at more of its cells"
                raise ValueError(f"nearest must return {found}: {remedy}.")
            cosines = np.take_along_axis(cosines, others, axis=1)
        means[first : first + size] = cosines.mean(axis=1)
    return means
