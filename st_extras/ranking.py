"""What search, adaptation and evaluation share: comparable embeddings, first documents, queries, the weight of BM25."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
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
_BLOCK = 4096  # passages whose embeddings are copied together when one of them goes
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


@dataclass(frozen=True, eq=False)
class EmbeddingBlocks:
    """(P, D) embeddings of passages in blocks, so that a change copies the blocks that it touches and no others.

    Attributes:
        blocks: (B, D) of some passages each, in their order; not to be changed.
        known: (P,) whether the embedding is not 0, as that of a text of which the encoder knows nothing.
        hashes: (P,) of the embeddings: equal ones have equal hashes, and few others have.
        dimension: D.
    """

    blocks: tuple[Floats, ...]
    known: NDArray[np.bool_]
    hashes: NDArray[np.uint64]
    dimension: int

    @classmethod
    def of(cls, *parts: Floats) -> EmbeddingBlocks:
        """Return the blocks of embeddings (M, D) that come in one or more parts; large parts are not copied.

        Such a part stays in memory as a whole until each of its blocks has been changed or is gone.
        """
        known = np.concatenate([part.any(axis=1) for part in parts])
        return cls(_in_blocks(parts), known, np.concatenate([*map(_hashes, parts)]), parts[0].shape[1])

    @cached_property
    def first(self) -> Numbers:
        """The number of each block's first passage; at the end, that of all passages, P."""
        return np.cumsum([0, *map(len, self.blocks)])

    @cached_property
    def repeated(self) -> tuple[Numbers, Numbers]:
        """The numbers (R,) of the passages whose embedding equals an earlier one, and of the first such one."""
        hashes, counts = np.unique(self.hashes, return_counts=True)
        candidates = np.flatnonzero(np.isin(self.hashes, hashes[counts > 1]))
        first_of: dict[bytes, int] = {}  # by a digest: different embeddings may have equal hashes
        first = np.empty_like(candidates)
        for place, number in enumerate(candidates.tolist()):
            block = int(np.searchsorted(self.first, number, side="right")) - 1
            row = self.blocks[block][number - self.first[block]]
            first[place] = first_of.setdefault(blake2b(row.tobytes(), digest_size=16).digest(), number)
        later = first < candidates
        return candidates[later], first[later]

    def __len__(self) -> int:
        return len(self.known)

    def whole(self) -> Floats:
        """Return all embeddings (P, D), a copy."""
        return np.concatenate([np.empty((0, self.dimension), np.float32), *self.blocks])

    def rows(self, numbers: Numbers) -> Floats:
        """Return the embeddings (R, D) of these passages, (R,) in ascending order."""
        found = np.empty((len(numbers), self.dimension), dtype=np.float32)
        bounds = np.searchsorted(numbers, self.first)
        for block in np.flatnonzero(np.diff(bounds)).tolist():
            here = slice(bounds[block], bounds[block + 1])
            np.take(self.blocks[block], numbers[here] - self.first[block], axis=0, out=found[here])
        return found

    def scores(self, queries: Floats) -> Floats:
        """Return the inner products (Q, P) with queries (Q, D).

        Equal embeddings have equal ones, to the bit: a matrix product rounds the columns at its edge otherwise.
        """
        scores = np.empty((len(queries), len(self)), dtype=np.float32)
        for first, block in zip(self.first.tolist(), self.blocks, strict=False):
            np.matmul(queries, block.T, out=scores[:, first : first + len(block)])
        later, earlier = self.repeated
        scores[:, later] = scores[:, earlier]
        return scores

    def changed(self, stays: NDArray[np.bool_], more: Floats) -> EmbeddingBlocks:
        """Return the embeddings that stay, (P,), and further ones (M, D) after them."""
        left = zip(self.blocks, np.split(stays, self.first[1:-1]), strict=False)
        blocks = _in_blocks([*(block if here.all() else block[here] for block, here in left), more])
        known = np.concatenate([self.known[stays], more.any(axis=1)])
        return EmbeddingBlocks(blocks, known, np.concatenate([self.hashes[stays], _hashes(more)]), self.dimension)


def _in_blocks(parts: Iterable[Floats]) -> tuple[Floats, ...]:
    """Return embeddings in blocks of at most 4,096; neighbours that fit into one are joined, others are not copied."""
    blocks: list[Floats] = []
    for part in parts:
        for first in range(0, len(part), _BLOCK):
            block = part[first : first + _BLOCK]
            if blocks and len(blocks[-1]) + len(block) <= _BLOCK:
                blocks[-1] = np.concatenate([blocks[-1], block])
            else:
                blocks.append(block)
    return tuple(blocks)


def _hashes(rows: Floats) -> NDArray[np.uint64]:
    """Return a hash (N,) of each row (N, D): the sum of its bits, two columns at a time, times fixed odd numbers.

    It is fast, not good: rows of equal hashes are compared again. So a last, odd column is left out.
    """
    pairs = np.ascontiguousarray(rows)[:, : rows.shape[1] // 2 * 2].view(np.uint64)
    factors = 2 * np.random.default_rng(0).integers(2**63, size=pairs.shape[1], dtype=np.uint64) + 1
    hashes: NDArray[np.uint64] = pairs @ factors  # modulo 2**64
    return hashes


def score_blocks(queries: Floats, documents: EmbeddingBlocks) -> Iterator[tuple[slice, Floats]]:
    """Yield B of the (Q, D) queries at a time: which ones, and their inner products (B, N) with N documents."""
    for rows in row_blocks(len(queries), len(documents)):
        yield rows, documents.scores(queries[rows])


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
    found = [highest(best(scores), count) for _, scores in score_blocks(queries, EmbeddingBlocks.of(documents))]
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
    of_documents: EmbeddingBlocks,
    share: float = BM25_SHARE,
    passages: Passages | None = None,
) -> float:
    """Return the weight of BM25 beside an encoder: see :func:`~st_extras.text.term_weights.bm25_weight`.

    What has the embedding 0 is left out: a table of words gives it to unknown ones. A weight of 0 is warned of.

    Args:
        bm25: of the N documents.
        queries: Q texts.
        of_queries: (Q, D), from :func:`comparable`.
        of_documents: N of dimension D, from :func:`comparable`; with passages those, P.
        share: how far the scores of BM25 spread after weighting, relative to the encoder's.
        passages: of each document, whose best one counts. None: the documents are whole.
    """
    asked = np.flatnonzero(of_queries.any(axis=1))
    best: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray if passages is None else passages.best
    has_embedding = best(of_documents.known)
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
