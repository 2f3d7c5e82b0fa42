"""``adapt_search``: refine an encoder for searching a collection, or leave it unchanged.

Sample documents and queries, encode them, propose transforms, compare the rankings, choose one, save it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor

from st_extras.adaptation.choice import Choice, choose
from st_extras.adaptation.neighbors import write_searches
from st_extras.adaptation.report import Adaptation, CandidateResult, SearchDetails, TextSummary
from st_extras.adaptation.run import PART, AdaptationOptions, AdaptationRun, Sample, start_run, with_embedding
from st_extras.adaptation.search_transforms import (
    BOTH_SIDES,
    QUERIES_ALONE,
    Embeddings,
    Routes,
    both_sides,
    queries_alone,
)
from st_extras.checks import check_bool, check_instance
from st_extras.citations import CITATIONS
from st_extras.encoders.passages import (
    PASSAGE_WORDS,
    Passages,
    check_passages,
    cut_documents,
    warn_of_long_ones,
)
from st_extras.encoders.prompts import name_prompts
from st_extras.evaluation import RetrievalEvaluator, RetrievalTask
from st_extras.functional import row_blocks, unit_rows
from st_extras.modules.linear import add_linear_routes
from st_extras.modules.neighbor_directions import TooFewDifferentError
from st_extras.ranking import (
    EmbeddingBlocks,
    Floats,
    Numbers,
    check_product,
    comparable,
    first_documents,
    highest,
    hybrid_weight,
    score_blocks,
    search_queries,
)
from st_extras.text.term_weights import BM25, check_language

FEWEST_QUERIES = 20
FEWEST_DOCUMENTS = 100
_FIRST = 5  # pseudo-relevant documents of a query: BM25's first ones
_PSEUDO_RELEVANT = "average precision of BM25's first documents, 0 to 1"
_JUDGED = "nDCG@10 on dev, x 100"
_SHOWN = 3  # documents of a query in searches.md


def adapt_search(
    model: SentenceTransformer,
    documents: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    queries: Sequence[str] | Dataset | IterableDataset | None = None,
    dev: RetrievalTask | None = None,
    keep_index: bool = False,
    language: str | None = None,
    passages: int | None = PASSAGE_WORDS,
    options: AdaptationOptions | None = None,
) -> Adaptation[SearchDetails]:
    """Refine an encoder for searching a collection, without relevance judgements, or leave it unchanged; save it.

    Candidates subtract means from queries and documents, and whiten both halfway: see
    :mod:`st_extras.adaptation.search_transforms`. Without judgements, the first of them is chosen that does no harm:
    that finds BM25's first documents as early as the base model, within one standard error. BM25 shows harm, but not
    which of the harmless ones is best. With ``dev``, the best one is chosen that is better than the base model.

    The saved model has a route for queries and one for documents: use ``encode_query`` and ``encode_document``. Its
    embeddings have length 1, so that dot product and cosine are the same. The result also has the weight of BM25 beside
    the saved model: the one that ``HybridSearch(adapted.model, documents, queries=queries)`` finds.

    Args:
        model: the encoder. It is not changed. Queries and documents are encoded with its prompts and routes for these.
        documents: at least 100 different texts, better several thousand; with fewer, the encoder is left unchanged. A
            stream is read once.
        output: a new or empty folder, for the model, ``adaptation.json`` (the report) and ``searches.md`` (queries with
            their first documents before and after).
        queries: what users look for, without judgements, at least 20 different ones. None: sentences of 200 documents
            stand for them, as in ``HybridSearch``.
        dev: judged queries and their documents, to choose by in place of BM25, by nDCG@10.
        keep_index: change the route of queries alone, so that stored document embeddings stay valid. Not for an encoder
            that compares by dot product, unless its document embeddings have length 1.
        language: of BM25's stems and stop words, see :class:`~st_extras.text.term_weights.BM25`.
        passages: words of a passage, of documents that the encoder would not read whole: the best one counts, as in
            :class:`~st_extras.search.HybridSearch`. None: it reads their beginning.
        options: how the run goes: see :class:`AdaptationOptions`. Its deadline and its ``limit`` hold for documents; of
            the queries, at most 1,000 are used, and all of these are encoded. None: the defaults.

    Returns:
        What was chosen, its model, and all candidates with their gains; ``details`` is a :class:`SearchDetails`.

    Raises:
        ValueError: if a setting is not allowed, ``output`` may not be used, most of the queries are documents, the
            encoder has no Pooling, routes of other names or a ``truncate_dim``, or compares by distances,
            ``keep_index`` cannot be used with it, or an embedding is not finite.

    Example:
        >>> import tempfile
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.adaptation import AdaptationOptions, adapt_search
        >>> documents, queries = sample_sentences()[:300], [text[:30] for text in sample_sentences()[:40]]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     options = AdaptationOptions(show_progress_bar=False)
        ...     adapted = adapt_search(raw_encoder(), documents, folder, queries=queries, options=options)
        >>> adapted.details.queries
        40
    """
    check_searchable(model)
    check_instance("dev", dev, RetrievalTask, or_none=True)
    check_bool("keep_index", keep_index)
    check_language(language)
    passage_words = check_passages(passages)
    with start_run(model, output, options) as run:
        sample = run.sample(documents, "documents")
        query_texts = search_queries(queries, sample.texts)
        if passage_words is None:
            warn_of_long_ones(model, sample.texts)
        collection = encode_collection(run, sample, query_texts, passage_words, language, keep_index=keep_index)

        scores = score_routes(
            run, collection, dev, passage_words, keep_index=keep_index, from_documents=queries is None
        )
        if scores.why_nothing is not None:
            choice = Choice(None, scores.why_nothing)
        else:
            choice = choose_harmless(scores.results) if dev is None else choose(scores.results)
        routes = None if choice.name is None else scores.routes[choice.name]
        embeddings = collection.embeddings if routes is None else routes.after(collection.unit_embeddings)
        weight = changed = None
        if collection.queries and len(collection.documents) == sample.read > 0:  # else that of all documents is another
            of_queries, of_documents = embeddings[0], EmbeddingBlocks.of(embeddings[1])
            weight = hybrid_weight(
                collection.bm25, collection.queries, of_queries, of_documents, passages=collection.passages
            )
        if routes is not None:
            before, after = (
                torch.from_numpy(first_documents(*both, _SHOWN, collection.passages))
                for both in (collection.embeddings, embeddings)
            )
            changed = write_searches(
                run.folder, collection.queries, collection.documents, before, after, run.options.seed
            )
        details = SearchDetails(
            queries=len(collection.queries),
            made_from_documents=queries is None,
            compared=scores.compared,
            dev=scores.dev,
            changed=changed,
            bm25_weight=weight,
        )
        refined = model
        if choice.name is not None and routes is not None:
            refined = add_linear_routes(
                model,
                {"query": routes.queries, "document": routes.documents},
                default_route="document",
                method="Search",
                line=card_line(choice.name, len(collection.documents), details, language),
                citation=CITATIONS["he2003locality"],
            )
            name_prompts(refined)  # as load_encoder does, which is not needed to load this model
        return run.finish(
            refined, choice.name, choice.reason, scores.gain_measure, scores.results, collection.summary, details
        )


# --- the collection ---


@dataclass(frozen=True, eq=False)
class Collection:
    """Queries and passages of documents with their embeddings by the base model; none is 0.

    Attributes:
        queries: Q texts.
        documents: N texts.
        passages: which of the P passages each document has.
        passage_texts: P texts.
        embeddings: (Q, D) queries and (P, D) passages whose inner products are the base model's similarities.
        unit_embeddings: the same with length 1, as the transforms of a :class:`Routes` take them.
        bm25: of the documents.
        summary: the documents in numbers.
    """

    queries: list[str]
    documents: list[str]
    passages: Passages
    passage_texts: list[str]
    embeddings: Embeddings
    unit_embeddings: Embeddings
    bm25: BM25
    summary: TextSummary


def encode_collection(
    run: AdaptationRun,
    sample: Sample,
    queries: list[str],
    passage_words: int | None,
    language: str | None,
    *,
    keep_index: bool,
) -> Collection:
    """Encode all queries, and as many documents as the time allows, each with all of its passages.

    Args:
        run: encodes.
        sample: the documents.
        queries: texts.
        passage_words: of a passage of the documents; None: they stay whole.
        language: of BM25.
        keep_index: whether documents must have length 1, of which the first ones are looked at before the others.
    """
    passages = cut_documents(run.model, sample.texts, passage_words)
    passage_texts = passages.texts(sample.texts)
    if keep_index and run.model.similarity_fn_name == "dot":
        _check_lengths(run.encode(passage_texts[:PART], "Encoding first documents", role="document"))
    query_embeddings = run.encode(queries, "Encoding queries", role="query")
    passage_embeddings = run.encode_sample(passage_texts, "Encoding documents", role="document")
    # a table of words gives 0 to texts of unknown words, which are left out
    queries, query_embeddings = with_embedding(queries, query_embeddings)
    encoded = int(np.searchsorted(passages.first, len(passage_embeddings), side="right")) - 1  # whole documents
    passage_embeddings = passage_embeddings[: passages.first[encoded]]
    rows = (passage_embeddings != 0).any(dim=1).nonzero().flatten().cpu()
    numbers, passages = passages.kept(rows.numpy())
    documents, passage_embeddings = [sample.texts[number] for number in numbers.tolist()], passage_embeddings[rows]
    return Collection(
        queries,
        documents,
        passages,
        passages.texts(documents),
        (comparable(run.model, query_embeddings), comparable(run.model, passage_embeddings)),
        unit_embeddings_of(query_embeddings, passage_embeddings),
        BM25(documents or [""], language),
        sample.summary(encoded, documents),
    )


def _check_lengths(documents: Tensor) -> None:
    """Check that embeddings (n, D) have length 1, but for those that are 0.

    Raises:
        ValueError: if one has another length.
    """
    lengths = documents.norm(dim=1)
    if ((lengths - 1).abs() > 0.01).logical_and(lengths > 0).any():  # bfloat16 rounds
        raise ValueError(
            "keep_index must be False for an encoder that compares by dot product and gives documents of other "
            "lengths than 1."
        )


def check_searchable(model: SentenceTransformer) -> None:
    """Check that an encoder has no other routes than those for queries and documents, and compares by a product.

    Raises:
        ValueError: if it starts with a Router that has other routes, or compares by distances.
    """
    check_product(model)
    if isinstance(model[0], Router) and (missing := sorted({"query", "document"} - set(model[0].sub_modules))):
        names = ", ".join(map(repr, model[0].sub_modules))
        raise ValueError(f"model must have the routes 'query' and 'document' in its Router, got {names}: no {missing}.")


# --- the scores of the candidates ---


@dataclass(frozen=True)
class SearchScores:
    """What the candidates are, and how good.

    Attributes:
        why_nothing: why nothing was scored, in a sentence; None if something was.
        gain_measure: what the gains measure, with its unit.
        results: of the candidates, in the order in which the first harmless one is chosen.
        routes: the candidates, by name.
        compared: number of the queries that candidates are compared on without judgements; None with them.
        dev: nDCG@10 times 100 of the base model on the judged queries; None: there are none.
    """

    why_nothing: str | None = None
    gain_measure: str = ""
    results: list[CandidateResult] = field(default_factory=list)
    routes: dict[str, Routes] = field(default_factory=dict, repr=False)
    compared: int | None = None
    dev: float | None = None


def score_routes(
    run: AdaptationRun,
    collection: Collection,
    dev: RetrievalTask | None,
    passage_words: int | None,
    *,
    keep_index: bool,
    from_documents: bool,
) -> SearchScores:
    """Compute the candidates from the collection, and compare their rankings with those of the base model.

    Args:
        run: encodes the documents of the judgements.
        collection: queries and documents.
        dev: judgements that choose; None: BM25's first documents show which candidates do harm.
        passage_words: of a passage of the judged documents; None: they stay whole.
        keep_index: change queries alone.
        from_documents: whether the queries are sentences of the documents.
    """
    reason = why_too_few(collection, from_documents=from_documents)
    if reason is not None:
        return SearchScores(reason)
    transforms = QUERIES_ALONE if keep_index else BOTH_SIDES
    if from_documents:  # whose mean is not used, as users' queries have another
        transforms = transforms[-1:]
    try:
        found = both_sides(collection.passage_texts, collection.unit_embeddings, transforms, run.options.seed)
    except TooFewDifferentError as error:
        return SearchScores(str(error))
    if keep_index:
        found = queries_alone(found, collection.unit_embeddings)  # carries what the documents got over to the queries
    routes = {transform.name: both for transform, both in zip(transforms, found, strict=True)}

    if dev is not None:
        ndcg, base, unit_embeddings = judge(run, dev, passage_words)
        results = compare_candidates(lambda *after: (ndcg(*after) - base, None), routes, unit_embeddings)
        return SearchScores(None, _JUDGED, results, routes, dev=base)
    comparison = PseudoRelevanceComparison(
        collection.bm25, collection.queries, collection.embeddings, collection.passages
    )
    compared = len(comparison.compared)
    if compared < FEWEST_QUERIES:
        reason = f"{compared} queries share a word with a document, {FEWEST_QUERIES} are needed."
        return SearchScores(reason, compared=compared)
    results = compare_candidates(comparison.compare, routes, collection.unit_embeddings)
    return SearchScores(None, _PSEUDO_RELEVANT, results, routes, compared)


def why_too_few(collection: Collection, *, from_documents: bool) -> str | None:
    """Return what is lacking, of different documents and queries with an embedding other than 0; None if nothing is.

    Args:
        collection: what was encoded.
        from_documents: whether the queries are sentences of the documents.
    """
    documents, queries = collection.documents, collection.queries
    if len(documents) < FEWEST_DOCUMENTS:
        return f"{FEWEST_DOCUMENTS} different documents are needed, got {len(documents)}."
    if from_documents and 2 * len(set(queries) & set(documents)) > len(queries):
        return "the documents are too short to make queries of: most have a single sentence, so give queries."
    if len(queries) < FEWEST_QUERIES:
        return f"{FEWEST_QUERIES} different queries are needed, got {len(queries)}."
    return None


def judge(
    run: AdaptationRun, dev: RetrievalTask, passage_words: int | None
) -> tuple[Callable[[Floats, Floats], float], float, Embeddings]:
    """Return nDCG@10 by relevance judgements, times 100: the function, the base model's, and what a candidate changes.

    Args:
        run: encodes.
        dev: judged queries and their documents.
        passage_words: of a passage of the documents; None: they stay whole.

    Returns:
        What scores (Q, D) queries and (P, D) passages; the score of the base model; and its embeddings, of length 1.
    """
    queries = [text for key, text in dev.queries.items() if dev.relevant.get(key)]
    documents = list(dev.documents.values())
    passages = cut_documents(run.model, documents, passage_words)
    query_embeddings = run.encode(queries, "Encoding judged queries", role="query")
    passage_embeddings = run.encode(passages.texts(documents), "Encoding judged documents", role="document")
    evaluator = RetrievalEvaluator(dev)

    def ndcg(queries: Floats, documents: Floats) -> float:
        blocks = score_blocks(queries, EmbeddingBlocks.of(documents))
        hits = [hit for _, scores in blocks for hit in evaluator.rank(passages.best(scores))]
        return 100 * float(evaluator.compute_metrics(hits)["ndcg@k"][10])

    base = ndcg(comparable(run.model, query_embeddings), comparable(run.model, passage_embeddings))
    return ndcg, base, unit_embeddings_of(query_embeddings, passage_embeddings)


def unit_embeddings_of(queries: Tensor, documents: Tensor) -> Embeddings:
    """Return queries (Q, D) and documents (N, D) as the transforms of a :class:`Routes` take them."""
    return unit_rows(queries).float().cpu().numpy(), unit_rows(documents).float().cpu().numpy()


class PseudoRelevanceComparison:
    """Compares rankings with the base model's by how early they find pseudo-relevant documents: the first five of BM25.

    It measures the average precision of each query. That shows whether a transform harms, not how strong one should be:
    over seven collections, it ordered strengths as the relevance judgements do on five.

    Args:
        bm25: of N documents.
        queries: Q texts.
        base: (Q, D) queries and (P, D) passages of documents by the base model, compared by inner product.
        passages: of each document, whose best one counts. None: the documents are whole.

    Attributes:
        compared: numbers of the queries that share a word with a document; the others have no pseudo-relevant one.
    """

    def __init__(
        self,
        bm25: BM25,
        queries: Sequence[str],
        base: tuple[Floats, Floats],
        passages: Passages | None = None,
    ) -> None:
        self._passages = passages
        targets = [np.empty((0, _FIRST), dtype=np.int64)]
        for rows in row_blocks(len(queries), len(base[1])):
            scores = bm25.scores(queries[rows])
            best = highest(scores, _FIRST)
            targets.append(np.where(np.take_along_axis(scores, best, axis=1) > 0, best, -1))  # (B, 5), -1: none
        all_targets = np.concatenate(targets)
        self.compared = np.flatnonzero(all_targets[:, 0] >= 0)
        self._targets = all_targets[self.compared]
        self._base = self._average_precisions(*base)

    def compare(self, queries: Floats, documents: Floats) -> tuple[float, float]:
        """Return the mean change of the average precision, and its standard error over queries.

        Args:
            queries: (Q, D) their embeddings after a transform, of length 1.
            documents: (P, D) likewise, of the passages of the documents.
        """
        changes = self._average_precisions(queries, documents) - self._base
        return float(changes.mean()), float(changes.std(ddof=1) / len(changes) ** 0.5)

    def _average_precisions(self, queries: Floats, documents: Floats) -> NDArray[np.float64]:
        """Return the average precision of each of the J compared queries, (J,)."""
        blocks = score_blocks(queries[self.compared], EmbeddingBlocks.of(documents))
        cut = self._passages
        precisions = [
            average_precision_of_targets(scores if cut is None else cut.best(scores), self._targets[rows])
            for rows, scores in blocks
        ]
        return np.concatenate([np.empty(0), *precisions])


def average_precision_of_targets(scores: Floats, targets: Numbers) -> NDArray[np.float64]:
    """Return the average precision (B,) with which rankings find documents; of equal scores, others come first.

    Args:
        scores: (B, N) of each document, higher is earlier.
        targets: (B, K) numbers of the documents to find; -1: none. Each row has one at least.
    """
    target_scores = np.take_along_axis(scores, targets.clip(0), axis=1)  # (B, K)
    ranks = np.stack([(scores >= one[:, None]).sum(axis=1) for one in target_scores.T], axis=1).astype(np.float64)
    ranks[targets < 0] = np.inf
    ranks.sort(axis=1)
    precision = np.arange(1, targets.shape[1] + 1) / ranks
    averages: NDArray[np.float64] = precision.sum(axis=1) / (targets >= 0).sum(axis=1)
    return averages


def compare_candidates(
    compare: Callable[[Floats, Floats], tuple[float, float | None]],
    candidates: Mapping[str, Routes],
    unit_embeddings: Embeddings,
) -> list[CandidateResult]:
    """Compare candidates with the base model.

    By BM25's first documents, one is accepted that is not worse by more than a standard error; by relevance
    judgements, one that is better.

    Args:
        compare: takes queries and documents after a candidate; returns its gain, and the gain's standard error or None.
        candidates: what follows the encoder, by name.
        unit_embeddings: queries and documents that are compared, by the base model, of length 1.
    """
    results = []
    for name, routes in candidates.items():
        began = time.perf_counter()
        gain, error = compare(*routes.after(unit_embeddings))
        if error is None:
            reason = None if gain > 0 else "not better than the base model"
        else:
            worse = "finds BM25's first documents later than the base model, by more than a standard error"
            reason = None if gain >= -error else worse
        results.append(
            CandidateResult(
                name=name,
                gain=gain,
                low=None if error is None else gain - 1.96 * error,
                high=None if error is None else gain + 1.96 * error,
                why_not_accepted=reason,
                seconds=round(time.perf_counter() - began, 1),
            )
        )
    return results


def choose_harmless(results: Sequence[CandidateResult]) -> Choice:
    """Choose the first accepted candidate of a search, or the base model: the comparison only shows harm."""
    for one in results:
        if one.accepted:
            if one.gain >= 0:
                return Choice(one.name, f"{one.name} was chosen: no harm was found.")
            return Choice(
                one.name,
                f"{one.name} was chosen although its gain is {one.gain:+.3f}: within a standard error, that is no sign "
                "of harm, and nDCG@10 has risen with such a candidate.",
            )
    return Choice(None, "each candidate finds BM25's first documents later than the base model.")


def card_line(name: str, documents: int, details: SearchDetails, language: str | None) -> str:
    """Return the line of the model card: what was put after the encoder, from how many texts, and how to add BM25.

    Args:
        name: of the candidate.
        documents: how many it was computed from.
        details: of the adaptation.
        language: of BM25's stems and stop words; None: words are compared as they are.
    """
    described = "queries made from them" if details.made_from_documents else f"{details.queries:,} queries"
    line = (
        f"* **st-extras adapt-search**, {name}: from {documents:,} documents and {described}, without judgements. Use "
        "`encode_query` and `encode_document`; plain `encode` takes a text for a document."
    )
    if details.bm25_weight is not None:
        stems = "" if language is None else f' with language="{language}"'
        line += (
            f" In a hybrid search of these documents, the score is cosine + {details.bm25_weight:.4g} x BM25{stems}."
        )
    return line
