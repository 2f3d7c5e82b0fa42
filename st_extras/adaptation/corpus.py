"""The corpus of an adaptation: sampled from any text, and split into held-out and fitting texts once it is encoded."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator, Sequence
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


def without_labels(sample: Sample, dev: object) -> Sample:
    """Return a sample without the labelled texts that choose a candidate; graded pairs leave it as it is.

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

    They are fewer than the sample where encoding stopped at its deadline, or a text has no embedding.

    Attributes:
        held_out: J texts to compare candidates on.
        fitting: F texts to compute candidates from.
        held_out_embeddings: (J, D) by the base model, before a Normalize module.
        fitting_embeddings: (F, D) likewise.
        summary: the texts in numbers.
        mean_cosine: of two different texts, -1 to 1; near 0 for most encoders that were tuned for similarity. None if
            the texts are too few.
        why_not_usable: why nothing can be tried with these texts, in a sentence; None if something can.
    """

    held_out: list[str] = field(repr=False)
    fitting: list[str] = field(repr=False)
    held_out_embeddings: Tensor = field(repr=False)
    fitting_embeddings: Tensor = field(repr=False)
    summary: TextSummary
    mean_cosine: float | None
    why_not_usable: str | None


def with_embedding(texts: Sequence[str], embeddings: Tensor) -> tuple[list[str], Tensor]:
    """Return those of the first n texts whose embedding (n, D) is not 0, as a table of words gives to unknown ones."""
    rows = (embeddings != 0).any(dim=1).nonzero().flatten()
    return [texts[row] for row in rows.tolist()], embeddings[rows]


def split_corpus(sample: Sample, embeddings: Tensor) -> Corpus:
    """Hold out the first fifth of the encoded texts, at most 2,000, and find out whether the texts can be used.

    Args:
        sample: the texts.
        embeddings: (n, D) finite ones of the first n of them; n is less where the time was over. Texts without an
            embedding are left out.
    """
    texts, known = with_embedding(sample.texts, embeddings)
    if (reason := why_not_enough(len(embeddings), texts)) is not None:
        return Corpus([], [], known[:0], known[:0], summarize(sample, texts), None, reason)
    count = min(MOST, len(texts) // 5)
    held_out, fitting = texts[:count], texts[count:]
    cosine = mean_cosine(known)
    reason = "the encoder gives all texts about the same embedding." if cosine > _SAME_COSINE else None
    summary = summarize(sample, texts, count, near_duplicate_share(held_out))
    return Corpus(held_out, fitting, known[:count], known[count:], summary, cosine, reason)


def why_not_enough(encoded: int, texts: list[str]) -> str | None:
    """Return why texts are too few or too much alike, in a sentence; None if they are enough.

    Args:
        encoded: how many texts were encoded.
        texts: those of them that have an embedding other than 0.
    """
    if encoded >= FEWEST_TEXTS > len(texts):
        return f"{FEWEST_TEXTS} texts are needed, and {len(texts)} of {encoded} have an embedding other than 0."
    lettered = share_with_letters(texts)
    if len(texts) >= FEWEST_TEXTS and lettered < FEWEST_WITH_LETTERS:
        return f"only {lettered:.0%} of the texts have a letter, so they hold no words to compare."
    different = len({_NUMBERS.sub("", text).casefold() for text in texts})
    but = "" if different == len(texts) else " but for numbers and case"
    if different < FEWEST_TEXTS:
        return f"{FEWEST_TEXTS} different texts are needed, got {different}{but}."
    return None
