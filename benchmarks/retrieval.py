"""Search: what documents and unlabelled queries alone are worth to an encoder, beside BM25, by nDCG@10.

For each encoder and collection it embeds the documents and queries of ``retrieval/`` in the data folder once, into the
work folder, and scores every row: transforms on both sides, transforms on the queries alone (the stored embeddings of
documents stay), and sums with BM25. The relevance judgements only score: nothing here chooses by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.domain_rows import STEPS, Affine
from benchmarks.names import TRANSFORMS
from benchmarks.records import run_once
from benchmarks.studies import Options, chosen
from st_extras.adaptation import CANDIDATES, LinearTransform
from st_extras.encoders import load_encoder
from st_extras.evaluation import RetrievalEvaluator, load_retrieval
from st_extras.evaluation.reporting import bootstrap_interval
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples.encoder import packaged_minilm
from st_extras.search import refine_documents, refine_queries
from st_extras.text.term_weights import BM25, character_tfidf

START = "start"
HALF_WHITE = LinearTransform("half white", recolor=0.0, strength=0.5, kept_mean=0.0)
OF_STATISTICS = ("whitened softly 0.1", "whitened softly 1", "all-but-the-top 3")
"""Steps of ``benchmarks.domain_rows`` that need the documents' mean and scatter alone."""
SMOOTHED, NEIGHBORS = 0.25, 5  # documents get so much of the mean of so many neighbours
HUB, NEAREST = 0.25, 10  # and lose so much of their mean cosine with so many nearest documents
RRF = 60  # of reciprocal rank fusion
Scores = np.ndarray | Tensor


def embeddings(name: str, settings: dict[str, Any], texts: dict[str, list[str]], cache: Path) -> list[Tensor]:
    """Return unit rows of queries and of documents, from the cache if they are there.

    Args:
        name: of the encoder.
        settings: of ``load_encoder``, with a path unless it is the packaged encoder.
        texts: by their places in the cache.
        cache: folder for embeddings.
    """
    files = [cache / name / f"{place}.npy" for place in texts]
    missing = [(file, listed) for file, listed in zip(files, texts.values(), strict=True) if not file.exists()]
    if missing:
        model = load_encoder(**({"path": packaged_minilm()} | settings))
        encode = partial(model.encode, normalize_embeddings=True, show_progress_bar=False)
        for file, listed in missing:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, encode(listed))
    found = [torch.from_numpy(np.load(file)).float() for file in files]
    for file, rows, listed in zip(files, found, texts.values(), strict=True):
        if len(rows) != len(listed):
            raise ValueError(f"{file} must hold {len(listed)} embeddings, got {len(rows)}: remove it.")
    return [normalize(rows) for rows in found]


def cosines(queries: Tensor, documents: Tensor) -> Tensor:
    """Return the (Q, N) cosines."""
    return normalize(queries) @ normalize(documents).T


def smooth(documents: Tensor) -> Tensor:
    """Return unit documents with a part of their neighbours' mean."""
    return torch.from_numpy(refine_documents(documents, smoothing=SMOOTHED, hubness=0, neighbors=NEIGHBORS)[:, :-1])


def without_hubs(queries: Tensor, documents: Tensor) -> np.ndarray:
    """Return the (Q, N) cosines, less for documents that are near to many."""
    return refine_queries(queries) @ refine_documents(documents, hubness=HUB, neighbors=NEAREST).T


def add_lexical(dense: Any, lexical: Any, weight: float = 0.3) -> np.ndarray:
    """Return the (Q, N) similarities of an encoder plus ``weight`` times those of BM25, both as z-scores per query."""

    def standard(scores: Any) -> np.ndarray:
        scores = np.asarray(scores)
        differ = np.ptp(scores, axis=1, keepdims=True) > 0
        deviation = np.where(differ, np.std(scores, axis=1, keepdims=True), np.inf)
        scaled: np.ndarray = (scores - np.mean(scores, axis=1, keepdims=True)) / deviation
        return scaled

    return standard(dense) + weight * standard(lexical)


def fuse(dense: Tensor, lexical: np.ndarray) -> np.ndarray:
    """Return the sum of 1 / (60 + rank) of both, (Q, N): reciprocal rank fusion."""
    ranks = [(-np.asarray(scores)).argsort(axis=1, kind="stable").argsort(axis=1) + 1 for scores in (dense, lexical)]
    return np.add(*(1 / (RRF + rank) for rank in ranks))


def similarities(
    queries: Tensor, documents: Tensor, texts: list[str], lexical: np.ndarray
) -> Iterator[tuple[str, Scores]]:
    """Yield each row with its (Q, N) similarities.

    Args:
        queries: (Q, D) unit rows.
        documents: (N, D) unit rows.
        texts: of the documents.
        lexical: (Q, N) of BM25.
    """
    of_queries, of_documents = queries.mean(dim=0), documents.mean(dim=0)
    start = queries @ documents.T
    yield START, start
    yield "BM25", lexical
    yield "start + 0.3 BM25", add_lexical(start, lexical)
    yield "start and BM25, fused by ranks", fuse(start, lexical)
    yield "one mean", cosines(queries - of_documents, documents - of_documents)
    yield "own means", cosines(queries - of_queries, documents - of_documents)
    both = without_hubs(queries - of_queries, smooth(documents - of_documents))
    yield "own means, neighbours and hubness", both
    yield "own means, neighbours and hubness + 0.3 BM25", add_lexical(both, lexical)

    directions = neighbor_directions(documents.double(), tfidf=character_tfidf(texts))
    steps: dict[str, Affine] = {
        TRANSFORMS.get(one.name, one.name): one.affine(directions) for one in (*CANDIDATES, HALF_WHITE)
    }
    steps |= {name: STEPS[name](documents.double(), texts, 0) for name in OF_STATISTICS}
    for name, (matrix, offset) in steps.items():
        matrix, offset = matrix.float(), offset.float()
        centred = [(queries - of_queries) @ matrix, (documents - of_documents) @ matrix]
        yield name, cosines(queries @ matrix + offset, documents @ matrix + offset)
        yield f"{name}, own means", cosines(*centred)
        if name == HALF_WHITE.name:
            hubs = without_hubs(*centred)
            yield f"{name}, own means, hubness", hubs
            yield f"{name}, own means + 0.3 BM25", add_lexical(cosines(*centred), lexical)
            yield f"{name}, own means, hubness + 0.3 BM25", add_lexical(hubs, lexical)

    for share, called in ((0.25, "a quarter of the mean"), (0.5, "half the mean"), (1.0, "the mean")):
        yield f"queries alone: minus {called}", cosines(queries - share * of_queries, documents)
    slight = TRANSFORMS[CANDIDATES[0].name]
    matrix, offset = (part.float() for part in steps[slight])
    yield f"queries alone: {slight}", cosines(queries @ matrix + offset, documents)
    minus_half = cosines(queries - 0.5 * of_queries, documents)
    yield "queries alone: minus half the mean + 0.3 BM25", add_lexical(minus_half, lexical)


def scored(rows: Iterable[tuple[str, Scores]], evaluator: RetrievalEvaluator) -> dict[str, dict[str, float]]:
    """Return the metrics of each row, times 100, and its difference to the first one with a 95 % interval.

    Args:
        rows: names with (Q, N) similarities, the start first.
        evaluator: of the judgements.
    """
    found: dict[str, dict[str, float]] = {}
    start = None
    for row, scores in rows:
        metrics = evaluator.compute_metrics(evaluator.rank(scores))
        ndcg = evaluator.ndcg_of_queries[10]
        start = ndcg if start is None else start
        low, high = bootstrap_interval(ndcg - start)
        values = {"ndcg@10": ndcg.mean(), "difference": (ndcg - start).mean(), "low": low, "high": high}
        values |= {"recall@100": metrics["recall@k"][100], "mrr@10": metrics["mrr@k"][10]}
        found[row] = {key: round(100 * float(value), 3) for key, value in values.items()}
    return found


def score(name: str, settings: dict[str, Any], collection: str, data: Path, cache: Path) -> dict[str, Any]:
    """Return the record of an encoder and a collection."""
    task = load_retrieval(data / "retrieval" / collection)
    evaluator = RetrievalEvaluator(task)
    queries, documents = [task.queries[key] for key in evaluator.queries_ids], list(task.documents.values())
    places = {f"{collection}.q": queries, f"{collection}.d": documents}
    lexical = BM25(documents).scores(queries)
    of_queries, of_documents = embeddings(name, settings, places, cache)
    rows = scored(similarities(of_queries, of_documents, documents, lexical), evaluator)
    counts = {"queries": len(queries), "documents": len(documents)}
    return {"encoder": name, "settings": settings, "collection": collection, **counts, "rows": rows}


def over_collections(study: dict[str, Any], options: Options, run_one: Callable[..., dict[str, Any]]) -> None:
    """Append the record of each encoder and collection that has none."""
    collections = chosen(options.sets, study["collections"], "--sets")
    for name in chosen(options.encoders, list(study["encoders"]), "--encoders"):
        for collection in collections:
            make = partial(run_one, name, study["encoders"][name], collection, options.data, options.work / "retrieval")
            record = run_once(study["name"], f"{name}-{collection}", make, root=options.root)
            if record is not None:
                print(f"{name}-{collection}: {record['rows'][START]['ndcg@10']:.2f}", flush=True)


def run(study: dict[str, Any], options: Options) -> None:
    """Score every row of each encoder and collection."""
    over_collections(study, options, score)
