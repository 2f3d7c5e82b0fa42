"""The masking of a phrase in its sentence (PaSeR, section 3.1.2): the rows that ``PaSeRLoss`` trains on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from st_extras.text.augmentation import EDA
from st_extras.text.extractors import ChunkPhrases, PhraseExtractor, RakePhrases, Words, split_words
from st_extras.text.spans import Span
from st_extras.text.words import word_spans

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import InputExample

__all__ = ["ChunkPhrases", "PhraseExtractor", "PhraseMasking", "RakePhrases"]

Batch = Mapping[str, Sequence[Any]] | Sequence[str]
Triple = tuple[str, str, str]


class PhraseMasking:
    """Rows ``(sentence, masked, phrase)`` for ``PaSeRLoss``: a phrase, and its sentence without it.

    ``phrase`` is the words of the phrase as they first stand in the sentence, joined by single spaces;
    ``masked`` is the sentence with each of those words replaced by one mask token, at every occurrence of the
    phrase (whatever its case, whatever stands between its words): one left over would give the answer away.

    Use it on a data set in any of these ways::

        dataset = PhraseMasking().dataset(sentences, num_proc=4)     # progress bar, skipped sentences counted
        dataset = dataset.map(PhraseMasking(), batched=True)         # other columns are kept
        dataset = dataset.filter(masking.has_phrase)                 # a new phrase at every epoch:
        dataset.set_transform(masking)                               #   masking = PhraseMasking(sample=True)
        examples = PhraseMasking().examples(sentences)               # for model.fit

    Args:
        extractor: any ``PhraseExtractor``; default ``RakePhrases()``.
        top_k: how many phrases of a sentence make a row each (the paper: 3).
        mask_token: the encoder's, ``model.tokenizer.mask_token``.
        sample: draw one of the top_k phrases at each call, one row per sentence, in place of top_k rows.
        augmentation: a sentence to a changed sentence, applied first (``EDA``); phrase and mask are then
            taken from the changed sentence, which becomes the column ``sentence``.
        words: sentence to word spans; default the extractor's ``words``, else runs of letters and digits.
        column: the column that is read, masked, and (augmented) written.
        seed: of ``sample``.

    Attributes:
        skipped: sentences met so far without a phrase (or with a mask token in them). The copies
            that ``map(num_proc=...)`` makes count their own; ``dataset`` and ``examples`` count them all.

    Example:
        >>> masking = PhraseMasking(top_k=1)
        >>> masking({"sentence": ["Red apples, and more red apples!"]})["masked"]
        ['[MASK] [MASK], and more [MASK] [MASK]!']
    """

    def __init__(
        self,
        extractor: PhraseExtractor | None = None,
        *,
        top_k: int = 3,
        mask_token: str = "[MASK]",
        sample: bool = False,
        augmentation: Callable[..., str] | None = None,
        words: Words | None = None,
        column: str = "sentence",
        seed: int = 0,
    ) -> None:
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k={top_k!r} must be an integer of at least 1")
        if not isinstance(mask_token, str) or not mask_token.strip():
            raise ValueError(f"mask_token={mask_token!r} must be the encoder's mask token, as '[MASK]'")
        if column in ("masked", "phrase"):
            raise ValueError(f"column={column!r} is a column that PhraseMasking writes; read another")
        self.extractor = RakePhrases() if extractor is None else extractor
        self.top_k = top_k
        self.mask_token = mask_token
        self.sample = sample
        self.augmentation = augmentation
        own: Words = getattr(self.extractor, "words", word_spans)
        self.words = words or own
        self.column = column
        self.skipped = 0
        self._generator = random.Random(seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "skipped": 0}  # so that counting does not change the data set's cache key

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        """The rows of a batch: a list of sentences, or the columns that ``datasets`` hands over."""
        return self._rows(batch)[0]

    def has_phrase(self, sentence: str | Mapping[str, Any]) -> bool:
        """Whether a sentence (or a row that holds it), not augmented, has a phrase to mask."""
        return bool(self._triples(sentence if isinstance(sentence, str) else sentence[self.column]))

    def dataset(self, sentences: Iterable[str] | Dataset, *, num_proc: int | None = None) -> Dataset:
        """The masked data set of ``sentences``, made in ``num_proc`` processes with a progress bar.

        Raises:
            ValueError: none of them has a phrase to mask, or there are none.
        """
        from datasets import Dataset

        if self.sample:
            raise ValueError("sample=True draws at every call: use it with dataset.set_transform(masking)")
        if not isinstance(sentences, Dataset):
            sentences = Dataset.from_dict({self.column: list(sentences)})
        before = self.skipped
        self._column(sentences[:0])  # a missing column is reported once, not by every process
        rows = sentences.map(
            self._numbered, batched=True, with_indices=True, num_proc=num_proc,
            remove_columns=sentences.column_names, desc="Masking phrases",
        )  # fmt: skip
        if len(rows) == 0 or "_source" not in rows.column_names:
            raise ValueError(f"none of the {len(sentences)} sentences has a phrase to mask")
        self.skipped = before + len(sentences) - len(rows.unique("_source"))
        return rows.remove_columns("_source")

    def examples(self, sentences: Iterable[str], *, num_proc: int | None = None) -> list[InputExample]:
        """``InputExample(texts=[sentence, masked, phrase])`` for every row, for ``model.fit``."""
        from sentence_transformers import InputExample

        rows = self.dataset(sentences, num_proc=num_proc)
        columns = (rows[self.column][:], rows["masked"][:], rows["phrase"][:])
        return [InputExample(texts=list(texts)) for texts in zip(*columns, strict=True)]

    def _numbered(self, batch: Batch, indices: Sequence[int]) -> dict[str, list[Any]]:
        columns, sources = self._rows(batch)
        return {**columns, "_source": [indices[source] for source in sources]}

    def _rows(self, batch: Batch) -> tuple[dict[str, list[Any]], list[int]]:
        """The columns of the rows made from ``batch``, and for each row the sentence that it came from."""
        triples, sources = [], []
        for index, sentence in enumerate(self._column(batch)):
            found = self._draw(sentence) if self.sample else self._augmented(sentence)
            self.skipped += not found
            triples += found
            sources += [index] * len(found)
        others = dict(batch.items()) if isinstance(batch, Mapping) else {}
        columns = {name: [values[source] for source in sources] for name, values in others.items()}
        for position, name in enumerate((self.column, "masked", "phrase")):
            columns[name] = [triple[position] for triple in triples]
        return columns, sources

    def _column(self, batch: Batch) -> Sequence[str]:
        if isinstance(batch, Mapping) and self.column not in batch:
            raise ValueError(f"column={self.column!r} is not among the columns {list(batch)}")
        sentences: Any = batch[self.column] if isinstance(batch, Mapping) else batch
        if isinstance(sentences, str):
            raise ValueError("PhraseMasking takes batches of sentences: dataset.map(masking, batched=True)")
        for sentence in sentences:
            if not isinstance(sentence, str):
                raise ValueError(f"column {self.column!r} must hold strings, got {sentence!r}")
        return sentences  # type: ignore[no-any-return]

    def _augmented(self, sentence: str, *generator: random.Random) -> list[Triple]:
        """The rows of the augmented sentence; of the sentence itself where that lost its phrases."""
        if self.augmentation is not None and (triples := self._triples(self.augmentation(sentence, *generator))):
            return triples
        return self._triples(sentence)

    def _draw(self, sentence: str) -> list[Triple]:
        """One row at random."""
        own = (self._generator,) if isinstance(self.augmentation, EDA) else ()
        if not (triples := self._augmented(sentence, *own)):
            raise ValueError(
                f"no phrase in {sentence!r}, and a transform must return every row: "
                "filter beforehand with dataset.filter(masking.has_phrase)"
            )
        return [self._generator.choice(triples)]

    def _triples(self, sentence: str) -> list[Triple]:
        """``(sentence, masked, phrase)`` for the ``top_k`` phrases that stand in ``sentence``."""
        if self.mask_token in sentence:
            return []  # its masks could not be told from ours
        pieces = split_words(sentence, self.words)
        words = pieces[1::2]
        text = f" {' '.join(words)} ".casefold()
        found: dict[str, Triple] = {}
        for phrase in self.extractor(sentence):
            needle = f" {phrase} ".casefold() if isinstance(phrase, str) else self._needle(sentence, phrase)
            at = text.find(needle)
            if at < 0 and isinstance(phrase, str):  # not words with single spaces between them
                at = text.find(needle := self._needle(phrase, (0, len(phrase))))
            if at < 0 or needle.isspace():
                continue
            first = text.count(" ", 0, at)
            count = needle.count(" ") - 1
            masked = list(pieces)
            while at >= 0:
                start = 2 * text.count(" ", 0, at) + 1
                masked[start : start + 2 * count : 2] = [self.mask_token] * count
                at = text.find(needle, at + len(needle) - 1)
            found[needle] = (sentence, "".join(masked), " ".join(words[first : first + count]))
            if len(found) == self.top_k:
                break
        return list(found.values())

    def _needle(self, text: str, span: Span) -> str:
        """The words of ``text`` that ``span`` touches, folded, with a space on both sides of each."""
        touched = [text[start:end] for start, end in self.words(text) if start < span[1] and end > span[0]]
        return f" {' '.join(touched)} ".casefold()
