"""``adapt_search``: refine an encoder for searching a collection, or leave it unchanged.

Sample documents and queries, encode them, propose transforms, compare the rankings, choose one, save it.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor

from st_extras.adaptation.choice import Choice, choose, choose_harmless
from st_extras.adaptation.corpus import summarize, with_embedding
from st_extras.adaptation.neighbors import write_searches
from st_extras.adaptation.pseudo_relevance import (
    FEWEST_DOCUMENTS,
    FEWEST_QUERIES,
    JudgedQueries,
    PseudoRelevanceComparison,
    search_queries,
    why_too_few,
)
from st_extras.adaptation.report import Adaptation, CandidateResult, SearchDetails
from st_extras.adaptation.run import AdaptationOptions, AdaptationRun
from st_extras.adaptation.search_transforms import (
    BOTH_SIDES,
    QUERIES_ALONE,
    ROUTES,
    Embeddings,
    Routes,
    add_routes,
    both_sides,
    describe_on_card,
    queries_alone,
)
from st_extras.checks import check_bool, check_instance
from st_extras.encoders.embedding_store import PART
from st_extras.encoders.passages import (
    PASSAGE_WORDS,
    Passages,
    check_passages,
    cut_documents,
    warn_of_long_ones,
)
from st_extras.evaluation import RetrievalTask
from st_extras.functional import unit_rows
from st_extras.modules.neighbor_directions import TooFewDifferentError
from st_extras.ranking import check_product, comparable, first_documents, hybrid_weight
from st_extras.text.term_weights import BM25, check_language

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
    it, the one that ``HybridSearch(found.model, documents, queries=queries)`` finds.

    Args:
        model: the encoder. It is not changed. Queries and documents are encoded with its prompts and routes for these.
        documents: at least 100 different texts, better some thousand; with fewer, the encoder is left unchanged. A
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
            encoder has routes of other names, has a ``truncate_dim`` or compares by distances, ``keep_index`` cannot
            be used with it, an embedding is not finite, too few documents could be encoded in the time, or there is no
            interrupted run to resume.
        ImportError: if there is a ``language`` and the extra ``search`` is not installed.

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
    check_language(language)
    words = check_passages(passages)
    with AdaptationRun("adapt_search", model, output, options) as run:
        sample = run.sample(documents, "documents")
        wanted, from_documents = search_queries(queries, sample.texts), queries is None
        if reason := why_too_few(sample.texts, wanted, from_documents=from_documents):
            return run.save_unchanged(reason, summarize(sample, []), SearchDetails(len(wanted), from_documents))
        if words is None:
            warn_of_long_ones(model, sample.texts)
        cut = cut_documents(model, sample.texts, words)
        pieces = cut.texts(sample.texts)
        if keep_index and model.similarity_fn_name == "dot":
            _check_lengths(run.encode(pieces[:PART], route="document"))
        fewest = int(cut.first[min(FEWEST_DOCUMENTS, len(sample.texts))])  # passages of as many documents
        encoded = (
            run.encode(wanted, route="query", label="Encoding queries"),
            run.encode_sample(pieces, fewest, route="document", label="Encoding documents"),
        )
        collection = Collection.of(model, (wanted, sample.texts), cut, encoded, language)
        summary = summarize(sample, collection.documents)
        details = SearchDetails(len(collection.queries), from_documents)
        if reason := collection.why_too_few():
            return run.save_unchanged(reason, summary, details)

        candidates: dict[str, Routes] = {}
        results: list[CandidateResult] = []
        gain_measure = ""
        try:
            candidates = propose(
                collection, keep_index=keep_index, from_documents=from_documents, seed=run.options.seed
            )
        except TooFewDifferentError as error:
            choice = Choice(None, str(error))
        if candidates and dev is not None:
            gain_measure = _JUDGED
            judgements, unit_of_dev = encode_judged(run, dev, words)
            results = compare_candidates(judgements, candidates, unit_of_dev)
            details = dataclasses.replace(details, dev=judgements.score)
            choice = choose(results)
        elif candidates:
            comparison = PseudoRelevanceComparison(
                collection.bm25, collection.queries, collection.searched, collection.passages
            )
            compared = len(comparison.compared)
            details = dataclasses.replace(details, compared=compared)
            if compared < FEWEST_QUERIES:
                choice = Choice(None, f"{compared} queries share a word with a document, {FEWEST_QUERIES} are needed.")
            else:
                gain_measure = _PSEUDO_RELEVANT
                results = compare_candidates(comparison, candidates, collection.unit)
                choice = choose_harmless(results)

        name = None if choice.candidate is None else choice.candidate.name
        chosen = collection.searched if name is None else candidates[name].after(collection.unit)
        if len(collection.documents) == sample.read:  # else the weight of all documents is another one
            weight = hybrid_weight(collection.bm25, collection.queries, *chosen, passages=collection.passages)
            details = dataclasses.replace(details, bm25_weight=weight)
        if name is None:
            return run.save_unchanged(choice.reason, summary, details, gain_measure, results)
        refined = add_routes(model, candidates[name])
        describe_on_card(refined, name, summary.used, details, language)
        run.save(refined)
        before, after = (
            torch.from_numpy(first_documents(*of, _SHOWN, collection.passages)) for of in (collection.searched, chosen)
        )
        changed = write_searches(
            run.folder.model, collection.queries, collection.documents, before, after, run.options.seed
        )
        details = dataclasses.replace(details, changed=changed)
        return run.write_report(refined, name, choice.reason, gain_measure, results, summary, details)


@dataclass(frozen=True, eq=False)
class Collection:
    """Queries and passages of documents with their embeddings by the base model; none is 0.

    Attributes:
        queries: Q texts.
        documents: N texts.
        passages: which of the P passages each document has.
        pieces: texts of the passages.
        searched: (Q, D) queries and (P, D) passages whose inner products are the base model's similarities.
        unit: the same with length 1, as the transforms of a :class:`Routes` take them.
        bm25: of the documents.
    """

    queries: list[str]
    documents: list[str]
    passages: Passages
    pieces: list[str]
    searched: Embeddings
    unit: Embeddings
    bm25: BM25

    @classmethod
    def of(
        cls,
        model: SentenceTransformer,
        texts: tuple[list[str], list[str]],
        cut: Passages,
        encoded: tuple[Tensor, Tensor],
        language: str | None,
    ) -> Collection:
        """Return the collection of queries and of the documents all of whose passages were encoded.

        Args:
            model: the base model.
            texts: queries and documents.
            cut: the passages of the documents.
            encoded: (Q, D) and (n, D) of the first n passages; a table of words gives 0 to a text of unknown ones,
                which is left out.
            language: of BM25.
        """
        queries, of_queries = with_embedding(texts[0], encoded[0])
        complete = cut.first[np.searchsorted(cut.first, len(encoded[1]), side="right") - 1]  # passages of whole ones
        rows = np.flatnonzero((encoded[1][:complete] != 0).any(dim=1).numpy())
        numbers, passages = cut.kept(rows)
        documents = [texts[1][number] for number in numbers.tolist()]
        of_passages = encoded[1][torch.from_numpy(rows)]
        searched = comparable(model, of_queries), comparable(model, of_passages)
        unit = of_unit_length(of_queries, of_passages)
        bm25 = BM25(documents or [""], language)
        return cls(queries, documents, passages, passages.texts(documents), searched, unit, bm25)

    def why_too_few(self) -> str | None:
        """Return what is lacking; None if nothing is."""
        if len(self.documents) >= FEWEST_DOCUMENTS and len(self.queries) >= FEWEST_QUERIES:
            return None
        return (
            f"{FEWEST_DOCUMENTS} documents and {FEWEST_QUERIES} queries are needed, and {len(self.documents)} and "
            f"{len(self.queries)} have an embedding other than 0."
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


def propose(collection: Collection, *, keep_index: bool, from_documents: bool, seed: int) -> dict[str, Routes]:
    """Return the candidates by name, in the order in which the first harmless one is chosen.

    Args:
        collection: its embeddings by the base model give the transforms.
        keep_index: change queries alone.
        from_documents: whether the queries are sentences of the documents: their mean is then not used, as users'
            queries have another.
        seed: of the texts that the directions are found from.

    Raises:
        TooFewDifferentError: if the documents have too few different embeddings.
    """
    transforms = QUERIES_ALONE if keep_index else BOTH_SIDES
    if from_documents:
        transforms = transforms[-1:]
    routes = both_sides(collection.pieces, collection.unit, transforms, seed)
    if keep_index:
        routes = queries_alone(routes, collection.unit)  # carries what the documents got over to the queries
    return {transform.name: route for transform, route in zip(transforms, routes, strict=True)}


def encode_judged(run: AdaptationRun, dev: RetrievalTask, words: int | None) -> tuple[JudgedQueries, Embeddings]:
    """Return the comparison by relevance judgements, and the embeddings that candidates are applied to.

    Args:
        run: encodes.
        dev: judged queries and their documents.
        words: of a passage of the documents; None: they stay whole.
    """
    queries = [text for key, text in dev.queries.items() if dev.relevant.get(key)]
    documents = list(dev.documents.values())
    cut = cut_documents(run.model, documents, words)
    of_queries, of_passages = run.encode(queries, route="query"), run.encode(cut.texts(documents), route="document")
    base = comparable(run.model, of_queries), comparable(run.model, of_passages)
    return JudgedQueries(dev, base, cut), of_unit_length(of_queries, of_passages)


def check_searchable(model: SentenceTransformer) -> None:
    """Check that an encoder has no other routes than those for queries and documents, and compares by a product.

    Raises:
        ValueError: if it starts with a Router that has other routes, or compares by distances.
    """
    check_product(model)
    if isinstance(model[0], Router) and (missing := sorted(set(ROUTES) - set(model[0].sub_modules))):
        names = ", ".join(map(repr, model[0].sub_modules))
        raise ValueError(f"model must have the routes 'query' and 'document' in its Router, got {names}: no {missing}.")


def of_unit_length(queries: Tensor, documents: Tensor) -> Embeddings:
    """Return queries (Q, D) and documents (N, D) as the transforms of a :class:`Routes` take them."""
    return unit_rows(queries).float().numpy(), unit_rows(documents).float().numpy()


def compare_candidates(
    comparison: PseudoRelevanceComparison | JudgedQueries, candidates: Mapping[str, Routes], unit: Embeddings
) -> list[CandidateResult]:
    """Compare candidates with the base model.

    By BM25's first documents, one is accepted that is not worse by more than a standard error; by relevance
    judgements, one that is better.

    Args:
        comparison: with the base model.
        candidates: what follows the encoder, by name.
        unit: queries and documents that are compared, by the base model, of length 1.
    """
    results = []
    for name, routes in candidates.items():
        began = time.perf_counter()
        gain, error = comparison.compare(*routes.after(unit))
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
