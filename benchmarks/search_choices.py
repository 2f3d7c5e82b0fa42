"""What ``adapt_search`` makes of a search, and the label-free score of other strengths, beside nDCG@10.

``adapt_search`` chooses with the collection's queries, or with queries that it makes of the documents, and sees no
relevance judgements. Then every transform is tried at several strengths; for each the record has its label-free gain
with the standard error, and the true one. From them ``benchmarks/tables/search.py`` computes what another choice would
have given, and how a choice made on six collections does on the seventh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.retrieval import (
    SEED,
    SHIPPED,
    START,
    Scores,
    chosen_routes,
    embeddings,
    over_collections,
    scored,
)
from benchmarks.studies import KEPT, Options
from st_extras.adaptation.pseudo_relevance import (
    PseudoRelevanceComparison,
    search_queries,
    why_too_few,
)
from st_extras.adaptation.search_transforms import BOTH_SIDES, Embeddings, Routes, both_sides, queries_alone
from st_extras.evaluation import RetrievalEvaluator, load_retrieval
from st_extras.ranking import Floats
from st_extras.text.term_weights import BM25

STRENGTHS = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0)
STEPS = [replace(step, strength=share) for share in STRENGTHS for step in BOTH_SIDES]


def similarities(
    start: Embeddings, queries: list[str], documents: list[str], made: tuple[Floats, list[str]] | None
) -> Iterator[tuple[str, Scores]]:
    """Yield each row with its (Q, N) similarities.

    Args:
        start: (Q, D) queries and (N, D) documents, unit rows.
        queries: texts of the queries.
        documents: texts of the documents.
        made: (Q', D) queries made from the documents, and their texts; None: too few could be made.
    """
    yield START, start[0] @ start[1].T
    for name, transforms in SHIPPED.items():
        moved = chosen_routes(name, transforms, start, queries, documents).after(start)
        yield name, moved[0] @ moved[1].T
        route = Routes(None)
        if made is not None:  # which say nothing about the mean of queries
            route = chosen_routes(name, transforms[-1:], (made[0], start[1]), made[1], documents)
        moved = route.after(start)
        yield f"{name}, queries made from documents", moved[0] @ moved[1].T


def trials(
    start: Embeddings, queries: list[str], documents: list[str], evaluator: RetrievalEvaluator
) -> dict[str, list[dict[str, float]]]:
    """Return for each of ``STEPS`` its label-free gain and its true one."""
    comparison, found = PseudoRelevanceComparison(BM25(documents), queries, start), {}
    both = both_sides(documents, start, STEPS, SEED)
    for name, routes in (("adapt", both), (KEPT, queries_alone(both, start))):
        after = [one.after(start) for one in routes]
        rows = ((str(number), moved[0] @ moved[1].T) for number, moved in enumerate([start, *after]))
        true = list(scored(rows, evaluator).values())[1:]
        found[name] = []
        for step, moved, row in zip(STEPS, after, true, strict=True):
            gain, error = comparison.compare(*moved)
            row_of = {"judge": round(gain, 6), "error": round(error, 6), "difference": row["difference"]}
            found[name].append({"whitened": step.strength, "own_mean": step.own_mean} | row_of)
    return found


def score(name: str, settings: dict[str, Any], collection: str, data: Path, cache: Path) -> dict[str, Any]:
    """Return the record of an encoder and a collection."""
    task = load_retrieval(data / "retrieval" / collection)
    evaluator = RetrievalEvaluator(task)
    queries, documents = [task.queries[key] for key in evaluator.queries_ids], list(task.documents.values())
    from_documents = search_queries(None, documents)
    if why_too_few(documents, from_documents, from_documents=True):
        from_documents = []
    places = {f"{collection}.q": queries, f"{collection}.d": documents}
    places |= {f"{collection}.made": from_documents} if from_documents else {}
    of_queries, of_documents, *of_made = embeddings(name, settings, places, cache)
    start = of_queries, of_documents
    made = (of_made[0], from_documents) if of_made else None
    rows = scored(similarities(start, queries, documents, made), evaluator)
    counts = {"queries": len(queries), "documents": len(documents), "made": len(from_documents)}
    said = {"encoder": name, "settings": settings, "collection": collection, **counts}
    return said | {"rows": rows, "trials": trials(start, queries, documents, evaluator)}


def run(study: dict[str, Any], options: Options) -> None:
    """Score what ``adapt`` chooses for each encoder and collection."""
    over_collections(study, options, score)
