"""``adapt_search``: refine an encoder for searching a collection, or leave it unchanged.

Sample documents and queries, encode them, propose transforms, compare the rankings, choose one, save it.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Sequence

import torch
from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor

from st_extras.adaptation.choice import choose, choose_harmless
from st_extras.adaptation.corpus import summarize, with_embedding
from st_extras.adaptation.neighbors import write_searches
from st_extras.adaptation.pseudo_relevance import (
    FEWEST_DOCUMENTS,
    FEWEST_QUERIES,
    FROM_DOCUMENTS,
    JudgedQueries,
    PseudoRelevanceComparison,
    search_queries,
    too_few,
)
from st_extras.adaptation.report import Adaptation, CandidateResult, SearchDetails
from st_extras.adaptation.run import AdaptationOptions, AdaptationRun
from st_extras.adaptation.search_transforms import (
    BOTH_SIDES,
    QUERIES_ALONE,
    ROUTES,
    Embeddings,
    Routes,
    SearchTransform,
    add_card_line,
    both_sides,
    queries_alone,
    routed,
)
from st_extras.checks import check_bool, check_instance
from st_extras.encoders.embedding_store import PART
from st_extras.evaluation import RetrievalTask
from st_extras.functional import unit_rows
from st_extras.ranking import check_product, comparable, first_documents, hybrid_weight
from st_extras.text.term_weights import BM25, require_bm25s

_PSEUDO_RELEVANT = "average precision of BM25's first documents, 0 to 1"
_JUDGED = "nDCG@10 on dev, x 100"
_SHOWN = 3  # documents of a query in searches.md


def adapt_search(
    model: SentenceTransformer,
    documents: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    queries: Sequence[str] | Dataset | IterableDataset | str = FROM_DOCUMENTS,
    dev: RetrievalTask | None = None,
    keep_index: bool = False,
    options: AdaptationOptions | None = None,
) -> Adaptation[SearchDetails]:
    """Refine an encoder for searching a collection, without relevance judgements, or leave it unchanged; save it.

    Candidates subtract means from queries and documents, and whiten both halfway: see
    :mod:`st_extras.adaptation.search_transforms`. Without judgements, the first of them is chosen that does no harm:
    that finds BM25's first documents as early as the base model, within one standard error. BM25 shows harm, but not
    which of the harmless ones is best. With ``dev``, the best one is chosen that is better than the base model.

    The saved model has a route for queries and one for documents: use ``encode_query`` and ``encode_document``. Its
    embeddings have length 1, so that dot product and cosine are the same. The result also has the weight with which
    BM25 is added in a hybrid search: ``HybridSearch(found.model, documents, bm25_weight=found.details.bm25_weight)``.

    Args:
        model: the encoder. It is not changed. Queries and documents are encoded with its prompts and routes for these.
        documents: at least 100 different texts, better some thousand; with fewer, the encoder is left unchanged. A
            stream is read once.
        output: a new or empty folder, for the model, ``adaptation.json`` (the report) and ``searches.md`` (queries with
            their first documents before and after).
        queries: what users look for, without judgements, at least 20 different ones; "documents" makes some from the
            documents.
        dev: judged queries and their documents, to choose by in place of BM25, by nDCG@10.
        keep_index: change the route of queries alone, so that stored document embeddings stay valid. Not for an encoder
            that compares by dot product, unless its document embeddings have length 1.
        options: how the run goes: see :class:`AdaptationOptions`. Its deadline and its ``limit`` hold for documents; of
            the queries, at most 2,000 are used, and all of these are encoded. None: the defaults.

    Returns:
        What was chosen, its model, and all candidates with their gains; ``details`` is a :class:`SearchDetails`.

    Raises:
        ValueError: if a setting is not allowed, ``output`` may not be used, most of the queries are documents, the
            encoder has routes of other names, has a ``truncate_dim`` or compares by distances, ``keep_index`` cannot
            be used with it, an embedding is not finite, or there is no interrupted run to resume.
        ImportError: if bm25s is not installed.

    Example:
        >>> import tempfile
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.adaptation import AdaptationOptions, adapt_search
        >>> documents, queries = sample_sentences()[:300], [text[:30] for text in sample_sentences()[:40]]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     options = AdaptationOptions(show_progress_bar=False)
        ...     found = adapt_search(raw_encoder(), documents, folder, queries=queries, options=options)
        >>> found.details.queries
        40
    """
    check_searchable(model)
    check_instance("dev", dev, RetrievalTask, or_none=True)
    check_bool("keep_index", keep_index)
    require_bm25s()
    with AdaptationRun(model, output, options) as run:
        sample = run.sample(documents, "documents")
        sampled, from_documents = search_queries(queries, sample.texts)
        if reason := too_few(sample.texts, sampled, from_documents):
            return run.save_unchanged(reason, summarize(sample, []), SearchDetails(len(sampled), from_documents))
        if keep_index and model.similarity_fn_name == "dot":
            _, first = with_embedding(sample.texts, run.encode(sample.texts[:PART], route="document"))
            if not torch.allclose(first.norm(dim=1), torch.ones(1).double(), atol=0.01):  # bfloat16 rounds
                raise ValueError(
                    "keep_index must be False for an encoder that compares by dot product and gives documents of other "
                    "lengths than 1."
                )
        encoded = encode_both(run, sampled, sample.texts, deadline=run.encoding_deadline)
        used_queries, of_queries = with_embedding(sampled, encoded[0])
        used_documents, of_documents = with_embedding(sample.texts, encoded[1])
        details, summary = SearchDetails(len(used_queries), from_documents), summarize(sample, used_documents)
        if len(used_documents) < FEWEST_DOCUMENTS or len(used_queries) < FEWEST_QUERIES:
            reason = f"{FEWEST_DOCUMENTS} documents and {FEWEST_QUERIES} queries are needed, and "
            if len(encoded[1]) < FEWEST_DOCUMENTS:
                reason += f"{len(encoded[1])} documents were encoded in the time: give more minutes."
            else:
                reason += f"{len(used_documents)} and {len(used_queries)} have an embedding other than 0."
            return run.save_unchanged(reason, summary, details)
        index = BM25(used_documents)
        base = comparable(model, of_queries), comparable(model, of_documents)  # what the base model compares
        unit = of_unit_length(of_queries, of_documents)  # what transforms are applied to

        def unchanged(
            reason: str, measure: str = "", results: list[CandidateResult] | None = None
        ) -> Adaptation[SearchDetails]:
            """Save the base model, and report the weight of BM25 beside it."""
            found = dataclasses.replace(details, bm25_weight=hybrid_weight(index, used_queries, *base))
            return run.save_unchanged(reason, summary, found, measure, results)

        transforms = QUERIES_ALONE if keep_index else BOTH_SIDES
        if from_documents:
            transforms = transforms[-1:]  # the one that does not use the mean of the queries: users' have another
        try:
            routes = both_sides(used_documents, unit, transforms, run.options.seed)
        except ValueError as error:  # too few embeddings that differ
            return unchanged(str(error))
        if keep_index:
            routes = queries_alone(routes, unit)  # carries what the documents got over to the queries

        if dev is None:
            gain_measure = _PSEUDO_RELEVANT
            comparison = PseudoRelevanceComparison(index, used_queries, base)
            details = dataclasses.replace(details, compared=len(comparison.compared))
            if len(comparison.compared) < FEWEST_QUERIES:
                return unchanged(
                    f"{len(comparison.compared)} queries share a word with a document, {FEWEST_QUERIES} are needed."
                )
            results = pseudo_relevance_results(comparison, transforms, routes, unit)
            choice = choose_harmless(results)
        else:
            gain_measure = _JUDGED
            judged = [text for key, text in dev.queries.items() if dev.relevant.get(key)]
            of_dev = encode_both(run, judged, list(dev.documents.values()))
            judgements = JudgedQueries(dev, (comparable(model, of_dev[0]), comparable(model, of_dev[1])))
            details = dataclasses.replace(details, dev=judgements.score)
            results = judged_results(judgements, transforms, routes, of_unit_length(*of_dev))
            choice = choose(results)

        if choice.index is None:
            return unchanged(choice.reason, gain_measure, results)
        chosen, name = routes[choice.index], transforms[choice.index].name
        refined = routed(model, chosen)
        moved = chosen.after(unit)
        weight = hybrid_weight(index, used_queries, *moved)
        add_card_line(refined, name, len(used_documents), len(used_queries), from_documents, weight)
        run.save(refined)
        before, after = (torch.from_numpy(first_documents(*side, _SHOWN)) for side in (base, moved))
        changed = write_searches(run.folder.model, used_queries, used_documents, before, after, run.options.seed)
        details = dataclasses.replace(details, changed=changed, bm25_weight=weight)
        return run.report(refined, name, choice.reason, gain_measure, results, summary, details)


def check_searchable(model: SentenceTransformer) -> None:
    """Check that an encoder has no other routes than those for queries and documents, and compares by a product.

    Raises:
        ValueError: if it starts with a Router that has other routes, or compares by distances.
    """
    check_product(model)
    if isinstance(model[0], Router) and (missing := sorted(set(ROUTES) - set(model[0].sub_modules))):
        names = ", ".join(map(repr, model[0].sub_modules))
        raise ValueError(f"model must have the routes 'query' and 'document' in its Router, got {names}: no {missing}.")


def encode_both(
    run: AdaptationRun, queries: list[str], documents: list[str], deadline: float = math.inf
) -> tuple[Tensor, Tensor]:
    """Encode queries (Q, D), and documents (n, D) as far as the deadline allows, by the routes and prompts for them."""
    of_queries = run.encode(queries, route="query", label="Encoding queries")
    of_documents = run.encode(documents, route="document", label="Encoding documents", deadline=deadline)
    return of_queries, of_documents


def of_unit_length(queries: Tensor, documents: Tensor) -> Embeddings:
    """Return queries (Q, D) and documents (N, D) as the transforms of a :class:`Routes` take them."""
    return unit_rows(queries).float().numpy(), unit_rows(documents).float().numpy()


def pseudo_relevance_results(
    comparison: PseudoRelevanceComparison,
    transforms: Sequence[SearchTransform],
    routes: Sequence[Routes],
    unit: Embeddings,
) -> list[CandidateResult]:
    """Compare candidates by BM25's first documents: one that is worse by more than a standard error is not accepted.

    Args:
        comparison: with the base model.
        transforms: the candidates.
        routes: what follows the encoder with each of them.
        unit: queries and documents by the base model, of length 1.
    """
    results = []
    for transform, route in zip(transforms, routes, strict=True):
        began = time.perf_counter()
        gain, error = comparison.compare(*route.after(unit))
        reason = None
        if not gain >= -error:
            reason = "finds BM25's first documents later than the base model, by more than a standard error"
        results.append(
            CandidateResult(
                name=transform.name,
                gain=gain,
                low=gain - 1.96 * error,
                high=gain + 1.96 * error,
                why_not_accepted=reason,
                seconds=round(time.perf_counter() - began, 1),
            )
        )
    return results


def judged_results(
    judgements: JudgedQueries, transforms: Sequence[SearchTransform], routes: Sequence[Routes], unit: Embeddings
) -> list[CandidateResult]:
    """Compare candidates by relevance judgements: one that is not better than the base model is not accepted.

    Args:
        judgements: of the development set.
        transforms: the candidates.
        routes: what follows the encoder with each of them.
        unit: queries and documents of the development set by the base model, of length 1.
    """
    results = []
    for transform, route in zip(transforms, routes, strict=True):
        began = time.perf_counter()
        gain = judgements.compare(*route.after(unit))
        reason = None if gain > 0 else "not better than the base model"
        results.append(
            CandidateResult(
                name=transform.name,
                gain=gain,
                why_not_accepted=reason,
                seconds=round(time.perf_counter() - began, 1),
            )
        )
    return results
