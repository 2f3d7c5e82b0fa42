"""Phrase masking (PaSeR, section 3.1.2): makes the rows that ``PaSeRLoss`` trains on."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from st_extras.checks import check_choice, check_count, counted, shown
from st_extras.text.corpus import iterate_sentences
from st_extras.text.phrases import PhraseExtractor, RakePhrases
from st_extras.text.words import MAX_TOP_K, SPACELESS, Span, WordFinder, checked_span, split_at_words, word_spans

if TYPE_CHECKING:
    from datasets import Dataset

MaskedRow = tuple[str, str, str]
"""``(sentence, masked, phrase)``."""
_MANY_MASKED_WHOLE = 0.2
"""A larger share of sentences without another word than their phrase is warned of."""
_SPACELESS_WORD = re.compile(f"[{SPACELESS}]+")
_SEGMENT = (
    "in text without spaces between words, take them from a segmenter, as RakePhrases(language='chinese') does "
    "(--set language=chinese), or give words="
)
_LONG_WORDS = 6
"""Characters: words of scripts without spaces have 2 to 4 on average in Chinese and Japanese, 4 to 5 in Thai."""
logger = logging.getLogger(__name__)


class PhraseMasking:
    """Mask the most important phrases of each sentence; gives the rows ``(sentence, masked, phrase)`` of ``PaSeRLoss``.

    ``phrase`` is the words of the phrase as they are written at its own place, joined by single spaces: a span's, or
    the first occurrence of a string. ``masked`` is the sentence with each of those words replaced by one mask token, at
    every occurrence of the phrase, in upper or lower case: a single unmasked occurrence would reveal the answer.
    Nothing but space stands between the words of an occurrence: words on both sides of punctuation are no phrase, so a
    phrase that an extractor takes across punctuation is left out. Sentences without a phrase, or with a mask token of
    their own, are skipped and counted.

    ``PhraseMasking().dataset(sentences, num_proc=4)`` makes the data set to train on; a call with a list of sentences
    returns its columns.

    Paper: PaSeR, https://aclanthology.org/2022.emnlp-main.221.

    Args:
        extractor: any ``PhraseExtractor``. None: ``RakePhrases()``.
        top_k: number of phrases of a sentence that give one row each (the paper: 3).
        mask_token: the encoder's mask token, ``model.tokenizer.mask_token``; None if it has none.
        augmentation: function from a sentence to a changed sentence, such as ``EDA``. It is applied first; phrase and
            mask are taken from the changed sentence, which becomes the column ``sentence``.
        words: function that returns the spans of a sentence's words. None: the extractor's ``words`` if it has that
            attribute, otherwise runs of letters and digits.
        on_missing_mask: what to do if ``mask_token`` is None: "error", or "delete" to delete the phrases instead, for a
            PaSeRLoss with the same setting. A sentence that is nothing but the phrase gives no row. This is ours.

    Attributes:
        skipped: number of sentences skipped so far, in all processes.

    Raises:
        ValueError: if a setting is not allowed, or a sentence is not a string.

    Example:
        >>> from st_extras.text import PhraseMasking
        >>> masking = PhraseMasking(top_k=1)
        >>> masking(["Red apples, and more red apples!"])["masked"]
        ['[MASK] [MASK], and more [MASK] [MASK]!']
        >>> masking.dataset(["The old man read a book."])[0]
        {'sentence': 'The old man read a book.', 'masked': 'The [MASK] [MASK] [MASK] a book.', 'phrase': 'old man read'}
    """

    def __init__(
        self,
        extractor: PhraseExtractor | None = None,
        *,
        top_k: int = 3,
        mask_token: str | None = "[MASK]",
        augmentation: Callable[[str], str] | None = None,
        words: WordFinder | None = None,
        on_missing_mask: str = "error",
    ) -> None:
        check_choice("on_missing_mask", on_missing_mask, ("error", "delete"))
        usable = isinstance(mask_token, str) and bool(mask_token.strip())
        if not usable and (mask_token is not None or on_missing_mask == "error"):
            raise ValueError(
                f"mask_token must be the encoder's mask token, such as '[MASK]', got {mask_token!r}: pass None with "
                'on_missing_mask="delete" to delete the phrases instead, here and in PaSeRLoss.'
            )
        self.extractor = RakePhrases() if extractor is None else extractor
        self.top_k = check_count("top_k", top_k, 1, MAX_TOP_K)
        self.mask_token, self.on_missing_mask = mask_token, on_missing_mask
        self.augmentation = augmentation
        self.words: WordFinder = getattr(self.extractor, "words", word_spans) if words is None else words
        self.skipped = 0

    def __call__(self, sentences: Iterable[str] | Dataset) -> dict[str, list[str]]:
        """Return the columns ``sentence``, ``masked`` and ``phrase`` of the rows of a list of sentences.

        Raises:
            ValueError: if it is a dict, such as a batch of ``datasets.Dataset.map``: give its column.
        """
        sentences = list(iterate_sentences(sentences))
        columns = self._columns(sentences, range(len(sentences)))
        self.skipped += len(sentences) - len({*columns.pop("_source")})
        return columns

    def dataset(self, sentences: Iterable[str] | Dataset, *, num_proc: int | None = None) -> Dataset:
        """Make the masked data set of ``sentences``, with a progress bar.

        Args:
            sentences: strings, or a data set with a text column; its other columns are dropped.
            num_proc: number of processes. None: this one.

        Raises:
            ValueError: if the data set has splits or no column of text, or no sentence has a phrase to mask.
        """
        from datasets import Dataset

        given = Dataset.from_dict({"sentence": list(iterate_sentences(sentences))})
        rows = given.map(
            self._columns,
            batched=True,
            with_indices=True,
            input_columns="sentence",
            num_proc=num_proc,
            desc="Masking phrases",
        )
        if len(rows) == 0:
            raise ValueError(
                "sentences must hold a sentence with a phrase to mask, got "
                f"{counted(len(given), 'sentence')} without one."
            )
        self.skipped += len(given) - len(rows.unique("_source"))
        self._check_masked(rows["masked"])
        self._check_words(rows["phrase"][:])
        return rows.remove_columns("_source")

    def _check_masked(self, masked: Iterable[str]) -> None:
        """Warn about rows that are nothing but the mask; raise if all are.

        Raises:
            ValueError: if nothing is left of any.
        """
        rest = [text if self.mask_token is None else text.replace(self.mask_token, "") for text in masked]
        share = sum(not any(map(str.isalnum, text)) for text in rest) / len(rest)
        if share == 1:
            raise ValueError(
                f"sentences must hold more than their phrases, got only sentences masked whole: {_SEGMENT}."
            )
        if share > _MANY_MASKED_WHOLE:
            logger.warning(f"{share:.0%} of the masked sentences are nothing but the mask: {_SEGMENT}.")

    def _check_words(self, phrases: Sequence[str]) -> None:
        """Warn if the words of phrases in scripts without spaces are so long that they are whole clauses."""
        words = [word for phrase in phrases for word in phrase.split(" ") if _SPACELESS_WORD.fullmatch(word)]
        spaceless = sum(any(map(_SPACELESS_WORD.fullmatch, phrase.split(" "))) for phrase in phrases)
        average = sum(map(len, words)) / max(1, len(words))
        if spaceless > _MANY_MASKED_WHOLE * len(phrases) and average >= _LONG_WORDS:
            logger.warning(
                f"Took {spaceless:,} of {len(phrases):,} phrases of text without spaces for words of {average:.0f} "
                f"characters on average, as long as clauses: {_SEGMENT}."
            )

    def _columns(self, sentences: Sequence[str], indices: Sequence[int]) -> dict[str, list[Any]]:
        """Return the columns of the rows made from the sentences, and the index of each row's sentence, ``_source``."""
        rows: list[MaskedRow] = []
        sources: list[int] = []
        for index, sentence in zip(indices, sentences, strict=True):
            made = self._mask_augmented(sentence)
            rows += made
            sources += [index] * len(made)
        columns = {name: [row[field] for row in rows] for field, name in enumerate(("sentence", "masked", "phrase"))}
        return columns | {"_source": sources}

    def _mask_augmented(self, sentence: str) -> list[MaskedRow]:
        """Return the rows of the augmented sentence, or of the sentence itself if augmentation left no phrase."""
        if self.augmentation is not None:
            changed = self.augmentation(sentence)
            if not isinstance(changed, str):
                raise ValueError(f"augmentation must return the changed sentence, got {shown(changed)}.")
            if rows := self._mask(changed):
                return rows
        return self._mask(sentence)

    def _mask(self, sentence: str) -> list[MaskedRow]:
        """Return the rows of the first ``top_k`` phrases that occur in ``sentence``."""
        if self.mask_token is not None and self.mask_token in sentence:
            return []  # its mask tokens could not be distinguished from ours
        pieces = split_at_words(sentence, self.words)
        folded = [word.casefold() for word in pieces[1::2]]  # the words are the odd pieces
        breaks = {index for index, gap in enumerate(pieces[2:-1:2], 1) if gap and not gap.isspace()}
        rows: dict[tuple[str, ...], MaskedRow] = {}
        phrases = self.extractor(sentence)
        if isinstance(phrases, str) or not isinstance(phrases, Iterable):  # of a string, each letter would be a phrase
            raise ValueError(f"extractor must return a list of phrases or (start, end) spans, got {shown(phrases)}.")
        for phrase in phrases:
            if isinstance(phrase, str):
                target = tuple(phrase.casefold().split(" "))  # right if single spaces stand between its words
                if not (starts := _occurrences(folded, target, breaks)):
                    target = _words_within(phrase, self.words(phrase), 0, len(phrase))
                    starts = _occurrences(folded, target, breaks)
                own = starts[:1]
            else:
                spans, (begin, stop) = self.words(sentence), checked_span("extractor", phrase)
                target = _words_within(sentence, spans, begin, stop)
                starts, own = _occurrences(folded, target, breaks), [sum(end <= begin for _, end in spans)]
            if target in rows or not starts:
                continue
            count = len(target)
            masked = list(pieces)
            for first in starts:
                masked[2 * first + 1 : 2 * (first + count) : 2] = [self.mask_token or ""] * count
            if self.mask_token is None and not any(masked[1::2]):
                continue  # no word would be left
            text_left = "".join(masked) if self.mask_token is not None else " ".join("".join(masked).split())
            rows[target] = (sentence, text_left, " ".join(pieces[2 * own[0] + 1 : 2 * (own[0] + count) : 2]))
            if len(rows) == self.top_k:
                break
        return list(rows.values())


def _words_within(text: str, words: Sequence[Span], start: int, end: int) -> tuple[str, ...]:
    """Return the words between two places, in lower case; none if more than space separates two of them."""
    touched = [word for word in words if word[0] < end and word[1] > start]
    if any(text[first[1] : second[0]].strip() for first, second in pairwise(touched)):
        return ()
    return tuple(text[first:last].casefold() for first, last in touched)


def _occurrences(words: Sequence[str], phrase: tuple[str, ...], breaks: set[int]) -> list[int]:
    """Return where each occurrence of ``phrase`` begins, left to right, without overlaps.

    ``breaks`` are the places of words that follow punctuation: no phrase goes on there.
    """
    starts: list[int] = []
    count = len(phrase)
    if not count:
        return starts
    for start, word in enumerate(words):
        if word == phrase[0] and (not starts or start >= starts[-1] + count):
            rest = tuple(words[start + 1 : start + count])
            if rest == phrase[1:] and breaks.isdisjoint(range(start + 1, start + count)):
                starts.append(start)
    return starts
