"""Phrase masking (PaSeR, section 3.1.2): makes the rows that ``PaSeRLoss`` trains on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from st_extras.checks import check_count
from st_extras.text.eda import EDA
from st_extras.text.phrases import PhraseExtractor, RakePhrases
from st_extras.text.spans import Span
from st_extras.text.words import WordFinder, split_at_words, word_spans

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import InputExample

Batch = Mapping[str, Sequence[Any]] | Sequence[str]
"""The columns that ``datasets`` passes to a batched function, or a list of sentences."""
MaskedRow = tuple[str, str, str]
"""``(sentence, masked, phrase)``."""


class PhraseMasking:
    """Mask the most important phrases of each sentence; gives the rows ``(sentence, masked, phrase)`` of ``PaSeRLoss``.

    ``phrase`` is the words of the phrase as they are written at its first occurrence, joined by single spaces.
    ``masked`` is the sentence with each of those words replaced by one mask token, at every occurrence of the phrase,
    whether in upper or lower case and whatever separates its words: a single unmasked occurrence would reveal the
    answer. Sentences without a phrase, or with a mask token of their own, are skipped and counted.

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
        mask_token: the encoder's mask token, ``model.tokenizer.mask_token``.
        sample: return one row per sentence, for a phrase drawn at random from the best ``top_k`` at each call,
            instead of up to ``top_k`` rows.
        augmentation: function from a sentence to a changed sentence, such as ``EDA``. It is applied first; phrase and
            mask are taken from the changed sentence, which becomes the column ``sentence``.
        words: function that returns the spans of a sentence's words. None: the extractor's ``words`` if it has that
            attribute, otherwise runs of letters and digits.
        column: the column to read; an augmented sentence is written back to it.
        seed: random seed for ``sample``.

    Attributes:
        skipped: number of sentences skipped so far. Copies made by ``map(num_proc=...)`` count separately;
            ``dataset`` and ``examples`` count all of them.

    Raises:
        ValueError: if ``top_k``, ``mask_token`` or ``column`` is not allowed, or a batch does not hold sentences.

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
        mask_token: str = "[MASK]",
        sample: bool = False,
        augmentation: Callable[..., str] | None = None,
        words: WordFinder | None = None,
        column: str = "sentence",
        seed: int = 0,
    ) -> None:
        if not isinstance(mask_token, str) or not mask_token.strip():
            raise ValueError(f"mask_token must be the encoder's mask token, such as '[MASK]', got {mask_token!r}.")
        if column in ("masked", "phrase"):
            raise ValueError(f"column must not be a column that PhraseMasking writes, got {column!r}.")
        self.extractor = RakePhrases() if extractor is None else extractor
        self.top_k = check_count("top_k", top_k, 1)
        self.mask_token = mask_token
        self.sample = sample
        self.augmentation = augmentation
        default_words: WordFinder = getattr(self.extractor, "words", word_spans)
        self.words = words or default_words
        self.column = column
        self.skipped = 0
        self._generator = random.Random(seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "skipped": 0}  # counting must not change the cache key of a data set

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        """Return the columns of the rows made from a batch: a list of sentences, or columns."""
        return self._columns(batch)[0]

    def has_phrase(self, sentence: str | Mapping[str, Any]) -> bool:
        """Return whether a sentence, or a row that holds it, has a phrase to mask (before augmentation)."""
        return bool(self._mask(sentence if isinstance(sentence, str) else sentence[self.column]))

    def dataset(self, sentences: Iterable[str] | Dataset, *, num_proc: int | None = None) -> Dataset:
        """Make the masked data set of ``sentences``, with a progress bar.

        Args:
            sentences: strings, or a data set with the column ``column``, whose other columns are dropped.
            num_proc: number of processes. None: this one.

        Raises:
            ValueError: if ``sample`` is set, or no sentence has a phrase to mask.
        """
        from datasets import Dataset

        if self.sample:
            raise ValueError("sample must be False for a data set, got True: use dataset.set_transform(masking).")
        if not isinstance(sentences, Dataset):
            sentences = Dataset.from_dict({self.column: list(sentences)})
        skipped_before = self.skipped
        self._sentences(sentences[:0])  # report a missing column once, not from every process
        rows = sentences.map(
            self._columns_and_source,
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
        return rows.remove_columns("_source")

    def examples(self, sentences: Iterable[str], *, num_proc: int | None = None) -> list[InputExample]:
        """Return an ``InputExample(texts=[sentence, masked, phrase])`` for every row, for ``model.fit``."""
        from sentence_transformers import InputExample

        rows = self.dataset(sentences, num_proc=num_proc)
        columns = (rows[self.column][:], rows["masked"][:], rows["phrase"][:])
        return [InputExample(texts=list(texts)) for texts in zip(*columns, strict=True)]

    def _columns_and_source(self, batch: Batch, indices: Sequence[int]) -> dict[str, list[Any]]:
        columns, sources = self._columns(batch)
        return {**columns, "_source": [indices[source] for source in sources]}

    def _columns(self, batch: Batch) -> tuple[dict[str, list[Any]], list[int]]:
        """Return the columns of the rows made from ``batch``, and for each row the index of its sentence in it."""
        rows: list[MaskedRow] = []
        sources: list[int] = []
        for index, sentence in enumerate(self._sentences(batch)):
            made = [self._draw(sentence)] if self.sample else self._mask_augmented(sentence)
            self.skipped += not made
            rows += made
            sources += [index] * len(made)
        given = dict(batch.items()) if isinstance(batch, Mapping) else {}
        columns = {name: [values[source] for source in sources] for name, values in given.items()}
        for field, name in enumerate((self.column, "masked", "phrase")):
            columns[name] = [row[field] for row in rows]
        return columns, sources

    def _sentences(self, batch: Batch) -> Sequence[str]:
        """Return the sentences of ``batch``, checked."""
        if isinstance(batch, Mapping) and self.column not in batch:
            raise ValueError(f"column must be one of {list(batch)}, got {self.column!r}.")
        sentences: Any = batch[self.column] if isinstance(batch, Mapping) else batch
        if isinstance(sentences, str):
            raise ValueError(
                f"PhraseMasking takes a batch of sentences, got the string {sentences!r}: "
                "use dataset.map(masking, batched=True)."
            )
        for sentence in sentences:
            if not isinstance(sentence, str):
                raise ValueError(f"column {self.column!r} must hold strings, got {sentence!r}.")
        return sentences  # type: ignore[no-any-return]

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
        if self.mask_token in sentence:
            return []  # its mask tokens could not be told from ours
        pieces = split_at_words(sentence, self.words)
        words = pieces[1::2]
        text = _joined(words)
        rows: dict[str, MaskedRow] = {}
        for phrase in self.extractor(sentence):
            pattern = self._pattern(phrase, sentence, text)
            start = text.find(pattern)
            if start < 0 or pattern.isspace():
                continue
            first, count = text.count(" ", 0, start), pattern.count(" ") - 1
            masked = _mask_words(pieces, text, pattern, self.mask_token)
            rows[pattern] = (sentence, masked, " ".join(words[first : first + count]))
            if len(rows) == self.top_k:
                break
        return list(rows.values())

    def _pattern(self, phrase: str | Span, sentence: str, text: str) -> str:
        """Return the joined words of ``phrase``, to be found in ``text``, the joined words of ``sentence``."""
        if not isinstance(phrase, str):
            return self._joined_words(sentence, phrase)
        pattern = f" {phrase} ".casefold()  # enough if the phrase has single spaces between its words
        return pattern if pattern in text else self._joined_words(phrase, (0, len(phrase)))

    def _joined_words(self, text: str, span: Span) -> str:
        """Return the joined words of ``text`` that ``span`` touches."""
        return _joined([text[start:end] for start, end in self.words(text) if start < span[1] and end > span[0]])


def _joined(words: Sequence[str]) -> str:
    """Return the words in lower case, with a space on both sides of each, so that only whole words match."""
    return f" {' '.join(words)} ".casefold()


def _mask_words(pieces: Sequence[str], text: str, pattern: str, mask_token: str) -> str:
    """Return the sentence with a mask token for each word of every occurrence of ``pattern``.

    ``pieces`` are ``(gap, word, ..., word, gap)``. ``text`` is the joined words, " w0 w1 ... ": a match begins at a
    space, so the number of spaces before it is the index of its first word.
    """
    masked = list(pieces)
    count = pattern.count(" ") - 1
    start = text.find(pattern)
    while start >= 0:
        first = 2 * text.count(" ", 0, start) + 1  # the words are the odd pieces
        masked[first : first + 2 * count : 2] = [mask_token] * count
        start = text.find(pattern, start + len(pattern) - 1)  # the last space may open the next match
    return "".join(masked)
