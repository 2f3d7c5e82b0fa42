"""Token frequencies of a corpus, counted with the tokenizer of the model that will use them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_count, check_fraction, shown
from st_extras.text import counting
from st_extras.text.corpus import MAX_PROCESSES
from st_extras.text.files import MAX_LINE
from st_extras.text.frequency_files import TableContent, read_table, write_table
from st_extras.text.vocabularies import vocabulary

_MAX_BATCH_SIZE = 1_000_000  # texts


class FrequencyTable:
    """Count how often each token of a tokenizer's vocabulary occurs in a corpus; label the rare ones.

    Tables of the same vocabulary can be added (``a + b``, ``sum(tables)``), so a corpus can be counted in shards.
    Counting holds one batch of texts and one table in memory, whatever the size of the corpus.

    Paper: the frequency labels of SLT-FAI, https://arxiv.org/abs/2305.08655.

    Args:
        tokens: the token at each input id, None at ids without a token; length V.
        counts: number of occurrences of each token, shape (V,): integers >= 0, at least one of them above 0.
        num_texts: number of texts counted; 0 if unknown.

    Attributes:
        tokens: tuple of length V.
        counts: int64 tensor of shape (V,).
        num_texts: int.

    Raises:
        ValueError: if a token is neither a string nor None, the lengths differ, all counts are 0, or a count or
            ``num_texts`` is not a whole number >= 0.

    Example:
        >>> from transformers import BertTokenizer
        >>> from st_extras.text.frequency import FrequencyTable
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "mat"]
        >>> tokenizer = BertTokenizer(vocab={token: index for index, token in enumerate(vocabulary)})
        >>> table = FrequencyTable.count(["the cat sat", "the cat", "the mat"], tokenizer)
        >>> table.counts.tolist()
        [0, 0, 0, 0, 0, 3, 2, 1, 1]
        >>> table.labels(0.5).tolist()  # 1 = low frequency, 0 = high frequency
        [1, 1, 1, 1, 1, 0, 0, 1, 1]
    """

    def __init__(self, tokens: Sequence[str | None], counts: Tensor | Sequence[int], num_texts: int = 0) -> None:
        self.tokens = tuple(tokens)
        given = torch.as_tensor(counts)
        self.counts = given.to(torch.int64).cpu()
        self.num_texts = check_count("num_texts", num_texts)
        if self.counts.shape != (len(self.tokens),):
            needed = f"one entry for each of the {len(self.tokens)} tokens {shown(self.tokens)}"
            raise ValueError(f"counts must have {needed}, got shape {tuple(self.counts.shape)}: {shown(counts)}.")
        if (self.counts != given.cpu()).any() or (self.counts < 0).any():
            raise ValueError(f"counts must be whole numbers >= 0, got {shown(counts)}.")
        if not self.counts.any():
            raise ValueError("counts must hold at least one count > 0, got a corpus with no token.")

    def __repr__(self) -> str:
        return f"FrequencyTable(types={self.num_seen}/{len(self)}, tokens={self.total}, texts={self.num_texts})"

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def total(self) -> int:
        """The number of tokens counted."""
        return int(self.counts.sum())

    @property
    def num_seen(self) -> int:
        """The number of vocabulary entries that occur at least once."""
        return int((self.counts > 0).sum())

    def __add__(self, other: FrequencyTable) -> FrequencyTable:
        if not isinstance(other, FrequencyTable):
            return NotImplemented
        _check_same_vocabulary(self.tokens, other.tokens, "the other table")
        return FrequencyTable(self.tokens, self.counts + other.counts, self.num_texts + other.num_texts)

    def __radd__(self, other: int) -> FrequencyTable:  # sum() starts from 0
        return self if other == 0 else NotImplemented

    @classmethod
    def count(
        cls,
        texts: Iterable[str | os.PathLike[str]] | os.PathLike[str] | Any,
        tokenizer: PreTrainedTokenizerBase,
        *,
        column: str | None = None,
        batch_size: int = 1000,
        num_processes: int = 1,
        max_line: int = MAX_LINE,
        show_progress_bar: bool = False,
    ) -> FrequencyTable:
        """Count the tokens of ``texts`` in one stream, without special tokens or truncation.

        Args:
            texts: any iterable of strings: a list, a generator, a column of a data set, or a data set with a text
                column. A ``pathlib.Path``, alone or among them, is a text file (plain or ``.gz``, UTF-8) with one text
                per line.
            tokenizer: the tokenizer of the model that will be trained, one of the transformers library.
            column: column of a data set. None: the first of sentence, text, sentence1, content that exists, otherwise
                the only column of strings.
            batch_size: number of texts in each call of the tokenizer.
            num_processes: number of processes. 1 counts in this process, where fast tokenizers use every core; more
                start worker processes, for which a script needs the ``if __name__ == "__main__":`` guard.
            max_line: longest line of a file allowed, in bytes.
            show_progress_bar: show texts per second, and progress if ``len(texts)`` is known.

        Raises:
            ValueError: if ``texts`` is a string or a data set with splits, holds anything but strings and paths, or
                holds no token; if the tokenizer is of another library, has no vocabulary or fails; if a line of a
                file is too long or not UTF-8; or if a setting is not allowed.
        """
        batch_size = check_count("batch_size", batch_size, 1, _MAX_BATCH_SIZE)
        num_processes = check_count("num_processes", num_processes, 1, MAX_PROCESSES)
        tokens = vocabulary(tokenizer)
        counts = np.zeros(len(tokens), dtype=np.int64)
        num_texts = 0
        total = len(texts) if isinstance(texts, Sized) else None
        batches = counting.batch_texts(counting.iterate_texts(texts, column, max_line), batch_size)
        with tqdm(total=total, unit=" texts", desc="Counting tokens", delay=0.5, disable=not show_progress_bar) as bar:
            for size, batch_counts in counting.count_batches(batches, tokenizer, num_processes):
                counts[: len(batch_counts)] += batch_counts
                num_texts += size
                bar.update(size)
        if num_texts == 0:
            raise ValueError("texts must hold at least one text, got none.")
        table = cls(tokens, torch.from_numpy(counts), num_texts)
        unknown = tokenizer.unk_token_id
        counting.warn_of_unknown_tokens(0 if unknown is None else int(table.counts[unknown]), table.total)
        return table

    @classmethod
    def from_wordfreq(
        cls, tokenizer: PreTrainedTokenizerBase, language: str = "en", *, scale: float = 1e9
    ) -> FrequencyTable:
        """Estimate a table from the word list of wordfreq (https://github.com/rspeer/wordfreq), without a corpus.

        Each word adds its frequency to each of its tokens. wordfreq has no punctuation, which is frequent in any
        corpus: tokens of ASCII punctuation get the highest count. Numbers get wordfreq's own estimate.

        Args:
            tokenizer: the tokenizer of the model that will be trained.
            language: a language code of wordfreq, such as "en" or "zh".
            scale: size of the imagined corpus, in words.

        Raises:
            ImportError: if wordfreq is not installed.
            ValueError: if wordfreq has no list for ``language``.
        """
        tokens = vocabulary(tokenizer)
        return cls(tokens, torch.from_numpy(counting.wordfreq_counts(tokens, tokenizer, language, scale)))

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], tokenizer: PreTrainedTokenizerBase | None = None
    ) -> FrequencyTable:
        """Read a table: a file of :meth:`save`, ``token<TAB>count`` lines, or a JSON object ``{token: count}``.

        Args:
            path: the file; ``.gz`` is unpacked. A TSV file may start with the header ``token<TAB>count``.
            tokenizer: puts the tokens of TSV lines or of a JSON object at its ids, in whatever order the file has
                them. Tokens left out get count 0 if no count there is 0; otherwise none may be left out. None: the
                file must be in the order of the ids.

        Raises:
            ValueError: if the file cannot be read as a table, or has another vocabulary than the tokenizer.
        """
        content = read_table(path)
        try:
            table = cls(content.tokens, content.counts, content.num_texts)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if tokenizer is None:
            return table
        if content.in_id_order:
            table.check_tokenizer(tokenizer, f"The frequency table {path}")
            return table
        tokens = vocabulary(tokenizer)
        counted = dict(zip(content.tokens, content.counts, strict=True))
        unknown = sorted(token for token in counted.keys() - set(tokens) if token is not None)
        if unknown:
            raise ValueError(
                f"{path} must be counted with this tokenizer, got {len(unknown)} tokens that are not in its "
                f"vocabulary, such as {', '.join(map(repr, unknown[:3]))}."
            )
        missing = [token for token in tokens if token is not None and token not in counted]
        if missing and 0 in counted.values():
            raise ValueError(
                f"{path} must have the vocabulary of this tokenizer, as it lists counts of 0 too, got {len(missing)} "
                f"tokens left out, such as {', '.join(map(repr, missing[:3]))}."
            )
        counts = [0 if token is None else counted.get(token, 0) for token in tokens]
        return cls(tokens, counts, content.num_texts)

    @classmethod
    def load(cls, path: str | os.PathLike[str], tokenizer: PreTrainedTokenizerBase | None = None) -> FrequencyTable:
        """Read a file of :meth:`save`; with a tokenizer, refuse a table of any other vocabulary.

        Raises:
            ValueError: if the table has another vocabulary than the tokenizer.
        """
        table = cls.from_file(path)
        if tokenizer is not None:
            table.check_tokenizer(tokenizer, f"The frequency table {path}")
        return table

    def save(self, path: str | os.PathLike[str], format: str | None = None) -> None:
        """Write the table; ``path`` appears only when the file is complete.

        Args:
            path: the file; packed if its name ends in ``.gz``.
            format: "table" (JSON: vocabulary, counts, number of texts), "tsv" (``token<TAB>count`` lines in the order
                of the ids) or "json" (``{token: count}``, as the SLT-FAI authors write it). None: "tsv" if the name
                ends in ``.tsv`` or ``.tsv.gz``, otherwise "table".

        Raises:
            ValueError: if the format is unknown, or it is "tsv" and a token fits no line.
        """
        write_table(path, TableContent(self.tokens, self.counts.tolist(), self.num_texts), format)

    def labels(self, low_frequency_ratio: float = 0.5) -> Tensor:
        """Label each input id: 1 = low frequency, 0 = high frequency.

        Of the n tokens that occur, sorted by count (equal counts by id), the lowest ``int(ratio * n)`` are low; so are
        the tokens that never occur.

        Args:
            low_frequency_ratio: share of low-frequency tokens, in (0, 1) (lambda in the paper).

        Returns:
            An int64 tensor of shape (V,).
        """
        check_fraction("low_frequency_ratio", low_frequency_ratio)
        ascending = torch.argsort(self.counts, stable=True)
        num_low = len(self) - self.num_seen + int(low_frequency_ratio * self.num_seen)
        labels = torch.zeros(len(self), dtype=torch.int64)
        labels[ascending[:num_low]] = 1
        return labels

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase, name: str = "The frequency table") -> None:
        """Raise a ValueError, which begins with ``name``, unless the vocabulary is the tokenizer's, id by id."""
        _check_same_vocabulary(self.tokens, vocabulary(tokenizer), "the tokenizer", name)


def _check_same_vocabulary(
    ours: Sequence[str | None], theirs: Sequence[str | None], owner: str, name: str = "The frequency table"
) -> None:
    """Raise a ValueError, which begins with ``name``, unless both have the same token at each id."""
    if tuple(ours) == tuple(theirs):
        return
    index = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if index is None:
        difference = f"{len(ours)} ids here, {len(theirs)} there"
    else:
        difference = f"id {index} is {ours[index]!r} here and {theirs[index]!r} there"
    raise ValueError(f"{name} and {owner} must have the same vocabulary, got a difference: {difference}.")
