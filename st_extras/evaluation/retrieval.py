"""Retrieval of duplicate questions (QQP), as PaSeR evaluates it: a reader, a task and an evaluator.

Nothing is downloaded. The data is ``quora_duplicate_questions.tsv`` of the first Quora data set release, or a TSV file
of GLUE.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import cos_sim

from st_extras.checks import check_bool, check_count, check_instance, check_seed, shown
from st_extras.evaluation.reporting import check_further_options, check_iterable, join_name
from st_extras.text.corpus import check_sentence
from st_extras.text.files import read_records

logger = logging.getLogger(__name__)

_COLUMNS = ("question1", "question2", "is_duplicate")
_MOST = 1_000_000  # questions in a ranking
_SCORES_AT_ONCE = 2**27  # queries x corpus chunk: 512 MiB of float32


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, corpus and relevant documents, by id, as InformationRetrievalEvaluator takes them.

    Attributes:
        queries: id -> question. A question that is also in the corpus has the same id there.
        corpus: id -> question.
        relevant: query id -> ids of its duplicates in the corpus.
    """

    queries: dict[str, str]
    corpus: dict[str, str]
    relevant: dict[str, set[str]]

    def sample(self, max_queries: int, seed: int = 42) -> RetrievalTask:
        """Return the task with at most ``max_queries`` queries, drawn at random, and the whole corpus.

        Raises:
            ValueError: if ``max_queries`` is not a whole number >= 1, or the seed not a whole number.
        """
        max_queries = check_count("max_queries", max_queries, at_least=1)
        seed = check_seed("seed", seed)
        chosen = set(random.Random(seed).sample(list(self.queries), min(max_queries, len(self.queries))))
        return replace(self, queries={key: text for key, text in self.queries.items() if key in chosen})


def read_question_pairs(path: str | PathLike[str], *, quoted: bool = True) -> list[tuple[str, str, bool]]:
    """Read the pairs of a QQP file: first question, second question, whether they are duplicates.

    Rows with an empty question or too few fields (both releases have a few) are left out; the log says how many.

    Args:
        path: a TSV file, plain or gzip (name ends in .gz), with the columns question1, question2, is_duplicate.
        quoted: whether fields may be in double quotes, as in Quora's own release; False for GLUE's files.

    Raises:
        ValueError: if the file or a column is missing, a line cannot be read or has too many fields, a label is neither
            0 nor 1, or there is no pair.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"There is no question pair file {str(file)!r}.")
    records = read_records(file, quoted=quoted, quote_hint="try quoted=False")
    _, names = next(records, (1, []))
    missing = [column for column in _COLUMNS if column not in names]
    if missing:
        raise ValueError(f"{file}: no column {', '.join(missing)}; it has {', '.join(names) or 'none'}.")
    positions = [names.index(column) for column in _COLUMNS]
    pairs: list[tuple[str, str, bool]] = []
    skipped = 0
    for number, fields in records:
        first, second, label = (fields[at].strip() if at < len(fields) else "" for at in positions)
        if not (first and second and label):
            skipped += 1
        elif label not in ("0", "1"):
            raise ValueError(f"{file}, line {number}: is_duplicate must be 0 or 1, got {label!r}.")
        else:
            pairs.append((first, second, label == "1"))
    if not pairs:
        raise ValueError(f"{file} holds no question pair.")
    if skipped:
        logger.info("%s: %d rows with an empty question or too few fields left out.", file, skipped)
    return pairs


def question_retrieval(pairs: Iterable[tuple[str, str, bool]], *, exclude_identical: bool = True) -> RetrievalTask:
    """Set up PaSeR's task: the corpus is every second question, the queries are the first ones with a duplicate.

    Equal texts are one question. The second questions of a query's duplicate pairs are relevant to it.

    Args:
        pairs: as ``read_question_pairs`` returns them.
        exclude_identical: whether a question that is both query and document is left out of its own relevant ones
            (``QuestionRetrievalEvaluator`` then ignores it as a hit, too). The paper does not say.

    Raises:
        ValueError: if ``pairs`` does not hold two strings and a label (True or False, 1 or 0) each, or no query is
            left.
    """
    check_bool("exclude_identical", exclude_identical)
    ids: dict[str, str] = {}
    corpus: dict[str, str] = {}
    duplicates: dict[str, set[str]] = {}
    texts: dict[str, str] = {}
    for row, pair in enumerate(check_iterable("pairs", pairs, "a list of two questions and a label each")):
        if not isinstance(pair, tuple | list) or len(pair) != 3 or pair[2] not in (0, 1):
            raise ValueError(f"pairs, row {row}: expected two questions and True or False, got {shown(pair)}.")
        first, second = (check_sentence(text, f"pairs, row {row}") for text in pair[:2])
        query = ids.setdefault(first, f"question{len(ids)}")
        document = ids.setdefault(second, f"question{len(ids)}")
        corpus[document] = second
        if pair[2] and not (exclude_identical and query == document):
            texts[query] = first
            duplicates.setdefault(query, set()).add(document)
    if not duplicates:
        raise ValueError("pairs must hold at least one duplicate pair of two different questions, got none.")
    return RetrievalTask(texts, corpus, duplicates)


class QuestionRetrievalEvaluator(InformationRetrievalEvaluator):
    """An InformationRetrievalEvaluator that ignores the document whose id is the query's own, as MTEB does.

    It compares by cosine; MAP is the primary metric. The corpus is scored in chunks, which keeps the score matrix
    below 512 MiB.

    Args:
        task: from ``question_retrieval``.
        map_at_k: depth of MAP; a duplicate ranked below it counts as not found (the query's own text takes one rank).
        exclude_identical: whether a query's own text in the corpus is ignored as a hit.
        name: prefix of the metrics and part of the CSV file's name.
        **options: further arguments of InformationRetrievalEvaluator (batch_size, truncate_dim, prompts, ...).

    Raises:
        ValueError: if the task is no RetrievalTask or has no query, ``map_at_k`` is not a whole number from 1 to
            1,000,000, ``name`` cannot be part of a file's name, or another setting is not allowed.

    Example:
        >>> from st_extras.evaluation import QuestionRetrievalEvaluator, question_retrieval
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
        check_instance("task", task, RetrievalTask)
        if not task.queries:
            raise ValueError("task must hold at least one query, got none.")
        map_at_k = check_count("map_at_k", map_at_k, 1, _MOST)
        self.exclude_identical = check_bool("exclude_identical", exclude_identical)
        options = check_further_options(name, options)
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
        self.primary_metric = join_name(name, f"cosine_map@{map_at_k}")

    def compute_metrics(self, queries_result_list: list[Any]) -> Any:
        """Return the metrics of the ranked hits, without each query's own text."""
        if self.exclude_identical:
            queries_result_list = [
                [hit for hit in hits if hit["corpus_id"] != query]
                for query, hits in zip(self.queries_ids, queries_result_list, strict=True)
            ]
        return super().compute_metrics(queries_result_list)
