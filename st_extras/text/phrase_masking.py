"""Phrase masking (PaSeR, section 3.1.2): makes the rows that ``PaSeRLoss`` trains on."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from st_extras.checks import check_bool, check_choice, check_count, check_seed
from st_extras.text.columns import TextColumns, is_dataset, text_columns
from st_extras.text.corpus import check_sentence, iterate_sentences
from st_extras.text.eda import EDA
from st_extras.text.phrases import PhraseExtractor, RakePhrases
from st_extras.text.words import MAX_TOP_K, Span, WordFinder, split_at_words, word_spans

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import InputExample

Batch = Mapping[str, Sequence[Any]] | Sequence[str]
"""The columns that ``datasets`` passes to a batched function, or a list of sentences."""
MaskedRow = tuple[str, str, str]
"""``(sentence, masked, phrase)``."""
_DEFAULT_COLUMN = "sentence"
_MANY_MASKED_WHOLE = 0.2
"""A larger share of sentences without another word than their phrase is warned of."""
_FIRST = 32
"""Rows of ``map`` or a transform, which see a batch at a time, that are checked for text masked whole."""
logger = logging.getLogger(__name__)


class PhraseMasking:
    """Mask the most important phrases of each sentence; gives the rows ``(sentence, masked, phrase)`` of ``PaSeRLoss``.

    ``phrase`` is the words of the phrase as they are written at its own place, joined by single spaces: a span's, or
    the first occurrence of a string. ``masked`` is the sentence with each of those words replaced by one mask token, at
    every occurrence of the phrase, in upper or lower case: a single unmasked occurrence would reveal the answer.
    Nothing but space stands between the words of an occurrence: words on both sides of punctuation are no phrase, so a
    phrase that an extractor takes across punctuation is left out. Sentences without a phrase, or with a mask token of
    their own, are skipped and counted.

    Three ways to use it:

    * ``PhraseMasking().dataset(sentences, num_proc=4)`` makes a data set, ``.examples(sentences)`` its rows for
      ``model.fit``.
    * ``dataset.map(PhraseMasking(), batched=True)`` keeps the other columns.
    * To draw a new phrase in every epoch, make ``masking = PhraseMasking(sample=True)``, then call
      ``dataset.filter(masking.has_phrase)`` and ``dataset.set_transform(masking)``.

    Paper: PaSeR, https://aclanthology.org/2022.emnlp-main.221.

    Args:
        extractor: any ``PhraseExtractor``. None: ``RakePhrases()``.
        top_k: number of phrases of a sentence that give one row each (the paper: 3).
        mask_token: the encoder's mask token, ``model.tokenizer.mask_token``; None if it has none.
        sample: return one row per sentence, for a phrase drawn at random from the best ``top_k`` at each call,
            instead of up to ``top_k`` rows.
        augmentation: function from a sentence to a changed sentence, such as ``EDA``. It is applied first; phrase and
            mask are taken from the changed sentence, which becomes the column ``sentence``.
        words: function that returns the spans of a sentence's words. None: the extractor's ``words`` if it has that
            attribute, otherwise runs of letters and digits.
        column: the column to read; an augmented sentence is written back to it.
        on_missing_mask: what to do if ``mask_token`` is None: "error", or "delete" to delete the phrases instead, for a
            PaSeRLoss with the same setting. A sentence that is nothing but the phrase gives no row. This is ours.
        seed: random seed for ``sample``.

    Attributes:
        skipped: number of sentences skipped so far. Copies made by ``map(num_proc=...)`` count separately;
            ``dataset`` and ``examples`` count all of them.

    Raises:
        ValueError: if a setting is not allowed, or a batch does not hold sentences.

    Example:
        >>> from st_extras.text import PhraseMasking
        >>> masking = PhraseMasking(top_k=1)
        >>> masking({"sentence": ["Red apples, and more red apples!"]})["masked"]
        ['[MASK] [MASK], and more [MASK] [MASK]!']
        >>> masking.examples(["The old man read a book."])[0].texts
        ['The old man read a book.', 'The [MASK] [MASK] [MASK] a book.', 'old man read']
    """

    def __init__(
        self,
        extractor: PhraseExtractor | None = None,
        *,
        top_k: int = 3,
        mask_token: str | None = "[MASK]",
        sample: bool = False,
        augmentation: Callable[..., str] | None = None,
        words: WordFinder | None = None,
        column: str = _DEFAULT_COLUMN,
        on_missing_mask: str = "error",
        seed: int = 0,
    ) -> None:
        check_choice("on_missing_mask", on_missing_mask, ("error", "delete"))
        usable = isinstance(mask_token, str) and bool(mask_token.strip())
        if not usable and (mask_token is not None or on_missing_mask == "error"):
            raise ValueError(
                f"mask_token must be the encoder's mask token, such as '[MASK]', got {mask_token!r}: pass None with "
                'on_missing_mask="delete" to delete the phrases instead, here and in PaSeRLoss.'
            )
        if column in ("masked", "phrase"):
            raise ValueError(f"column must not be a column that PhraseMasking writes, got {column!r}.")
        self.extractor = RakePhrases() if extractor is None else extractor
        self.top_k = check_count("top_k", top_k, 1, MAX_TOP_K)
        self.mask_token, self.on_missing_mask = mask_token, on_missing_mask
        self.sample = check_bool("sample", sample)
        self.augmentation = augmentation
        self.words: WordFinder = getattr(self.extractor, "words", word_spans) if words is None else words
        self.column = column
        self.skipped = 0
        self._generator = random.Random(check_seed("seed", seed))
        self._first: list[str] = []  # masked rows of ``map`` or a transform, until there are enough to check

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "skipped": 0, "_first": []}  # counting must not change the cache key of a data set

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        """Return the columns of the rows made from a batch: a list of sentences, or columns."""
        columns = self._columns(batch)
        if len(self._first) < _FIRST:
            self._first += columns["masked"]
            if len(self._first) >= _FIRST:
                self._check_masked(self._first, of_all=False)
        return columns

    def has_phrase(self, sentence: str | Mapping[str, Any]) -> bool:
        """Return whether a sentence, or a row that holds it, has a phrase to mask (before augmentation)."""
        return bool(self._mask(sentence if isinstance(sentence, str) else sentence[self.column]))

    def dataset(self, sentences: Iterable[str] | Dataset, *, num_proc: int | None = None) -> Dataset:
        """Make the masked data set of ``sentences``, with a progress bar.

        Args:
            sentences: strings, or a data set, whose column ``column`` is read and whose other columns are dropped. A
                data set without a column "sentence" may have its sentences in another usual one (see ``TextColumns``).
            num_proc: number of processes. None: this one.

        Raises:
            ValueError: if ``sample`` is set, the data set has splits or no such column, or no sentence has a phrase to
                mask.
        """
        from datasets import Dataset

        if self.sample:
            raise ValueError("sample must be False for a data set, got True: use dataset.set_transform(masking).")
        wanted = None if self.column == _DEFAULT_COLUMN or not is_dataset(sentences) else self.column
        if not isinstance(sentences, Dataset):
            sentences = Dataset.from_dict({self.column: list(iterate_sentences(sentences, wanted))})
        else:
            chosen = text_columns(sentences, TextColumns(wanted))
            if chosen.title is None:
                sentences = sentences.select_columns(chosen.text).rename_columns({chosen.text: self.column})
            else:
                named = sentences.column_names
                sentences = sentences.map(lambda row: {self.column: chosen.read(row)[1]}, remove_columns=named)
        skipped_before = self.skipped
        rows = sentences.map(
            self._columns,
            batched=True,
            with_indices=True,
            num_proc=num_proc,
            remove_columns=sentences.column_names,
            desc="Masking phrases",
        )
        if len(rows) == 0 or "_source" not in rows.column_names:
            raise ValueError(
                f"sentences must hold a sentence with a phrase to mask, got {len(sentences)} sentences without one."
            )
        self.skipped = skipped_before + len(sentences) - len(rows.unique("_source"))
        self._check_masked(rows["masked"])
        return rows.remove_columns("_source")

    def _check_masked(self, masked: Iterable[str], *, of_all: bool = True) -> None:
        """Warn about rows that are nothing but the mask; raise if those of all sentences are.

        Raises:
            ValueError: if nothing is left of any, and the rows are those of all sentences.
        """
        rest = [text if self.mask_token is None else text.replace(self.mask_token, "") for text in masked]
        share = sum(not any(map(str.isalnum, text)) for text in rest) / len(rest)
        hint = (
            "in text without spaces between words, take them from a segmenter, as RakePhrases(language='chinese') does "
            "(--language chinese), or give words="
        )
        if share == 1 and of_all:
            raise ValueError(f"sentences must hold more than their phrases, got only sentences masked whole: {hint}.")
        if share > _MANY_MASKED_WHOLE:
            logger.warning(f"{share:.0%} of the masked sentences are nothing but the mask: {hint}.")

    def examples(self, sentences: Iterable[str], *, num_proc: int | None = None) -> list[InputExample]:
        """Return an ``InputExample(texts=[sentence, masked, phrase])`` for every row, for ``model.fit``."""
        from sentence_transformers import InputExample

        rows = self.dataset(sentences, num_proc=num_proc)
        columns = (rows[self.column][:], rows["masked"][:], rows["phrase"][:])
        return [InputExample(texts=list(texts)) for texts in zip(*columns, strict=True)]

    def _columns(self, batch: Batch, indices: Sequence[int] | None = None) -> dict[str, list[Any]]:
        """Return the columns of the rows made from ``batch``; with ``indices``, also that of each row's sentence."""
        sentences: Any = batch[self.column] if isinstance(batch, Mapping) else batch
        if isinstance(sentences, str):
            raise ValueError(
                f"PhraseMasking takes a batch of sentences, got the string {sentences!r}: "
                "use dataset.map(masking, batched=True)."
            )
        rows: list[MaskedRow] = []
        sources: list[int] = []
        for index, sentence in enumerate(sentences):
            check_sentence(sentence, f"column {self.column!r}")
            made = [self._draw(sentence)] if self.sample else self._mask_augmented(sentence)
            self.skipped += not made
            rows += made
            sources += [index] * len(made)
        given = dict(batch.items()) if isinstance(batch, Mapping) else {}
        columns = {name: [values[source] for source in sources] for name, values in given.items()}
        for field, name in enumerate((self.column, "masked", "phrase")):
            columns[name] = [row[field] for row in rows]
        if indices is not None:
            columns["_source"] = [indices[source] for source in sources]
        return columns

    def _mask_augmented(self, sentence: str, *generator: random.Random) -> list[MaskedRow]:
        """Return the rows of the augmented sentence, or of the sentence itself if augmentation left no phrase."""
        if self.augmentation is not None and (rows := self._mask(self.augmentation(sentence, *generator))):
            return rows
        return self._mask(sentence)

    def _draw(self, sentence: str) -> MaskedRow:
        """Return one of the rows of the sentence at random."""
        generator = (self._generator,) if isinstance(self.augmentation, EDA) else ()  # so that EDA draws anew too
        if not (rows := self._mask_augmented(sentence, *generator)):
            raise ValueError(  # a transform cannot drop a row
                f"sentence must have a phrase to mask if sample=True, got {sentence!r}: "
                "filter the data set first with dataset.filter(masking.has_phrase)."
            )
        return self._generator.choice(rows)

    def _mask(self, sentence: str) -> list[MaskedRow]:
        """Return the rows of the first ``top_k`` phrases that occur in ``sentence``."""
        if self.mask_token is not None and self.mask_token in sentence:
            return []  # its mask tokens could not be distinguished from ours
        pieces = split_at_words(sentence, self.words)
        folded = [word.casefold() for word in pieces[1::2]]  # the words are the odd pieces
        breaks = {index for index, gap in enumerate(pieces[2:-1:2], 1) if gap and not gap.isspace()}
        rows: dict[tuple[str, ...], MaskedRow] = {}
        for phrase in self.extractor(sentence):
            if isinstance(phrase, str):
                target = tuple(phrase.casefold().split(" "))  # right if single spaces stand between its words
                if not (found := _occurrences(folded, target, breaks)):
                    target = _words_within(phrase, self.words(phrase), 0, len(phrase))
                    found = _occurrences(folded, target, breaks)
                own = found[:1]
            else:
                spans = self.words(sentence)
                target = _words_within(sentence, spans, *phrase)
                found, own = _occurrences(folded, target, breaks), [sum(end <= phrase[0] for _, end in spans)]
            if target in rows or not found:
                continue
            count = len(target)
            masked = list(pieces)
            for first in found:
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
    found: list[int] = []
    count = len(phrase)
    if not count or count > len(words):
        return found
    for start, word in enumerate(words):
        if word == phrase[0] and (not found or start >= found[-1] + count):
            rest = tuple(words[start + 1 : start + count])
            if rest == phrase[1:] and breaks.isdisjoint(range(start + 1, start + count)):
                found.append(start)
    return found
