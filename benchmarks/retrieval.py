"""What the studies of search share: embeddings that are computed once, and nDCG@10 of rows beside the base model's.

The collections are those of ``retrieval/`` in the data folder. The relevance judgements only score: nothing chooses by
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.records import run_once
from benchmarks.studies import KEPT, Options, chosen
from st_extras.adaptation.search import (
    FEWEST_QUERIES,
    PseudoRelevanceComparison,
    choose_harmless,
    compare_candidates,
)
from st_extras.adaptation.search_transforms import (
    BOTH_SIDES,
    QUERIES_ALONE,
    Embeddings,
    Routes,
    SearchTransform,
    both_sides,
    queries_alone,
)
from st_extras.encoders import load_encoder
from st_extras.evaluation import RetrievalEvaluator
from st_extras.evaluation.reporting import bootstrap_interval
from st_extras.functional import unit_rows
from st_extras.ranking import Floats
from st_extras.samples.encoder import packaged_minilm
from st_extras.text.term_weights import BM25

START = "start"
SHIPPED = {"adapt": BOTH_SIDES, KEPT: QUERIES_ALONE}
"""The transforms that ``adapt_search`` tries, by the name of the row."""
SEED = 42
Scores = np.ndarray


def embeddings(name: str, settings: dict[str, Any], texts: dict[str, list[str]], cache: Path) -> list[Floats]:
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
    found = [np.load(file) for file in files]
    for file, rows, listed in zip(files, found, texts.values(), strict=True):
        if len(rows) != len(listed):
            raise ValueError(f"{file} must hold {len(listed)} embeddings, got {len(rows)}: remove it.")
    return [unit_rows(torch.from_numpy(rows)).numpy() for rows in found]


def chosen_routes(
    name: str, transforms: Sequence[SearchTransform], start: Embeddings, queries: list[str], documents: list[str]
) -> Routes:
    """Return what ``adapt_search`` puts after the encoder.

    Args:
        name: KEPT: after the encoder of queries alone.
        transforms: those that it tries.
        start: (Q, D) queries and (N, D) documents, unit rows.
        queries: texts of the queries; of too few, nothing is chosen.
        documents: texts of the documents.
    """
    routes = both_sides(documents, start, transforms, SEED)
    routes = queries_alone(routes, start) if name == KEPT else routes
    comparison = PseudoRelevanceComparison(BM25(documents), queries, start)
    if len(comparison.compared) < FEWEST_QUERIES:
        return Routes(None)
    candidates = {transform.name: route for transform, route in zip(transforms, routes, strict=True)}
    name = choose_harmless(compare_candidates(comparison.compare, candidates, start)).name
    return Routes(None) if name is None else candidates[name]


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


def over_collections(study: dict[str, Any], options: Options, run_one: Callable[..., dict[str, Any]]) -> None:
    """Append the record of each encoder and collection that has none."""
    collections = chosen(options.sets, study["collections"], "--sets")
    for name in chosen(options.encoders, list(study["encoders"]), "--encoders"):
        for collection in collections:
            make = partial(run_one, name, study["encoders"][name], collection, options.data, options.work / "retrieval")
            record = run_once(study["name"], f"{name}-{collection}", make, root=options.root)
            if record is not None:
                print(f"{name}-{collection}: {record['rows'][START]['ndcg@10']:.2f}", flush=True)
