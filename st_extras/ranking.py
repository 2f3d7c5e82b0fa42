"""What search, adaptation and evaluation share: comparable embeddings, first documents, queries, the weight of BM25."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_choice
from st_extras.encoders.passages import Passages
from st_extras.functional import full_precision, row_blocks, unit_rows
from st_extras.text.corpus import blocks_of_words, is_blank, iterate_sentences
from st_extras.text.term_weights import BM25, BM25_SHARE, bm25_weight_of_blocks, searchable_sentences

logger = logging.getLogger(__name__)
Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
MOST_QUERIES = 1000
"""More are not used: means, comparisons and the weight of BM25 are exact enough by then."""
_MADE_QUERIES = 200  # that are made from the documents where none are given
_WORDS = 12  # of a document with a single sentence, that stand for a query


# --- scores and what they find first ---


def check_product(model: SentenceTransformer) -> None:
    """Check that an encoder compares by cosine or dot product.

    Raises:
        ValueError: if it compares by distances.
    """
    check_choice("model.similarity_fn_name", model.similarity_fn_name, ("cosine", "dot"))


def comparable(model: SentenceTransformer, embeddings: Tensor) -> Floats:
    """Return (N, D) float32 rows on the CPU whose inner products are the model's similarities.

    Args:
        model: the encoder; it compares by cosine, for which the rows get length 1, or by dot product.
        embeddings: (N, D).
    """
    rows = unit_rows(embeddings) if model.similarity_fn_name == "cosine" else full_precision(embeddings)
    found: Floats = rows.float().cpu().numpy()
    return found


def score_blocks(queries: Floats, documents: Floats) -> Iterator[tuple[slice, Floats]]:
    """Yield B of the (Q, D) queries at a time: which ones, and their inner products (B, N) with (N, D) documents.

    Equal documents have equal ones, to the bit: a matrix product rounds the columns at its edge otherwise.
    """
    places: dict[int, int] = {}
    first = np.array([places.setdefault(hash(row.tobytes()), number) for number, row in enumerate(documents)], np.int64)
    later = np.flatnonzero(first < np.arange(len(first)))  # those that equal an earlier one
    for rows in row_blocks(len(queries), len(documents)):
        scores = queries[rows] @ documents.T
        scores[:, later] = scores[:, first[later]]
        yield rows, scores


def highest(scores: NDArray[Any], count: int) -> Numbers:
    """Return the numbers (B, K) of the K = min(``count``, N) highest of the (B, N) scores of each row, best first.

    Of equal scores, the lower number comes first.
    """
    count = min(count, scores.shape[1])
    lowest = np.partition(scores, -count, axis=1)[:, -count]
    found = np.empty((len(scores), count), dtype=np.int64)
    for place, (row, last) in enumerate(zip(scores, lowest, strict=True)):
        above = np.flatnonzero(row > last)
        above = above[np.argsort(-row[above], kind="stable")]
        found[place] = np.concatenate([above, np.flatnonzero(row == last)[: count - len(above)]])
    return found


def first_documents(queries: Floats, documents: Floats, count: int, passages: Passages | None = None) -> Numbers:
    """Return the numbers (Q, min(``count``, N)) of the documents that each query (Q, D) finds first.

    Args:
        queries: (Q, D).
        documents: (N, D); with passages those, (P, D).
        count: how many.
        passages: of each document, whose best one counts. None: the documents are whole.
    """
    best: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray if passages is None else passages.best
    found = [highest(best(scores), count) for _, scores in score_blocks(queries, documents)]
    total = len(documents) if passages is None else len(passages.first) - 1
    return np.concatenate([np.empty((0, min(count, total)), dtype=np.int64), *found])


# --- queries ---


def sample_queries(queries: Any) -> list[str]:
    """Return at most 1,000 different queries, drawn at random whatever their order; blank ones are left out.

    Args:
        queries: a list, or a data set with a text column.

    Raises:
        ValueError: if one is not a text.
    """
    texts = map(str.strip, iterate_sentences(queries, name="queries"))
    return _sample((text for text in texts if not is_blank(text)), MOST_QUERIES)


def queries_from_documents(documents: Sequence[str]) -> list[str]:
    """Return a sentence of each of at most 200 different documents, drawn at random whatever their order.

    Of a document with a single sentence, its first 12 words. A sentence that is drawn from several stands once.
    """
    draw = random.Random(0)
    made = []
    for document in _sample((text.strip() for text in documents if not is_blank(text)), _MADE_QUERIES):
        sentences = searchable_sentences(document)
        made.append(draw.choice(sentences) if len(sentences) > 1 else next(blocks_of_words([document], _WORDS)))
    return list(dict.fromkeys(made))


def search_queries(queries: Any, documents: Sequence[str]) -> list[str]:
    """Return the different queries that are used, at most 1,000; None: sentences of the documents stand for them.

    Raises:
        ValueError: if one is not a text, or most of those that were given are documents.
    """
    if queries is None:
        return queries_from_documents(documents)
    different = sample_queries(queries)
    same = len(set(different) & set(documents))
    if 2 * same > len(different):
        raise ValueError(f"queries must differ from the documents, but {same} of {len(different)} are documents.")
    return different


def _sample(texts: Iterator[str], most: int) -> list[str]:
    different = sorted(set(texts))  # so that the order of the texts changes nothing
    return random.Random(0).sample(different, min(most, len(different)))


# --- the weight of BM25 ---


def hybrid_weight(
    bm25: BM25,
    queries: Sequence[str],
    of_queries: Floats,
    of_documents: Floats,
    share: float = BM25_SHARE,
    passages: Passages | None = None,
) -> float:
    """Return the weight of BM25 beside an encoder: see :func:`~st_extras.text.term_weights.bm25_weight`.

    What has the embedding 0 is left out: a table of words gives it to unknown ones. A weight of 0 is warned of.

    Args:
        bm25: of the N documents.
        queries: Q texts.
        of_queries: (Q, D), from :func:`comparable`.
        of_documents: (N, D), from :func:`comparable`; with passages those, (P, D).
        share: how far the scores of BM25 spread after weighting, relative to the encoder's.
        passages: of each document, whose best one counts. None: the documents are whole.
    """
    asked = np.flatnonzero(of_queries.any(axis=1))
    best: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray if passages is None else passages.best
    has_embedding = best(np.asarray(of_documents.any(axis=1)))
    if not len(asked) or not has_embedding.any():
        logger.warning("BM25 alone ranks: the encoder gives all queries or all documents the embedding 0.")
        return 1.0
    columns = slice(None) if has_embedding.all() else has_embedding  # without a copy, if there is a choice
    weight = bm25_weight_of_blocks(
        (
            (best(dense)[:, columns], bm25.scores([queries[row] for row in asked[rows]])[:, columns])
            for rows, dense in score_blocks(of_queries[asked], of_documents)
        ),
        share,
    )
    if not weight:
        logger.warning("BM25 has the weight 0: its scores or the encoder's are the same for all documents.")
    return weight
