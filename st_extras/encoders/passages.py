"""Passages of documents that an encoder would not read whole: where they stand, and the best one's score."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from st_extras.encoders.prompts import prompt_for
from st_extras.text.corpus import WORD

PASSAGE_WORDS = 80
"""Words of a passage: what search cuts long documents into, unless it is told otherwise."""
_FEWEST_TOKENS = 2  # that an encoder must have room for, for each word of a passage
_COUNTED = 1000  # texts that are tokenized at a time


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

    def documents(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Return the numbers of the documents that have these passages, each once, in order."""
        return np.unique(np.searchsorted(self.first, numbers, side="right") - 1)

    def best(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the (Q, N) scores of the documents for (Q, P) ones of the passages: that of the best passage."""
        whole = len(self.spans) == len(self.first) - 1
        return scores if whole else np.maximum.reduceat(scores, self.first[:-1], axis=-1)


def cut_documents(model: SentenceTransformer, documents: Sequence[str], words: int | None) -> Passages:
    """Cut the documents that an encoder would not read whole into passages that overlap by a quarter.

    Args:
        model: reads ``max_seq_length`` tokens of a text, with the prompt for documents. One without a limit reads all.
        documents: N texts.
        words: of a passage (Chinese and its like: characters), at least 4; fewer where the encoder reads fewer than 2
            tokens for each. The last one ends with the document. None: all documents stay whole.
    """
    longer = np.zeros(len(documents), dtype=bool) if words is None else longer_than_read(model, documents)
    size = min(words or 0, max(4, (model.max_seq_length or 0) // _FEWEST_TOKENS))
    spans = [
        passage_spans(text, size) if cut else [(0, len(text))] for text, cut in zip(documents, longer, strict=True)
    ]
    first = np.array([0, *accumulate(map(len, spans))], dtype=np.int64)
    return Passages(first, np.array([*chain.from_iterable(spans)], dtype=np.int32).reshape(-1, 2))


def passage_spans(text: str, words: int, step: int | None = None) -> list[tuple[int, int]]:
    """Return where the passages of a text begin and end, in characters; at least one.

    Args:
        text: any text.
        words: of a passage, at least 1; Chinese and its like: characters.
        step: words from the beginning of a passage to that of the next. None: three quarters of ``words``.
    """
    step = max(1, 3 * words // 4) if step is None else step
    found = [word.span() for word in WORD.finditer(text)]
    if len(found) <= words:
        return [(0, len(text))]
    starts = [*range(0, len(found) - words, step), len(found) - words]
    return [(found[start][0], found[start + words - 1][1]) for start in starts]


def longer_than_read(model: SentenceTransformer, documents: Sequence[str]) -> NDArray[np.bool_]:
    """Return which of N documents have more tokens, with the prompt for documents, than the encoder reads: (N,)."""
    longer = np.zeros(len(documents), dtype=bool)
    limit, tokenizer = model.max_seq_length, getattr(model[0], "tokenizer", None)
    if not isinstance(limit, int) or not callable(tokenizer):  # a table of words reads all
        return longer
    tokenizer = copy.deepcopy(tokenizer)  # without truncation, which is the tokenizer's state: another thread encodes
    prompt = prompt_for(model, "document")
    may_be = [i for i, text in enumerate(documents) if len(f"{prompt}{text}".encode("utf8", "replace")) > limit - 2]
    for begin in range(0, len(may_be), _COUNTED):
        numbers = may_be[begin : begin + _COUNTED]
        rows = tokenizer([prompt + documents[i] for i in numbers], truncation=False, verbose=False)["input_ids"]
        longer[numbers] = [len(row) > limit for row in rows]
    return longer
