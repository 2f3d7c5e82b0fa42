"""Retrieval of duplicate questions (QQP) and reranking of similar ones (AskUbuntu), as PaSeR evaluates them.

Readers of the two public releases, and Sentence Transformers' own InformationRetrieval and Reranking evaluators set
up with them; the primary metric is MAP, beside MRR@10. Nothing is downloaded:

* QQP: ``quora_duplicate_questions.tsv`` of the first Quora data set release, or a TSV file of GLUE.
* AskUbuntu: the folder of github.com/taolei87/askubuntu (``text_tokenized.txt[.gz]``, ``dev.txt``, ``test.txt``).
"""

from __future__ import annotations

import csv
import gzip
import logging
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator, RerankingEvaluator
from sentence_transformers.util import cos_sim

logger = logging.getLogger(__name__)

_COLUMNS = ("question1", "question2", "is_duplicate")
_SCORES_AT_ONCE = 2**27  # queries x corpus chunk: 512 MiB of float32


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, corpus and what is relevant, under the ids that InformationRetrievalEvaluator takes.

    Attributes:
        queries: id -> question. A question that stands in the corpus too has the same id there.
        corpus: id -> question.
        relevant: query id -> ids of its duplicates in the corpus.
    """

    queries: dict[str, str]
    corpus: dict[str, str]
    relevant: dict[str, set[str]]

    def sample(self, max_queries: int, seed: int = 42) -> RetrievalTask:
        """The task with at most ``max_queries`` queries drawn at random, against the whole corpus."""
        if max_queries < 1:
            raise ValueError(f"max_queries must be >= 1, got {max_queries!r}.")
        chosen = set(random.Random(seed).sample(list(self.queries), min(max_queries, len(self.queries))))
        return replace(self, queries={key: text for key, text in self.queries.items() if key in chosen})


def read_question_pairs(path: str | PathLike[str], *, quoted: bool = True) -> list[tuple[str, str, bool]]:
    """The pairs of a QQP TSV file: first question, second question, whether they are duplicates.

    Rows with an empty question or too few fields (both releases have a few) are left out and counted in the log.

    Args:
        path: a TSV file, gzip where its name ends in .gz, with the columns question1, question2, is_duplicate.
        quoted: fields may be in double quotes, as in Quora's own release; False for GLUE's files.

    Raises:
        ValueError: no such file, a missing column, a label that is neither 0 nor 1, or no pair at all.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"There is no question pair file {str(file)!r}.")
    pairs: list[tuple[str, str, bool]] = []
    skipped = 0
    for number, first, second, label in _question_rows(file, quoted):
        if not (first and second and label):
            skipped += 1
            continue
        if label not in ("0", "1"):
            raise ValueError(f"{file}, line {number}: is_duplicate must be 0 or 1, got {label!r}.")
        pairs.append((first, second, label == "1"))
    if not pairs:
        raise ValueError(f"{file} holds no question pair.")
    if skipped:
        logger.info("%s: %d rows with an empty question or too few fields left out.", file, skipped)
    return pairs


def _question_rows(file: Path, quoted: bool) -> Iterator[tuple[int, str, str, str]]:
    """Line number and the three columns of each row, "" where a field is missing."""
    with _open(file, newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        found = reader.fieldnames or []
        missing = [column for column in _COLUMNS if column not in found]
        if missing:
            raise ValueError(f"{file}: no column {', '.join(missing)}; it has {', '.join(found) or 'none'}.")
        try:
            for row in reader:
                first, second, label = ((row[column] or "").strip() for column in _COLUMNS)
                yield reader.line_num, first, second, label
        except csv.Error as error:
            hint = "; a quote is left open: try quoted=False" if quoted else ""
            raise ValueError(f"{file}, line {reader.line_num}: {error}{hint}.") from None


def question_retrieval(pairs: Iterable[tuple[str, str, bool]], *, exclude_identical: bool = True) -> RetrievalTask:
    """PaSeR's set-up: the corpus is every second question, the queries are the first ones with a duplicate.

    Equal texts are one question. Relevant to a query are the second questions of its duplicate pairs.

    Args:
        pairs: as `read_question_pairs` gives them.
        exclude_identical: a question is no answer to itself: where a query stands in the corpus too, it is never
            relevant (`QuestionRetrievalEvaluator` then passes over it as well). The paper does not say.

    Raises:
        ValueError: no query is left.
    """
    ids: dict[str, str] = {}
    corpus: dict[str, str] = {}
    duplicates: dict[str, set[str]] = {}
    texts: dict[str, str] = {}
    for first, second, is_duplicate in pairs:
        query = ids.setdefault(first, f"question{len(ids)}")
        document = ids.setdefault(second, f"question{len(ids)}")
        corpus[document] = second
        if is_duplicate and not (exclude_identical and query == document):
            texts[query] = first
            duplicates.setdefault(query, set()).add(document)
    if not duplicates:
        raise ValueError("pairs must hold at least one duplicate pair of two different questions, got none.")
    return RetrievalTask(texts, corpus, duplicates)


class QuestionRetrievalEvaluator(InformationRetrievalEvaluator):
    """InformationRetrievalEvaluator that passes over the document whose id is the query's own, as MTEB does.

    Cosine scores; the primary metric is MAP. The corpus is scored in chunks that keep the score matrix under 512 MiB.

    Args:
        task: from `question_retrieval`.
        map_at_k: depth of MAP; a duplicate ranked below counts as not found (the own text takes one rank of it).
        exclude_identical: pass over a query's own text in the corpus.
        name: prefix of the metrics and part of the CSV file's name.
        **options: those of InformationRetrievalEvaluator (batch_size, truncate_dim, prompts, ...).

    Example:
        >>> from st_extras.evaluation.retrieval import QuestionRetrievalEvaluator, question_retrieval
        >>> pairs = [("how old is the sun", "what is the age of the sun", True), ("who am i", "where am i", False)]
        >>> QuestionRetrievalEvaluator(question_retrieval(pairs)).primary_metric
        'cosine_map@100'
    """

    def __init__(
        self,
        task: RetrievalTask,
        *,
        map_at_k: int = 100,
        exclude_identical: bool = True,
        name: str = "",
        **options: Any,
    ) -> None:
        if map_at_k < 1:
            raise ValueError(f"map_at_k must be >= 1, got {map_at_k!r}.")
        self.exclude_identical = exclude_identical
        settings: dict[str, Any] = {
            "queries": task.queries,
            "corpus": task.corpus,
            "relevant_docs": task.relevant,
            "map_at_k": [map_at_k],
            "corpus_chunk_size": max(1, min(50_000, _SCORES_AT_ONCE // len(task.queries))),
            "score_functions": {"cosine": cos_sim},
            "name": name,
        }
        super().__init__(**(settings | options))
        self.primary_metric = f"{name}_cosine_map@{map_at_k}" if name else f"cosine_map@{map_at_k}"

    def compute_metrics(self, queries_result_list: list[Any]) -> Any:
        """The metrics of the ranked hits, without each query's own text."""
        if self.exclude_identical:
            queries_result_list = [
                [hit for hit in hits if hit["corpus_id"] != query]
                for query, hits in zip(self.queries_ids, queries_result_list, strict=True)
            ]
        return super().compute_metrics(queries_result_list)

    @property
    def description(self) -> str:
        """The heading in the model card."""
        return "Question Retrieval"


def read_askubuntu(
    folder: str | PathLike[str], split: str = "test", *, with_body: bool = False
) -> list[dict[str, str | list[str]]]:
    """AskUbuntu's queries with their candidates (20 each in the release) as samples for RerankingEvaluator.

    Candidates not marked as similar are negatives. Queries with no similar candidate, or with nothing else, rank
    nothing: they are left out, as every published figure does, and counted in the log.

    Args:
        folder: holds ``text_tokenized.txt[.gz]`` (id, title, body) and ``<split>.txt`` (query id, similar ids,
            candidate ids, BM25 scores), tab-separated.
        split: "dev" or "test".
        with_body: texts are title and body; the title alone otherwise, as is usual with short encoders.

    Returns:
        A dict a query: "query", "positive" and "negative".

    Raises:
        ValueError: a missing folder or file, an unknown split, a malformed line, an id without text, or no query.
    """
    if split not in ("dev", "test"):
        raise ValueError(f'split must be "dev" or "test", got {split!r}.')
    root = Path(folder)
    texts = _askubuntu_texts(root, with_body)
    file = _existing(root, f"{split}.txt")
    samples: list[dict[str, str | list[str]]] = []
    skipped = 0
    with _open(file) as stream:
        for number, line in enumerate(stream, start=1):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) < 3:
                raise ValueError(f"{file}, line {number}: {len(fields)} tab-separated fields, expected 3 or 4.")
            similar = set(fields[1].split())
            candidates = list(dict.fromkeys(fields[2].split()))
            unknown = [key for key in (fields[0], *candidates) if key not in texts]
            if unknown:
                raise ValueError(f"{file}, line {number}: no text for the question {unknown[0]!r}.")
            positive = [texts[key] for key in candidates if key in similar]
            negative = [texts[key] for key in candidates if key not in similar]
            if positive and negative:
                samples.append({"query": texts[fields[0]], "positive": positive, "negative": negative})
            else:
                skipped += 1
    if not samples:
        raise ValueError(f"{file} holds no query with a similar and another candidate.")
    if skipped:
        logger.info("%s: %d queries without a similar candidate, or without another, left out.", file, skipped)
    return samples


def reranking_evaluator(
    samples: list[dict[str, str | list[str]]], *, name: str = "", **options: Any
) -> RerankingEvaluator:
    """RerankingEvaluator on the samples (MAP, MRR@10, NDCG@10) with MAP as the primary metric.

    Sentence Transformers lists the positives first and does not settle ties: the MRR of an encoder that gives equal
    cosines flatters it, its MAP and NDCG do not.

    Args:
        samples: from `read_askubuntu`, or dicts of the same keys.
        name: prefix of the metrics and part of the CSV file's name.
        **options: those of RerankingEvaluator (batch_size, at_k, truncate_dim, ...).

    Raises:
        ValueError: no samples, or one without query, positive or negative.
    """
    if not samples:
        raise ValueError("samples must hold at least one query, got [].")
    for sample in samples:
        missing = [key for key in ("query", "positive", "negative") if not sample.get(key)]
        if missing:
            raise ValueError(f"samples must have query, positive and negative, got none of {missing} in {sample!r}.")
    evaluator = RerankingEvaluator(samples, name=name, **options)
    evaluator.primary_metric = f"{name}_map" if name else "map"
    return evaluator


def _askubuntu_texts(root: Path, with_body: bool) -> dict[str, str]:
    texts = {}
    file = _existing(root, "text_tokenized.txt")
    with _open(file) as stream:
        for number, line in enumerate(stream, start=1):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) < 2:
                raise ValueError(f"{file}, line {number}: {len(fields)} tab-separated fields, expected 2 or 3.")
            texts[fields[0]] = " ".join(fields[1:3]).strip() if with_body else fields[1].strip()
    return texts


def _existing(root: Path, name: str) -> Path:
    for file in (root / name, root / f"{name}.gz"):
        if file.is_file():
            return file
    raise ValueError(f"{str(root)!r} holds neither {name} nor {name}.gz.")


def _open(file: Path, newline: str = "\n") -> Any:
    opener: Any = gzip.open if file.suffix == ".gz" else open
    return opener(file, "rt", encoding="utf8", newline=newline)
