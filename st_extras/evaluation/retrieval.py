"""Search: how high relevant documents rank, by nDCG@10 and the like, beside BM25; duplicate and similar questions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from st_extras.checks import argument_called, check_choice, check_finite_embeddings, check_instance
from st_extras.encoders.passages import PASSAGE_WORDS, Passages, check_passages, cut_documents, warn_of_long_ones
from st_extras.encoders.prompts import other_prompt
from st_extras.evaluation.reporting import bootstrap_interval, check_options, join_name
from st_extras.evaluation.retrieval_data import RetrievalTask
from st_extras.functional import row_blocks
from st_extras.ranking import (
    EmbeddingBlocks,
    Floats,
    check_product,
    comparable,
    highest,
    hybrid_weight,
    sample_queries,
    score_blocks,
)
from st_extras.search import HybridSearch
from st_extras.search.parquet_file import resolved, stored_version
from st_extras.text.corpus import different_texts, is_blank
from st_extras.text.term_weights import BM25

_BM25 = "BM25"  # the row
_METRICS = (("ndcg", 10), ("recall", 10), ("recall", 100), ("mrr", 10))
RRF_CONSTANT = 60
"""Of reciprocal rank fusion, as its paper and most search engines have it."""
RRF_DEPTH = 100
"""How many documents of each side are fused by rank."""
_OPTIONS_OF_INDEX = ("batch_size", "show_progress_bar")
_OPTIONS = ("query_prompt", "document_prompt", "truncate_dim", *_OPTIONS_OF_INDEX)
_SCORES_AT_ONCE = 2**27  # queries x documents: 512 MiB of float32
logger = logging.getLogger(__name__)


class RetrievalEvaluator(InformationRetrievalEvaluator):
    """An InformationRetrievalEvaluator of nDCG@10 (the primary metric), recall@10, recall@100 and MRR@10.

    Queries are encoded by ``encode_query`` and documents by ``encode_document``: with the model's own prompts of these
    names, or such as "search_query" and "search_document", and through the routes of a Router. They are compared by the
    model's own similarity, which is part of the metrics' names ("cosine_ndcg@10"). nDCG uses the grades, as BEIR and
    MTEB do; the other metrics count every relevant document alike. Queries without a relevant document are left out. A
    query's own document (see :meth:`RetrievalTask.own_documents`) is no hit, as in BEIR and MTEB, but takes one of the
    100 places of recall@100.

    Args:
        task: from :func:`load_retrieval`.
        query_prompt: text put before every query; None: the model's own.
        document_prompt: text put before every document; None: the model's own.
        name: prefix of the metrics and part of the CSV file's name.
        **options: further arguments of InformationRetrievalEvaluator (batch_size, truncate_dim, ...).

    Attributes:
        own_documents: ids of the queries whose own documents are no hits.
        ndcg_of_queries: nDCG of each query that was scored last, by depth (10): what a paired comparison needs.

    Raises:
        ValueError: if the task is no RetrievalTask, ``name`` cannot be part of a file's name, or another setting is not
            allowed.

    Example:
        >>> from st_extras.evaluation import RetrievalEvaluator, RetrievalTask
        >>> from st_extras.samples.encoder import raw_encoder
        >>> documents = {"7": "A lost card is blocked at once.", "8": "A loan is paid back over years."}
        >>> task = RetrievalTask({"a": "my card was stolen"}, documents, {"a": {"7": 1.0}})
        >>> RetrievalEvaluator(task)(raw_encoder())["cosine_recall@10"]
        1.0
    """

    def __init__(
        self,
        task: RetrievalTask,
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        name: str = "",
        **options: Any,
    ) -> None:
        check_instance("task", task, RetrievalTask)
        check_instance("query_prompt", query_prompt, str, or_none=True)
        check_instance("document_prompt", document_prompt, str, or_none=True)
        settings: dict[str, Any] = {
            "queries": task.queries,
            "corpus": task.documents,
            "relevant_docs": task.relevant,
            "accuracy_at_k": [1],
            "precision_recall_at_k": [10, 100],
            "corpus_chunk_size": max(1, min(50_000, _SCORES_AT_ONCE // len(task.queries))),
            "query_prompt": query_prompt,
            "corpus_prompt": document_prompt,
            "name": name,
        }
        settings |= {"batch_size": 32, "show_progress_bar": False, "write_csv": True} | options
        check_options(name, settings["batch_size"], settings["show_progress_bar"], settings["write_csv"])
        super().__init__(**(settings | {"batch_size": int(settings["batch_size"])}))
        self.primary_metric = join_name(name, "cosine_ndcg@10")
        self.task = task
        self.own_documents = task.own_documents() & set(self.queries_ids)
        if self.own_documents:
            own, queries = len(self.own_documents), len(self.queries_ids)
            logger.warning("%d of %d queries are documents themselves: these are no hits.", own, queries)
        self.ndcg_of_queries: dict[int, np.ndarray] = {}

    def embed_inputs(
        self,
        model: Any,
        sentences: Any,
        encode_fn_name: Any = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        **options: Any,
    ) -> Any:
        """Return the (N, D) embeddings of queries or documents, each with its prompt; equal ones are encoded once.

        Raises:
            ValueError: if one is not finite.
        """
        if prompt is None and prompt_name is None and encode_fn_name is not None:
            prompt = other_prompt(model, encode_fn_name)
        different, places = different_texts(sentences)
        found: Any = super().embed_inputs(model, different, encode_fn_name, prompt_name, prompt, **options)
        check_finite_embeddings(found, different)
        return found[places]

    def compute_metrics(self, queries_result_list: list[Any]) -> Any:
        """Return the metrics of the hits of each query, best first, by name and depth; without its own document."""
        queries_result_list = self._without_own(queries_result_list)
        metrics = super().compute_metrics(queries_result_list)
        for k in self.ndcg_at_k:
            found = zip(self.queries_ids, queries_result_list, strict=True)
            self.ndcg_of_queries[k] = np.array([_ndcg(hits[:k], self.task.relevant[key], k) for key, hits in found])
            metrics["ndcg@k"][k] = float(self.ndcg_of_queries[k].mean())
        return metrics

    def first_ranks(self, queries_result_list: list[Any]) -> list[int | None]:
        """Return the rank, from 1, of the first relevant document among the hits of each query; None: not among them.

        The query's own document has no rank.
        """
        found: list[int | None] = []
        for query, hits in zip(self.queries_ids, self._without_own(queries_result_list), strict=True):
            relevant = self.task.relevant[query]
            found.append(next((rank for rank, hit in enumerate(hits, start=1) if hit["corpus_id"] in relevant), None))
        return found

    def _without_own(self, queries_result_list: list[Any]) -> list[Any]:
        """Return the hits of each query without its own document."""
        return [
            [hit for hit in hits if hit["corpus_id"] != query] if query in self.own_documents else hits
            for query, hits in zip(self.queries_ids, queries_result_list, strict=True)
        ]

    def embed_both(
        self, model: SentenceTransformer, passage_words: int | None = None
    ) -> tuple[Floats, EmbeddingBlocks, Passages]:
        """Return the embeddings of the queries (Q, D) and of the documents' P passages, and the passages.

        Similarities are inner products of the embeddings.

        Args:
            model: the encoder.
            passage_words: words of a passage. None: each document is one.
        """
        queries = self.embed_inputs(model, self.queries, "query", self.query_prompt_name, self.query_prompt)
        documents = list(self.task.documents.values())
        cut = cut_documents(model, documents, passage_words, self.corpus_prompt)
        pieces = cut.texts(documents)
        embedded = self.embed_inputs(model, pieces, "document", self.corpus_prompt_name, self.corpus_prompt)
        return comparable(model, queries), EmbeddingBlocks.of(comparable(model, embedded)), cut

    def rank(self, similarities: Any) -> list[list[dict[str, Any]]]:
        """Return the hits of each query for :meth:`compute_metrics`, best first; of equally similar ones, lower ids.

        Args:
            similarities: (B, N), of B queries to the N documents, whatever they were computed by.
        """
        depth = max(*self.ndcg_at_k, *self.mrr_at_k, *self.precision_recall_at_k, *self.map_at_k)
        by_id = np.argsort(self.get_corpus_id_ranks().numpy())
        scores = np.asarray(similarities)[:, by_id]
        ids = [self.corpus_ids[number] for number in by_id]
        return [
            [{"corpus_id": ids[place], "score": float(row[place])} for place in best]
            for row, best in zip(scores, highest(scores, depth), strict=True)
        ]


@dataclass(frozen=True)
class RetrievalComparison:
    """What :func:`compare_retrieval` found, by row: an encoder, BM25, or both together.

    Attributes:
        rows: nDCG@10 and the other metrics in [0, 1], and ``difference`` of nDCG@10 to the baseline with the ends
            ``low`` and ``high`` of its 95 % interval, over which queries were drawn (paired bootstrap);
            they are NaN of one query.
        queries: the texts of the Q queries that were scored.
        ranks: of each of these the rank, from 1, of its first relevant document; None beyond the first 100.
    """

    rows: dict[str, dict[str, float]]
    queries: list[str]
    ranks: dict[str, list[int | None]]


def comparison_rows(names: Iterable[str]) -> list[str]:
    """Return the names of the rows of :func:`compare_retrieval` for encoders with these names, in its order."""
    return [*(row for name in names for row in (name, f"{name} + {_BM25}", f"{name} and {_BM25}, RRF")), _BM25]


def compare_retrieval(
    task: RetrievalTask,
    models: Iterable[tuple[str, SentenceTransformer]],
    *,
    baseline: str | None = None,
    language: str | None = None,
    passages: int | Literal["default"] | None = "default",
    index: str | PathLike[str] | None = None,
    **options: Any,
) -> RetrievalComparison:
    """Score encoders on a search collection, beside what a sceptic would use: BM25, and both together.

    The rows are, for each encoder, "NAME", "NAME + BM25" (its score plus a weight times BM25's: one weight for all
    queries, found without judgements as :class:`~st_extras.search.HybridSearch` does) and "NAME and BM25, RRF"
    (:func:`fuse_ranks`: what a search engine does by default), and "BM25".

    Args:
        task: from :func:`load_retrieval`.
        models: different names and encoders, which compare by cosine or dot product; a generator need not hold more
            than one encoder at a time.
        baseline: the row that differences are to, which comes first: see :func:`comparison_rows`; "bm25" is "BM25".
            None: the first encoder.
        language: of BM25's stems, see :class:`~st_extras.text.term_weights.BM25`. None: that of the index; without one,
            words are compared as they are.
        passages: words of a passage, of documents that an encoder would not read whole: the best one counts for it, as
            in :class:`~st_extras.search.HybridSearch`. "default": those of the index; without one, 110. None: an
            encoder reads their beginning, as in BEIR and MTEB.
        index: of a single encoder: the file of a search of the documents, see :meth:`HybridSearch.save
            <st_extras.search.HybridSearch.save>`, so that they are not encoded again; its words, language, weight and
            passages are used. It is made if there is none, with a weight from the queries. None: they are encoded.
        **options: prompts, batch_size, truncate_dim and show_progress_bar, as for :class:`RetrievalEvaluator`; with an
            index, only batch_size and show_progress_bar: prompts and dimensions are the encoder's.

    Raises:
        ValueError: as for :class:`RetrievalEvaluator`, or if two encoders have one name, one compares by distances, an
            option has no effect, there is no row ``baseline``, or the index is of other documents, another encoder,
            language or length of passages, or there is not one encoder with it.
    """
    for option in options:
        check_choice("options: each", option, _OPTIONS if index is None else _OPTIONS_OF_INDEX)
    baseline = _BM25 if baseline == _BM25.lower() else baseline
    passage_words = PASSAGE_WORDS if passages == "default" else check_passages(passages)
    evaluator = RetrievalEvaluator(task, **options)
    queries: Any = evaluator.queries
    row_of = {text.strip(): row for row, text in enumerate(queries)}
    sampled = [row_of[text] for text in sample_queries(queries)]  # as HybridSearch does
    documents = list(task.documents.values())
    by_words = BM25(documents, language) if index is None else None
    hits: dict[str, list[list[dict[str, Any]]]] = {}
    bm25_hits: list[list[dict[str, Any]]] = []
    names: list[str] = []
    for name, model in models:
        if name in comparison_rows(names):
            raise ValueError(f"models must have different names, and none the name of a row, got {name!r} again.")
        if index is not None and names:
            raise ValueError(f"index must be None with several encoders, got {str(index)!r}: give one encoder.")
        names.append(name)
        check_product(model)
        blocks: Iterable[tuple[Floats, Floats]]
        if by_words is None:
            search = _open_index(index, task, model, queries, language, passages, options)
            weight, blocks = search.bm25_weight, _blocks_of_index(search, evaluator)
        else:
            if passage_words is None:
                warn_of_long_ones(model, documents)
            of_queries, of_documents, cut = evaluator.embed_both(model, passage_words)
            texts = [queries[row] for row in sampled]
            weight = hybrid_weight(by_words, texts, of_queries[sampled], of_documents, passages=cut)
            blocks = (
                (cut.best(scores), by_words.scores(queries[rows]))
                for rows, scores in score_blocks(of_queries, of_documents)
            )
        for dense, word_scores in blocks:
            sums = dense, dense + weight * word_scores, fuse_ranks(dense, word_scores)
            for row, scores in zip(comparison_rows([name]), sums, strict=False):
                hits.setdefault(row, []).extend(evaluator.rank(scores))
            if len(names) == 1:  # the words are the same for all encoders
                bm25_hits += evaluator.rank(word_scores)
    if not names:
        if by_words is None:
            raise ValueError(f"index must be None without an encoder, got {str(index)!r}: give one encoder.")
        for rows in row_blocks(len(queries), len(documents)):
            bm25_hits += evaluator.rank(by_words.scores(queries[rows]))
    hits[_BM25] = bm25_hits
    if baseline is not None:
        check_choice("baseline", baseline, (*hits, None))
        hits = {baseline: hits[baseline]} | hits
    return _comparison_of(evaluator, hits)


def _open_index(
    index: str | PathLike[str] | None,
    task: RetrievalTask,
    model: SentenceTransformer,
    queries: Sequence[str],
    language: str | None,
    passages: int | Literal["default"] | None,
    options: Mapping[str, Any],
) -> HybridSearch:
    """Return the search of the task's documents that a file keeps; without one, it is made and saved.

    Raises:
        ValueError: if another program wrote the file, or it is of other documents, another encoder, language or length
            of passages.
    """
    with argument_called("index", "path"):
        path = resolved(index or "")
        is_new = stored_version(path) is None
    if is_new:
        passage_words = PASSAGE_WORDS if passages == "default" else passages
        settings = {"language": language, "passages": passage_words, **options}
        search = HybridSearch(model, task.documents, queries=queries, **settings)
        search.save(path)
        return search
    with argument_called("index", "path"):
        search = HybridSearch.open(path, model, batch_size=options.get("batch_size", 32))
    kept = {str(document.id): document.full_text.strip() for document in search.documents}
    if kept != {key: text.strip() for key, text in task.documents.items() if not is_blank(text)}:
        raise ValueError(f"index must be of the documents of the task, got {str(path)!r} of others: give a new file.")
    if language not in (None, search.language):
        raise ValueError(f"language must be that of the index, {search.language!r}, got {language!r}.")
    if passages not in ("default", search.passages):
        raise ValueError(f"passages must be those of the index, {search.passages}, got {passages}.")
    return search


def _blocks_of_index(search: HybridSearch, evaluator: RetrievalEvaluator) -> Iterator[tuple[Floats, Floats]]:
    """Yield what the encoder and BM25 give B queries at a time and the N documents of the task, (B, N) each."""
    queries: Any = evaluator.queries
    places = {key: place for place, key in enumerate(evaluator.corpus_ids)}
    columns = [places[str(key)] for key in search.ids]
    for rows in row_blocks(len(queries), len(places)):
        shape = len(queries[rows]), len(places)
        dense, bm25 = np.full(shape, -np.inf, dtype=np.float32), np.zeros(shape, dtype=np.float32)  # without text
        dense[:, columns], bm25[:, columns] = search.scores(queries[rows])
        yield dense, bm25


def _comparison_of(evaluator: RetrievalEvaluator, hits: dict[str, list[list[dict[str, Any]]]]) -> RetrievalComparison:
    """Return the metrics of each row's hits, with the differences to the first row."""
    rows: dict[str, dict[str, float]] = {}
    ranks: dict[str, list[int | None]] = {}
    of_baseline: np.ndarray | None = None
    for row, ranked in hits.items():
        metrics: Any = evaluator.compute_metrics(ranked)
        ndcg = evaluator.ndcg_of_queries[10]
        of_baseline = ndcg if of_baseline is None else of_baseline
        low, high = bootstrap_interval(ndcg - of_baseline)
        rows[row] = {f"{kind}@{k}": float(metrics[f"{kind}@k"][k]) for kind, k in _METRICS}
        rows[row] |= {"difference": float((ndcg - of_baseline).mean()), "low": low, "high": high}
        ranks[row] = evaluator.first_ranks(ranked)
    return RetrievalComparison(rows, list(map(str, evaluator.queries)), ranks)


def fuse_ranks(dense: np.ndarray, bm25: np.ndarray) -> np.ndarray:
    """Return the (Q, N) scores of reciprocal rank fusion: the sum of 1 / (60 + rank) over the sides that find it.

    A side finds its first 100 documents, BM25 only those that share a word with the query; of equal scores, the
    document that stands first in the collection comes first.

    Args:
        dense: (Q, N) similarities of an encoder.
        bm25: (Q, N) scores of BM25.

    Source: Cormack et al.: "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR
        2009.
    """
    fused = np.zeros(dense.shape)
    for scores, found in ((dense, np.ones(bm25.shape, dtype=bool)), (bm25, bm25 > 0)):
        order = highest(scores, RRF_DEPTH)
        gains = np.take_along_axis(found, order, axis=1) / (RRF_CONSTANT + 1 + np.arange(order.shape[1]))
        np.put_along_axis(fused, order, np.take_along_axis(fused, order, axis=1) + gains, axis=1)
    return fused


def _ndcg(hits: Sequence[dict[str, Any]], grades: dict[str, float], k: int) -> float:
    """Return the sum of grade / log2(1 + rank) over the first k hits, divided by that of the best order."""
    found = [grades.get(hit["corpus_id"], 0.0) for hit in hits]
    best = sorted(grades.values(), reverse=True)[:k]
    gain, ideal = (float(np.sum(x / np.log2(np.arange(2, len(x) + 2)))) for x in (np.array(found), np.array(best)))
    return gain / ideal
