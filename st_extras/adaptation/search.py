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
from torch.nn.functional import normalize

from st_extras.adaptation.choice import choose, choose_harmless
from st_extras.adaptation.corpus import summarize
from st_extras.adaptation.neighbors import write_searches
from st_extras.adaptation.pseudo_relevance import (
    FEWEST_DOCUMENTS,
    FEWEST_QUERIES,
    FROM_DOCUMENTS,
    JudgedQueries,
    PseudoRelevanceComparison,
    first_documents,
    hybrid_weight,
    sample_queries,
)
from st_extras.adaptation.report import Adaptation, CandidateResult, SearchDetails
from st_extras.adaptation.run import AdaptationRun
from st_extras.adaptation.search_transforms import (
    BOTH_SIDES,
    QUERIES_ALONE,
    ROUTES,
    Embeddings,
    Routes,
    SearchTransform,
    both_sides,
    describe,
    queries_alone,
    routed,
)
from st_extras.checks import check_bool, check_choice, check_instance
from st_extras.evaluation import RetrievalTask
from st_extras.text.term_weights import require_bm25s

_PSEUDO_RELEVANT = "average precision of BM25's first documents, 0 to 1"
_JUDGED = "nDCG@10 on dev, x 100"


def adapt_search(
    model: SentenceTransformer,
    documents: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    queries: Sequence[str] | Dataset | IterableDataset | str = FROM_DOCUMENTS,
    dev: RetrievalTask | None = None,
    keep_index: bool = False,
    minutes: float = 10.0,
    limit: int = 12_000,
    batch_size: int = 64,
    seed: int = 42,
    resume: bool = False,
    overwrite: bool = False,
    show_progress_bar: bool = True,
) -> Adaptation:
    """Refine an encoder for searching a collection, without relevance judgements, or leave it unchanged; save it.

    Candidates move queries and documents by their means, and whiten both halfway: see
    :mod:`st_extras.adaptation.search_transforms`. The first one is chosen that does no harm: that finds BM25's first
    documents as early as the base model, within one standard error. The saved model has a route for queries and one for
    documents: use ``encode_query`` and ``encode_document``. Both give length 1, so that dot product and cosine are the
    same; the base model is compared by the similarity that it has. The result also has the weight with which BM25 is
    added in a hybrid search: ``HybridSearch(found.model, documents, bm25_weight=found.details.bm25_weight)``.

    Args:
        model: the encoder. It is not changed. Queries and documents are encoded with its prompts and routes for these.
        documents: at least 100 different texts, better some thousand. A stream is read once.
        output: a new or empty folder, for the model, ``adaptation.json`` (the report) and ``searches.md`` (queries with
            their first documents before and after).
        queries: what users look for, without judgements, at least 20 different ones; "documents" makes some from the
            documents.
        dev: judged queries and their documents, to choose by in place of BM25, by nDCG@10.
        keep_index: change the route of queries alone, so that stored document embeddings stay valid.
        minutes: how long it may take, about; encoding stops after 60 % of it, and the documents encoded by then count.
        limit: use at most this many documents, 500 to 50,000, drawn at random; of the queries, 2,000 at most.
        batch_size: texts per forward pass.
        seed: random seed.
        resume: continue an interrupted run in ``output``: what it encoded with this encoder and these texts is used.
        overwrite: replace what an earlier run wrote to ``output``.
        show_progress_bar: show how far encoding is.

    Returns:
        What was chosen, its model, and all candidates with their gains; ``details`` is a :class:`SearchDetails`.

    Raises:
        ValueError: if a setting is not allowed, ``output`` may not be used, there are too few documents or queries, the
            encoder has other routes, cuts its embeddings or searches by distances, an embedding is not finite, the
            documents have too few different ones, or there is no interrupted run to resume.
        ImportError: if bm25s is not installed.

    Example:
        >>> import tempfile
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.adaptation import adapt_search
        >>> documents, queries = sample_sentences()[:300], [text[:30] for text in sample_sentences()[:40]]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = adapt_search(raw_encoder(), documents, folder, queries=queries, show_progress_bar=False)
        >>> found.details.queries
        40
    """
    check_searchable(model)
    check_instance("dev", dev, RetrievalTask, or_none=True)
    check_bool("keep_index", keep_index)
    require_bm25s()
    with AdaptationRun(
        model,
        output,
        minutes=minutes,
        limit=limit,
        batch_size=batch_size,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress_bar=show_progress_bar,
    ) as run:
        sample = run.sample(documents, "documents")
        wanted, made = sample_queries(queries, sample.texts, run.seed)
        raw = encode_both(run, wanted, sample.texts, deadline=run.encoding_deadline)
        encoded = len(raw[1])
        (wanted, of_queries), (texts, of_documents) = map(with_embedding, (wanted, sample.texts), raw)
        raw = of_queries, of_documents
        details, summary = SearchDetails(len(wanted), made), summarize(sample, texts)
        if len(texts) < FEWEST_DOCUMENTS or len(wanted) < FEWEST_QUERIES:
            reason = f"{FEWEST_DOCUMENTS} documents and {FEWEST_QUERIES} queries are needed, and "
            if encoded < FEWEST_DOCUMENTS:
                reason += f"{encoded} documents were encoded in the time: give more minutes."
            else:
                reason += f"{len(texts)} and {len(wanted)} have an embedding other than 0."
            return run.leave(reason, summary, details)
        base, unit = as_searched(model, raw), unit_rows(raw)
        if keep_index and not torch.allclose(base[1].norm(dim=1), torch.ones(1), atol=0.01):  # in bfloat16
            raise ValueError(
                "keep_index must be False for an encoder that compares by dot product and gives documents of other "
                "lengths than 1."
            )

        transforms = (QUERIES_ALONE if keep_index else BOTH_SIDES)[-1 if made else 0 :]
        routes = both_sides(texts, unit, transforms, run.seed)
        routes = queries_alone(routes, unit) if keep_index else routes

        if dev is None:
            comparison = PseudoRelevanceComparison(texts, wanted, base)
            details = dataclasses.replace(details, compared=len(comparison.compared))
            if len(comparison.compared) < FEWEST_QUERIES:
                reason = (
                    f"{len(comparison.compared)} queries share a word with a document, {FEWEST_QUERIES} are needed."
                )
                details = dataclasses.replace(details, bm25_weight=hybrid_weight(texts, wanted, base))
                return run.leave(reason, summary, details)
            gain_of, results = _PSEUDO_RELEVANT, pseudo_relevance_results(comparison, transforms, routes, unit)
            choice = choose_harmless(results)
        else:
            judged = [text for key, text in dev.queries.items() if dev.relevant.get(key)]
            of_dev = encode_both(run, judged, list(dev.documents.values()))
            judgements = JudgedQueries(dev, as_searched(model, of_dev))
            details = dataclasses.replace(details, dev=judgements.score)
            gain_of, results = _JUDGED, judged_results(judgements, transforms, routes, unit_rows(of_dev))
            choice = choose(results)

        if choice.index is None:
            details = dataclasses.replace(details, bm25_weight=hybrid_weight(texts, wanted, base))
            return run.leave(choice.reason, summary, details, gain_of, results)
        chosen = routes[choice.index]
        refined, name = routed(model, chosen), transforms[choice.index].name
        moved = chosen.after(unit)
        weight = hybrid_weight(texts, wanted, moved)
        describe(refined, name, len(texts), len(wanted), made, weight)
        run.save(refined)
        before, after = first_documents(*base), first_documents(*moved)
        changed = write_searches(run.output, wanted, texts, before, after, run.seed)
        details = dataclasses.replace(details, changed=changed, bm25_weight=weight)
        return run.report(refined, name, choice.reason, gain_of, results, summary, details)


def check_searchable(model: SentenceTransformer) -> None:
    """Check that routes for queries and documents can be put after the encoder.

    Raises:
        ValueError: if it starts with a Router that has other routes, or compares by distances.
    """
    check_choice("model.similarity_fn_name", model.similarity_fn_name, ("cosine", "dot"))
    if isinstance(model[0], Router) and (missing := sorted(set(ROUTES) - set(model[0].sub_modules))):
        found = ", ".join(map(repr, model[0].sub_modules))
        raise ValueError(f"model must have the routes 'query' and 'document' in its Router, got {found}: no {missing}.")


def encode_both(
    run: AdaptationRun, queries: list[str], documents: list[str], deadline: float = math.inf
) -> tuple[Tensor, Tensor]:
    """Encode queries (Q, D), and documents (n, D) as far as the deadline allows, by the routes and prompts for them."""
    of_queries = run.encode(run.model, queries, route="query", label="Encoding queries")
    of_documents = run.encode(run.model, documents, route="document", label="Encoding documents", deadline=deadline)
    return of_queries, of_documents


def with_embedding(texts: Sequence[str], embeddings: Tensor) -> tuple[list[str], Tensor]:
    """Return those of the first n texts whose embedding (n, D) is not 0, as a table of words gives to unknown ones."""
    rows = (embeddings != 0).any(dim=1).nonzero().flatten()
    return [texts[row] for row in rows.tolist()], embeddings[rows]


def unit_rows(embeddings: tuple[Tensor, Tensor]) -> Embeddings:
    """Return queries and documents with length 1, as the routes get them."""
    queries, documents = embeddings
    return normalize(queries).float(), normalize(documents).float()


def as_searched(model: SentenceTransformer, embeddings: tuple[Tensor, Tensor]) -> Embeddings:
    """Return queries and documents whose inner product is the base model's similarity: of any length for a dot product.

    Args:
        model: the base model.
        embeddings: (Q, D) and (N, D) by it.
    """
    if model.similarity_fn_name == "cosine":
        return unit_rows(embeddings)
    queries, documents = embeddings
    return queries.float(), documents.float()


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
    for one, after in zip(transforms, routes, strict=True):
        began = time.perf_counter()
        gain, error = comparison.compare(*after.after(unit))
        reason = "" if gain >= -error else "finds BM25's first documents later than the base model"
        low, high = gain - 1.96 * error, gain + 1.96 * error
        seconds = round(time.perf_counter() - began, 1)
        results.append(CandidateResult(one.name, gain, low, high, None, not reason, reason, seconds))
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
    for one, after in zip(transforms, routes, strict=True):
        began = time.perf_counter()
        gain = judgements.compare(*after.after(unit))
        reason = "" if gain > 0 else "not better than the base model"
        seconds = round(time.perf_counter() - began, 1)
        results.append(CandidateResult(one.name, gain, None, None, None, not reason, reason, seconds))
    return results
