"""What a search returns, whether its documents are held in memory or by Qdrant: hits, and what a change did."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypedDict

from st_extras.checks import check_iterable
from st_extras.encoders.passages import Passages
from st_extras.text.documents import Document, Scalar, check_id
from st_extras.text.term_weights import STOP_WORDS, matching_spans, search_words
from st_extras.text.words import Span

Id = int | str
FEWEST_CANDIDATES = 100
"""The encoder and BM25 each suggest at least this many documents, which the sum ranks."""


class Hit(TypedDict):
    """A document that a query found, as it was in the state that was searched.

    Attributes:
        corpus_id: its id: of a list, its place from 0.
        score: dense + w * bm25. The sum has no bound of its own.
        dense: the encoder's cosine or dot product with its best passage.
        bm25: BM25's score, of the whole document; 0 if it has no word of the query.
        title: of the document; "" without one.
        passage: first and last character of its best passage: ``text[first:last]`` of the document's text, without the
            title.
        text: the passage itself.
        matches: first and last character of each word of the query in this passage, left to right, as BM25 compares
            words; English stop words count only if the query has no other words.
        metadata: the further fields of the document, a dict of its own.
    """

    corpus_id: Id
    score: float
    dense: float
    bm25: float
    title: str
    passage: Span
    text: str
    matches: list[Span]
    metadata: dict[str, Scalar]


@dataclass(frozen=True)
class UpdateCounts:
    """What a change of a search did.

    Attributes:
        encoded: documents that are new, or whose title or text changed.
        kept: documents whose title and text stay; their metadata is now what was given with them.
        dropped: earlier documents that are gone or changed.
    """

    encoded: int
    kept: int
    dropped: int

    def __str__(self) -> str:
        noun, pronoun = "document" if self.encoded == 1 else "documents", "one" if self.dropped == 1 else "ones"
        return (
            f"{self.encoded:,} {noun} encoded (new or changed), {self.kept:,} kept, {self.dropped:,} earlier {pronoun} "
            "dropped (gone or changed)."
        )


def make_hit(
    document: Document, passage: Span, query: str, language: str | None, *, score: float, dense: float, bm25: float
) -> Hit:
    """Return a document as the hit of a query.

    Args:
        document: the document.
        passage: where its best passage stands in its text, see :func:`place_in_text`.
        query: what was searched for.
        language: of BM25's stems.
        score: dense + w * bm25.
        dense: of the passage.
        bm25: of the document.
    """
    text = document.text[slice(*passage)]
    return Hit(
        corpus_id=document.id,
        score=score,
        dense=dense,
        bm25=bm25,
        title=document.title,
        passage=passage,
        text=text,
        matches=matching_spans(text, _words_to_mark(query, language), language),
        metadata=dict(document.metadata),
    )


@lru_cache  # the hits of a query come one after the other
def _words_to_mark(query: str, language: str | None) -> frozenset[str]:
    """Return the words of a query that are marked in its hits: not "the" and its like, if there are others."""
    words = frozenset(search_words(query, language))
    return words - STOP_WORDS or words


def places_in_texts(documents: Sequence[Document], passages: Passages) -> list[list[Span]]:
    """Return where the passages of each of N documents stand in its text, see :func:`place_in_text`."""
    bounds = passages.first.tolist()
    return [
        [place_in_text(document, span) for span in passages.spans[first:end].tolist()]
        for document, first, end in zip(documents, bounds, bounds[1:], strict=False)
    ]


def place_in_text(document: Document, span: Sequence[int]) -> Span:
    """Return where a part of a document's full text stands in its text; one of the title alone is empty there."""
    first, last = span
    if document.title:
        space = len(document.text) - len(document.text.lstrip())  # the full text is the title, a space, stripped text
        first, last = (max(0, place - len(document.title) - 1) + space for place in span)
    return first, last


def check_ids(argument: str, ids: Collection[Id]) -> set[Id]:
    """Return ids as Python has them: those of numpy, too, are whole numbers.

    Raises:
        ValueError: if they are no collection of texts and whole numbers.
    """
    return {check_id(one, argument, "document") for one in check_iterable(argument, ids, "a list of ids")}


def has_same_text(document: Document, other: Document) -> bool:
    """Return whether two documents are found by the same queries: metadata may differ."""
    return document.title == other.title and document.text == other.text
