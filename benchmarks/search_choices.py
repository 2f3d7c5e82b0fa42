"""What ``adapt_search`` makes of a search, and the label-free score of other strengths, beside nDCG@10.

``adapt_search`` chooses with the
collection's queries, or with queries that it makes of the documents, and sees no relevance judgements. Then every
transform is tried at several strengths; for each the record has its label-free gain with the standard error, and the
true one. From them ``benchmarks/tables/search.py`` computes what another choice would have given, and how a choice made
on six collections does on the seventh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.names import KEPT
from benchmarks.retrieval import START, Scores, embeddings, over_collections, scored
from benchmarks.studies import Options
from st_extras.adaptation.choice import choose_harmless
from st_extras.adaptation.pseudo_relevance import (
    FEWEST_QUERIES,
    FROM_DOCUMENTS,
    PseudoRelevanceComparison,
    sample_queries,
)
from st_extras.adaptation.search import pseudo_relevance_results
from st_extras.adaptation.search_transforms import (
    BOTH_SIDES,
    QUERIES_ALONE,
    Embeddings,
    Routes,
    both_sides,
    queries_alone,
)
from st_extras.evaluation import RetrievalEvaluator, load_retrieval
from st_extras.search import refine_documents, refine_queries

STRENGTHS = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0)
SHIPPED = {"adapt": BOTH_SIDES, KEPT: QUERIES_ALONE}
STEPS = [replace(step, strength=share) for share in STRENGTHS for step in BOTH_SIDES]
SEED = 42


def of_strength(routes: list[Routes], whitened: float) -> list[Routes]:
    """Return those of ``STEPS`` with this strength."""
    return [one for step, one in zip(STEPS, routes, strict=True) if step.strength == whitened]


def adapted(
    start: Embeddings,
    queries: list[str],
    documents: list[str],
    both: list[Routes],
    made: tuple[Tensor, list[str]] | None,
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield what ``adapt`` makes of queries and documents.

    Args:
        start: (Q, D) queries and (N, D) documents, unit rows.
        queries: texts of the queries.
        documents: texts of the documents.
        both: routes of ``STEPS`` on both sides.
        made: (Q', D) queries made from the documents, and their texts; None: too few could be made, as it is.
    """
    for name, steps in SHIPPED.items():
        for said, given in (("", (start[0], queries)), (", queries made from documents", made)):
            after = start
            if given is not None:
                those = slice(-1 if said else 0, None)
                routes = of_strength(both, steps[0].strength)[those]
                of_given = (given[0], start[1])
                routes = queries_alone(routes, of_given) if name == KEPT else routes
                comparison = PseudoRelevanceComparison(documents, given[1], of_given)
                index = None
                if len(comparison.compared) >= FEWEST_QUERIES:
                    index = choose_harmless(pseudo_relevance_results(comparison, steps[those], routes, of_given)).index
                after = start if index is None else routes[index].after(start)
            yield name + said, *after


def similarities(start: Embeddings, found: Iterator[tuple[str, Tensor, Tensor]]) -> Iterator[tuple[str, Scores]]:
    """Yield each row with its (Q, N) similarities."""
    yield START, start[0] @ start[1].T
    for name, queries, documents in found:
        yield name, queries @ documents.T
        if name == "adapt":
            yield "adapt, refine_documents", refine_queries(queries) @ refine_documents(documents).T


def trials(
    start: Embeddings, queries: list[str], documents: list[str], both: list[Routes], evaluator: RetrievalEvaluator
) -> dict[str, list[dict[str, float]]]:
    """Return for each of ``STEPS`` its label-free gain and its true one."""
    comparison, found = PseudoRelevanceComparison(documents, queries, start), {}
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
    try:
        from_documents = sample_queries(FROM_DOCUMENTS, documents, SEED)[0]
    except ValueError:  # too few documents have two sentences: adapt asks for queries
        from_documents = []
    places = {f"{collection}.q": queries, f"{collection}.d": documents}
    places |= {f"{collection}.made": from_documents} if from_documents else {}
    of_queries, of_documents, *of_made = embeddings(name, settings, places, cache)
    start = of_queries, of_documents
    made = (of_made[0], from_documents) if of_made else None
    both = both_sides(documents, start, STEPS, SEED)
    found = adapted(start, queries, documents, both, made)
    rows = scored(similarities(start, found), evaluator)
    counts = {"queries": len(queries), "documents": len(documents), "made": len(from_documents)}
    said = {"encoder": name, "settings": settings, "collection": collection, **counts}
    return said | {"rows": rows, "trials": trials(start, queries, documents, both, evaluator)}


def run(study: dict[str, Any], options: Options) -> None:
    """Score what ``adapt`` chooses for each encoder and collection."""
    over_collections(study, options, score)
