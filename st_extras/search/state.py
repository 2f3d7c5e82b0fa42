"""What a hybrid search holds: one value that never changes; a change makes the next one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.passages import Passages
from st_extras.ranking import Floats, Numbers
from st_extras.text.documents import Document
from st_extras.text.term_weights import BM25, BM25_SHARE, WordCounts

WeightSource = Literal["given", "queries", "documents"]

_BLOCK = 4096  # passages whose embeddings are copied together when one of them goes
_MAKING_BM25 = threading.Lock()  # one at a time in the process


@dataclass(frozen=True)
class WeightRule:
    """Where the weight of BM25 beside the encoder comes from.

    Attributes:
        given: the weight itself, which then stays. None: it is found.
        queries: to find it from. None of them: sentences of the documents.
        share: how far the scores of BM25 spread after weighting, relative to the encoder's.
    """

    given: float | None = None
    queries: tuple[str, ...] = ()
    share: float = BM25_SHARE

    @property
    def source(self) -> WeightSource:
        """The rule in one word."""
        if self.given is not None:
            return "given"
        return "queries" if self.queries else "documents"


@dataclass(frozen=True)
class Weight:
    """The weight of BM25 beside the encoder.

    Attributes:
        value: w in ``dense + w * BM25``; 0 before it is found.
        documents: how many there were when it was found.
        added: how many have been added or changed since.
    """

    value: float = 0.0
    documents: int = 0
    added: int = 0

    @property
    def is_old(self) -> bool:
        """Whether it is to be found again: the documents have doubled, or as many are others by now."""
        return not self.value or self.added >= self.documents


@dataclass(frozen=True, eq=False)
class EmbeddingBlocks:
    """(P, D) embeddings of passages in blocks, so that a change copies the blocks that it touches and no others.

    Attributes:
        blocks: (B, D) of some passages each, in their order; not to be changed.
        known: (P,) whether the embedding is not 0, as that of a text of which the encoder knows nothing.
        dimension: D.
    """

    blocks: tuple[Floats, ...]
    known: NDArray[np.bool_]
    dimension: int

    @classmethod
    def of(cls, parts: Sequence[Floats], dimension: int) -> EmbeddingBlocks:
        """Return the blocks of embeddings (M, D) that come in parts; large parts are not copied.

        Such a part stays in memory as a whole until each of its blocks has been changed or is gone.
        """
        known = np.concatenate([np.empty(0, dtype=np.bool_), *(part.any(axis=1) for part in parts)])
        return cls(_in_blocks(parts), known, dimension)

    @cached_property
    def first(self) -> Numbers:
        """The number of each block's first passage; at the end, that of all passages, P."""
        return np.cumsum([0, *map(len, self.blocks)])

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
        """Return the inner products (Q, P) with queries (Q, D)."""
        scores = np.empty((len(queries), len(self)), dtype=np.float32)
        for first, block in zip(self.first.tolist(), self.blocks, strict=False):
            np.matmul(queries, block.T, out=scores[:, first : first + len(block)])
        return scores

    def changed(self, stays: NDArray[np.bool_], more: Floats) -> EmbeddingBlocks:
        """Return the embeddings that stay, (P,), and further ones (M, D) after them."""
        left = zip(self.blocks, np.split(stays, self.first[1:-1]), strict=False)
        blocks = _in_blocks([*(block if here.all() else block[here] for block, here in left), more])
        return EmbeddingBlocks(blocks, np.concatenate([self.known[stays], more.any(axis=1)]), self.dimension)


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


def new_version() -> str:
    """Return the version of a state that differs from all others."""
    return uuid.uuid4().hex


@dataclass(frozen=True, eq=False)
class SearchState:
    """N documents that have text, with P passages, as a search compares them.

    Attributes:
        documents: in the order in which they were added.
        passages: which passages each document has, in its full text.
        embeddings: of the passages; their inner products are the similarities; 0 of what the encoder does not know.
        words: of the documents, with the language of BM25's stems and stop words.
        encoder: what made the embeddings.
        similarity: "cosine" or "dot".
        passage_words: words of a passage; None: documents stay whole.
        rule: where the weight comes from.
        weight: of BM25 beside the encoder.
        version: another one after each change; a file of this state has it too.
    """

    documents: list[Document]
    passages: Passages
    embeddings: EmbeddingBlocks
    words: WordCounts
    encoder: EncoderFingerprint
    similarity: str
    passage_words: int | None
    rule: WeightRule
    weight: Weight = Weight()
    version: str = field(default_factory=new_version)

    @cached_property
    def places(self) -> dict[int | str, int]:
        """The place of each document by its id."""
        return {document.id: place for place, document in enumerate(self.documents)}

    @property
    def bm25(self) -> BM25:
        """BM25 of the documents, made when it is first needed: by one thread, for which the others wait."""
        with _MAKING_BM25:
            return self.words.bm25

    def changed(
        self,
        kept: NDArray[np.bool_],
        staying: Sequence[Document],
        documents: Sequence[Document],
        passages: Passages,
        embeddings: Floats,
    ) -> SearchState:
        """Return the state with the documents that stay, and further ones after them.

        Args:
            kept: (N,) which documents stay.
            staying: these, perhaps with other metadata.
            documents: M further ones.
            passages: which of Q passages each of these has, in its full text.
            embeddings: (Q, D) of these passages.
        """
        stays = np.repeat(kept, np.diff(self.passages.first))  # (P,)
        _, left = self.passages.kept(np.flatnonzero(stays))
        return replace(
            self,
            documents=[*staying, *documents],
            passages=Passages(
                np.concatenate([left.first, left.first[-1] + passages.first[1:]]),
                np.concatenate([left.spans, passages.spans]),
            ),
            embeddings=self.embeddings.changed(stays, embeddings),
            words=self.words.changed(kept, [document.full_text for document in documents]),
            weight=replace(self.weight, added=self.weight.added + len(documents)),
            version=new_version(),
        )
