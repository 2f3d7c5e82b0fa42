"""Hybrid search: an encoder and BM25, fused in the ways that search engines have and by one weight, by nDCG@10.

For each encoder and collection it scores the encoder, ``adapt_search`` of it and the same with ``keep_index``, each
alone, fused with BM25 by ranks, and plus BM25 with the weight of each share. The weight comes from the queries, or from
sentences of the documents. The relevance judgements only score: nothing here chooses by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.retrieval import SHIPPED, START, Scores, chosen_routes, embeddings, over_collections, scored
from benchmarks.studies import Options
from st_extras.adaptation.search_transforms import Routes
from st_extras.evaluation import RetrievalEvaluator, load_retrieval
from st_extras.evaluation.retrieval import fuse_ranks
from st_extras.ranking import queries_from_documents
from st_extras.search import bm25_weight
from st_extras.search.hybrid import FEWEST_CANDIDATES
from st_extras.text.term_weights import BM25, BM25_SHARE

FUSED = 100  # documents of each side, as search engines fetch them
FROM_DOCUMENTS, RERANKED = ", weight from documents", ", encoder's first 100"


def fuse_distributions(dense: np.ndarray, bm25: np.ndarray) -> np.ndarray:
    """Return the sum of each side's first scores, scaled so that its mean - 3 deviations is 0 and + 3 is 1 (DBSF)."""
    return fused(dense, bm25, lambda first: (first - first.mean() + 3 * first.std(ddof=1)) / (6 * first.std(ddof=1)))


def fuse_ranges(dense: np.ndarray, bm25: np.ndarray) -> np.ndarray:
    """Return the mean of each side's first scores, scaled to 0 to 1 (min-max)."""
    return fused(dense, bm25, lambda first: (first - first.min()) / np.ptp(first)) / 2


def fused(dense: np.ndarray, bm25: np.ndarray, scale: Any) -> np.ndarray:
    """Return the (Q, N) sums of the first scores of both sides; one that is not among a side's first gets 0 for it."""
    sums = np.zeros(dense.shape)
    for side, fewest in ((dense, -np.inf), (bm25, 0)):
        for total, row in zip(sums, side, strict=True):
            first = np.argsort(-row, kind="stable")[:FUSED]
            first = first[row[first] > fewest]
            equal = len(first) < 2 or np.ptp(row[first]) == 0
            total[first] += 0.5 if equal else scale(row[first].astype(np.float64))
    return sums


def weighted(dense: np.ndarray, bm25: np.ndarray, weight: float, *, union: bool = True) -> np.ndarray:
    """Return the (Q, N) scores that HybridSearch ranks: of each side's first documents; the others come last.

    Args:
        dense: (Q, N) similarities.
        bm25: (Q, N) scores of BM25.
        weight: of BM25.
        union: False: of the encoder's first documents alone, as engines do that score no others by the encoder.
    """
    found = np.zeros(dense.shape, dtype=bool)
    for place, (row, by_words) in enumerate(zip(dense, bm25, strict=True)):
        found[place, np.argsort(-row, kind="stable")[:FEWEST_CANDIDATES]] = True
        first = np.argsort(-by_words, kind="stable")[: FEWEST_CANDIDATES * union]
        found[place, first[by_words[first] > 0]] = True
    return np.where(found, dense + weight * bm25, -np.inf)


def rows_of(
    name: str, dense: np.ndarray, bm25: np.ndarray, made: tuple[np.ndarray, np.ndarray], shares: Sequence[float]
) -> Iterator[tuple[str, np.ndarray, float]]:
    """Yield the rows of an encoder with their (Q, N) scores and the weight of BM25, 0 where there is none.

    Args:
        name: of the row of the encoder alone.
        dense: (Q, N) similarities.
        bm25: (Q, N) scores of BM25.
        made: (M, N) scores of both for sentences of the documents.
        shares: of BM25.
    """
    yield name, dense, 0.0
    for called, fuse in (("RRF", fuse_ranks), ("DBSF", fuse_distributions), ("min-max", fuse_ranges)):
        yield f"{name}, {called}", fuse(dense, bm25), 0.0
    for share in shares:
        weight = bm25_weight(dense, bm25, share)
        yield f"{name} + BM25, {share}", weighted(dense, bm25, weight), weight
    weight = bm25_weight(dense, bm25)
    yield f"{name} + BM25, {BM25_SHARE}{RERANKED}", weighted(dense, bm25, weight, union=False), weight
    weight = bm25_weight(*made)
    yield f"{name} + BM25, {BM25_SHARE}{FROM_DOCUMENTS}", weighted(dense, bm25, weight), weight


def score(
    name: str, settings: dict[str, Any], collection: str, data: Path, cache: Path, *, shares: Sequence[float]
) -> dict[str, Any]:
    """Return the record of an encoder and a collection."""
    task = load_retrieval(data / "retrieval" / collection)
    evaluator = RetrievalEvaluator(task)
    queries, documents = [task.queries[key] for key in evaluator.queries_ids], list(task.documents.values())
    sentences = queries_from_documents(documents)
    places = {f"{collection}.q": queries, f"{collection}.d": documents, f"{collection}.sentences": sentences}
    of_queries, of_documents, of_sentences = embeddings(name, settings, places, cache)
    index = BM25(documents)
    bm25, bm25_of_sentences = index.scores(queries), index.scores(sentences)
    weights: dict[str, float] = {}

    def rows() -> Iterator[tuple[str, Scores]]:
        start = of_queries, of_documents
        routes = {START: Routes(None)}
        routes |= {
            one: chosen_routes(one, transforms, start, queries, documents) for one, transforms in SHIPPED.items()
        }
        for called, route in routes.items():
            moved_queries, moved = route.after(start)
            moved_sentences, _ = route.after((of_sentences, of_documents[:1]))
            made = moved_sentences @ moved.T, bm25_of_sentences
            for row, scores, weight in rows_of(called, moved_queries @ moved.T, bm25, made, shares):
                weights[row] = weight
                yield row, scores
        yield "BM25", bm25

    counts = {"queries": len(queries), "documents": len(documents)}
    found = scored(rows(), evaluator)
    weights = {row: round(weight, 6) for row, weight in weights.items() if weight}
    return {
        "encoder": name,
        "settings": settings,
        "collection": collection,
        **counts,
        "rows": found,
        "weights": weights,
    }


def run(study: dict[str, Any], options: Options) -> None:
    """Score every row of each encoder and collection."""
    over_collections(study, options, partial(score, shares=study["shares"]))
