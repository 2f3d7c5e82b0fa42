"""What a hybrid search holds: one value that never changes; a change makes the next one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.passages import Passages
from st_extras.ranking import EmbeddingBlocks, Floats
from st_extras.text.documents import Document
from st_extras.text.term_weights import BM25, BM25_SHARE, WordCounts

WeightSource = Literal["given", "queries", "documents"]

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
