"""Passages of documents that an encoder would not read whole: where they stand, and the best one's score."""

from __future__ import annotations

import copy
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from st_extras.checks import check_count
from st_extras.encoders.prompts import prompt_for
from st_extras.text.words import SPACED_WORD, Span

logger = logging.getLogger(__name__)
PASSAGE_WORDS = 110
"""Words of a passage: what search cuts long documents into by default."""
_FEWEST_WORDS, _MOST_WORDS = 4, 10_000  # of a passage
_FEWEST_TOKENS = 2  # that an encoder must have room for, for each word of a passage
_COUNTED = 1000  # texts that are tokenized at a time
_LOOKED_AT = 500  # texts of a corpus that show how long the others are


@dataclass(frozen=True)
class Passages:
    """The passages of N documents, in the order of the documents. Each has one at least, a short one itself.

    Attributes:
        first: (N + 1,) the number of each document's first passage; at the end, that of all passages, P.
        spans: (P, 2) where each passage begins and ends in the text of its document, in characters.
    """

    first: NDArray[np.int64]
    spans: NDArray[np.int32]

    def texts(self, documents: Sequence[str]) -> list[str]:
        """Return the P texts of the passages."""
        counts = np.diff(self.first)
        of = np.repeat(np.arange(len(documents)), counts).tolist()
        return [documents[i][start:end] for i, (start, end) in zip(of, self.spans.tolist(), strict=True)]

    def kept(self, rows: NDArray[Any]) -> tuple[NDArray[np.int64], Passages]:
        """Return the numbers of the documents that have these passages (in order), and the passages of these."""
        of = np.searchsorted(self.first, rows, side="right") - 1
        documents, counts = np.unique(of, return_counts=True)
        return documents, Passages(np.array([0, *counts.cumsum()], dtype=np.int64), self.spans[rows])

    def best(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the (Q, N) scores of the documents for (Q, P) ones of the passages: that of the best passage."""
        whole = len(self.spans) == len(self.first) - 1
        return scores if whole else np.maximum.reduceat(scores, self.first[:-1], axis=-1)


def check_passages(words: Any) -> int | None:
    """Return the words of a passage if they are a whole number from 4 to 10,000, or None.

    Raises:
        ValueError: if they are not.
    """
    return None if words is None else check_count("passages", words, _FEWEST_WORDS, _MOST_WORDS)


def cut_documents(
    model: SentenceTransformer, documents: Sequence[str], words: int | None, prompt: str | None = None
) -> Passages:
    """Cut the documents that an encoder would not read whole into passages that share a quarter with the next.

    Args:
        model: reads ``max_seq_length`` tokens of a text, with the prompt for documents. One without a limit reads all.
        documents: N texts.
        words: of a passage (Chinese and its like: characters), at least 4; fewer where the encoder reads fewer than 2
            tokens for each. The last one ends with the document. A word that the encoder would not read whole, such as
            an address or a key, stands alone with up to three words beside it; what still has too many tokens is cut in
            two until it is read. None: all documents stay whole.
        prompt: before documents; None: the model's own.
    """
    longer = np.zeros(len(documents), dtype=bool) if words is None else longer_than_read(model, documents, prompt)
    size = min(words or 0, max(_FEWEST_WORDS, (model.max_seq_length or 0) // _FEWEST_TOKENS))
    spans = [[(0, len(text))] for text in documents]
    numbers = np.flatnonzero(longer).tolist()
    has_room = bool(numbers) and not longer_than_read(model, [""], prompt).any()  # for a text after the prompt
    long_words = _long_words(model, [documents[i] for i in numbers], prompt) if has_room else set()
    for i in numbers:
        spans[i] = _spans_around(long_words, documents[i], size)
    if has_room:
        parts = iter(_read_whole(model, [(documents[i], span) for i in numbers for span in spans[i]], prompt))
        for i in numbers:  # overlapping passages may have a part in common
            spans[i] = [*dict.fromkeys(part for _ in spans[i] for part in next(parts))]
    first = np.array([0, *accumulate(map(len, spans))], dtype=np.int64)
    return Passages(first, np.array([*chain.from_iterable(spans)], dtype=np.int32).reshape(-1, 2))


def _long_words(model: SentenceTransformer, documents: Sequence[str], prompt: str | None) -> set[str]:
    """Return the words of documents that the encoder would not read whole."""
    words = [*{word for text in documents for word in SPACED_WORD.findall(text)}]
    return {word for word, is_long in zip(words, longer_than_read(model, words, prompt), strict=True) if is_long}


def _spans_around(long_words: Container[str], text: str, size: int) -> list[Span]:
    """Return where the passages of a text stand; words that are too long stand beside them, with what is near.

    Args:
        long_words: the words that are too long.
        text: any text.
        size: words of a passage.
    """
    words = [*SPACED_WORD.finditer(text)]
    is_long = [word[0] in long_words for word in words]
    if not any(is_long):
        return passage_spans(text, size)
    runs = [(long, [*run]) for long, run in groupby(range(len(words)), key=lambda i: is_long[i])]
    spans: list[Span] = []
    for apart, group in groupby(runs, key=lambda run: run[0] or len(run[1]) < _FEWEST_WORDS):
        places = [place for _, run in group for place in run]
        start, end = words[places[0]].start(), words[places[-1]].end()
        found = [(0, end - start)] if apart else passage_spans(text[start:end], size)
        spans += [(start + first, start + last) for first, last in found]
    return spans


def passage_spans(text: str, words: int, step: int | None = None) -> list[Span]:
    """Return where the passages of a text begin and end, in characters; at least one.

    Args:
        text: any text.
        words: of a passage, at least 1; Chinese and its like: characters.
        step: words from the beginning of a passage to that of the next. None: three quarters of ``words``.
    """
    step = max(1, 3 * words // 4) if step is None else step
    found = [word.span() for word in SPACED_WORD.finditer(text)]
    if len(found) <= words:
        return [(0, len(text))]
    starts = [*range(0, len(found) - words, step), len(found) - words]
    return [(found[start][0], found[start + words - 1][1]) for start in starts]


def _read_whole(
    model: SentenceTransformer, passages: Sequence[tuple[str, Span]], prompt: str | None
) -> list[list[Span]]:
    """Return what each passage of a text is cut into, in two again and again, for the encoder to read all of it."""
    pieces = [text[start:end] for text, (start, end) in passages]
    longer = (longer_than_read(model, pieces, prompt) & [len(piece) > 1 for piece in pieces]).tolist()
    halves = [
        (text, half) for (text, span), cut in zip(passages, longer, strict=True) if cut for half in _halves(text, *span)
    ]
    parts = iter(_read_whole(model, halves, prompt) if halves else [])
    return [[*next(parts), *next(parts)] if cut else [span] for (_, span), cut in zip(passages, longer, strict=True)]


def _halves(text: str, start: int, end: int) -> list[Span]:
    """Return two passages in place of one: between the words nearest to its middle, else in the middle of a word.

    Neither has less than a quarter of the characters, so that no sign stands alone.
    """
    words = [word.span() for word in SPACED_WORD.finditer(text, start, end)] or [(start, end)]
    start, end = words[0][0], words[-1][1]
    middle = (start + end) // 2
    cut = min((first for first, _ in words), key=lambda place: abs(place - middle))
    if 4 * min(cut - start, end - cut) < end - start:
        cut = middle
    return [(start, start + len(text[start:cut].rstrip())), (cut, end)]


def longer_than_read(
    model: SentenceTransformer, documents: Sequence[str], prompt: str | None = None
) -> NDArray[np.bool_]:
    """Return which of N documents have more tokens than the encoder reads, (N,): with a prompt, or the model's own."""
    longer = np.zeros(len(documents), dtype=bool)
    limit, tokenizer = model.max_seq_length, getattr(model[0], "tokenizer", None)
    if not isinstance(limit, int) or not callable(tokenizer):  # a table of words reads all
        return longer
    prompt = prompt_for(model, "document") if prompt is None else prompt
    may_be = [i for i, text in enumerate(documents) if len(f"{prompt}{text}".encode("utf8", "replace")) > limit - 2]
    if may_be:  # without truncation, which is the tokenizer's state: another thread encodes
        tokenizer = copy.deepcopy(tokenizer)
    for begin in range(0, len(may_be), _COUNTED):
        numbers = may_be[begin : begin + _COUNTED]
        rows = tokenizer([prompt + documents[i] for i in numbers], truncation=False, verbose=False)["input_ids"]
        longer[numbers] = [len(row) > limit for row in rows]
    return longer


def warn_of_long_ones(model: SentenceTransformer, documents: Sequence[str]) -> None:
    """Warn of documents that are read in part, once, with their number."""
    if count := int(longer_than_read(model, documents).sum()):
        logger.warning(
            "%s of %s documents are longer than the %s tokens that the encoder reads: passages=%d (--passages) reads "
            "them whole.",
            f"{count:,}",
            f"{len(documents):,}",
            model.max_seq_length,
            PASSAGE_WORDS,
        )


def warn_of_cut_texts(model: SentenceTransformer, texts: Sequence[str]) -> None:
    """Warn if many of some texts, which have no passages, are read in part: of the first 500, more than a tenth."""
    looked_at = texts[:_LOOKED_AT]
    if (count := int(longer_than_read(model, looked_at, "").sum())) > len(looked_at) / 10:
        logger.warning(
            "%s of the first %s texts are longer than the %s tokens that the encoder reads: of these, only the "
            "beginnings count. Give their paragraphs or sentences as texts instead.",
            f"{count:,}",
            f"{len(looked_at):,}",
            model.max_seq_length,
        )
