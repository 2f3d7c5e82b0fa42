"""The corpus of an adaptation: sampled from any text, and split into held-out and fitting texts once it is encoded."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from st_extras.evaluation import LabeledTexts, without_labeled
from st_extras.evaluation.geometry import mean_cosine
from st_extras.evaluation.label_free import FEWEST, MOST
from st_extras.text.corpus import (
    FEWEST_WITH_LETTERS,
    distinct_sample,
    is_blank,
    iterate_sentences,
    share_with_letters,
)
from st_extras.text.term_weights import near_duplicate_share

FEWEST_TEXTS = 5 * FEWEST
"""An encoder is left unchanged with fewer different texts: a fifth of them is held out."""
_SAME_COSINE = 0.9999  # mean of two different texts
_NUMBERS = re.compile(r"[\d\s]+")


@dataclass(frozen=True)
class Sample:
    """Different texts of a corpus.

    Attributes:
        texts: in random order.
        read: number of texts that were read, without blank ones.
    """

    texts: list[str] = field(repr=False)
    read: int


def sample_texts(texts: Any, limit: int, seed: int, name: str = "texts") -> Sample:
    """Sample at most ``limit`` different texts of a collection, a stream or a data set; blank ones are left out.

    Args:
        texts: read once.
        limit: at most this many.
        seed: which ones, and their order.
        name: of the argument that they are from, for messages.
    """
    read = 0

    def stripped() -> Iterator[str]:
        nonlocal read
        for text in map(str.strip, iterate_sentences(texts, name=name)):
            if not is_blank(text):
                read += 1
                yield text

    sampled = distinct_sample(stripped(), limit, seed)
    random.Random(seed).shuffle(sampled)  # text is often sorted by label or origin, and held-out texts must be of all
    return Sample(sampled, read)


def apart_from(sample: Sample, dev: object) -> Sample:
    """Return the texts of a sample that are not among the labelled ones that choose a candidate.

    Raises:
        ValueError: if most of the texts are.
    """
    if not isinstance(dev, LabeledTexts):
        return sample
    return dataclasses.replace(sample, texts=without_labeled(sample.texts, dev.texts))


@dataclass(frozen=True)
class TextSummary:
    """The texts of an adaptation in numbers.

    Attributes:
        read: texts that were read, without blank ones.
        sampled: different ones of these, at most ``limit``.
        used: those that were encoded in the time and have an embedding that is not zero.
        held_out: those of the used texts that nothing was computed from; candidates are compared on them. 0 for
            search, where queries are compared.
        mean_words: words of a used text, on average.
        near_duplicates: share of the held-out texts, 0 to 1, that nearly repeat another one; None if not computed.
    """

    read: int
    sampled: int
    used: int
    held_out: int
    mean_words: float
    near_duplicates: float | None = None


def summarize(sample: Sample, used: list[str], held_out: int = 0, near_duplicates: float | None = None) -> TextSummary:
    """Return the summary of a sample, of which these texts are used."""
    words = sum(len(text.split()) for text in used) / max(1, len(used))
    return TextSummary(sample.read, len(sample.texts), len(used), held_out, round(words, 1), near_duplicates)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Texts that candidates are computed from, others that they are compared on, and the base model's embeddings.

    The held-out texts come first in ``texts``, ``embeddings`` and ``rows``, then the fitting texts. They are fewer than
    the sample where encoding stopped at its deadline, or a text has no embedding.

    Attributes:
        held_out: J texts to compare candidates on.
        fitting: F texts to compute candidates from.
        embeddings: (J + F, D) by the base model, before a Normalize module.
        rows: (J + F,) numbers of the texts in the sample, to find them in what else was computed of it.
        summary: the texts in numbers.
        mean_cosine: of two different texts, -1 to 1; near 0 for most encoders that were tuned for similarity.
        unusable: why nothing can be tried with these texts; empty if something can.
    """

    held_out: list[str] = field(repr=False)
    fitting: list[str] = field(repr=False)
    embeddings: Tensor = field(repr=False)
    rows: Tensor = field(repr=False)
    summary: TextSummary
    mean_cosine: float | None = None
    unusable: str = ""

    @property
    def texts(self) -> list[str]:
        """(J + F,)."""
        return [*self.held_out, *self.fitting]

    @property
    def held_out_embeddings(self) -> Tensor:
        """(J, D)."""
        return self.embeddings[: len(self.held_out)]

    @property
    def fitting_embeddings(self) -> Tensor:
        """(F, D)."""
        return self.embeddings[len(self.held_out) :]


def split_corpus(sample: Sample, embeddings: Tensor) -> Corpus:
    """Hold out a fifth of the encoded texts, at most 2,000, and find out whether the texts can be used.

    Args:
        sample: the texts.
        embeddings: (n, D) finite ones of the first n of them. A table of words gives 0 to a text without known words;
            such texts are left out.
    """
    encoded, rows = len(embeddings), (embeddings != 0).any(dim=1).nonzero().flatten()
    texts, embeddings = [sample.texts[row] for row in rows.tolist()], embeddings[rows]
    if reason := _unusable(sample, encoded, texts):
        return Corpus([], [], embeddings, rows, summarize(sample, texts), unusable=reason)
    count = min(MOST, len(texts) // 5)
    held_out, fitting = texts[:count], texts[count:]
    summary = summarize(sample, texts, count, near_duplicate_share(held_out))
    cosine = mean_cosine(embeddings)
    reason = "the encoder gives all texts about the same embedding." if cosine > _SAME_COSINE else ""
    return Corpus(held_out, fitting, embeddings, rows, summary, cosine, reason)


def _unusable(sample: Sample, encoded: int, texts: list[str]) -> str:
    """Return why texts cannot be used, in a sentence; empty if they can.

    Args:
        sample: all texts.
        encoded: how many of them were encoded.
        texts: those of these that have an embedding other than 0.
    """
    if len(sample.texts) >= FEWEST_TEXTS > encoded:
        found = f"{encoded} of {len(sample.texts)} were encoded in the time"
        return f"{FEWEST_TEXTS} texts are needed, and {found}: give more minutes."
    if encoded >= FEWEST_TEXTS > len(texts):
        return f"{FEWEST_TEXTS} texts are needed, and {len(texts)} of {encoded} have an embedding other than 0."
    lettered = share_with_letters(texts)
    if len(texts) >= FEWEST_TEXTS and lettered < FEWEST_WITH_LETTERS:
        return f"only {lettered:.0%} of the texts have a letter, so they hold no words to compare."
    different = len({_NUMBERS.sub("", text).casefold() for text in texts})
    but = "" if different == len(texts) else " but for numbers and case"
    return "" if different >= FEWEST_TEXTS else f"{FEWEST_TEXTS} different texts are needed, got {different}{but}."
