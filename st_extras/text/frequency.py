"""Token frequencies of a corpus, counted with the tokenizer of the model that will use them."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_count, check_fraction, shown
from st_extras.files import whole_file
from st_extras.text.corpus import iterate_sentences
from st_extras.text.files import file_kind, open_text, parse_json, read_lines

_FORMAT = "st-extras frequency table"
_MAX_BATCH_SIZE = 1_000_000  # texts
_BATCH_CHARACTERS = 4_000_000  # keeps a batch of whole documents small
_MANY_UNKNOWN = 0.1  # a larger share of unknown tokens is warned of
logger = logging.getLogger(__name__)


class FrequencyTable:
    """Count how often each token of a tokenizer's vocabulary occurs in a corpus; label the rare ones.

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

    @classmethod
    def count(
        cls,
        texts: Iterable[str] | Any,
        tokenizer: PreTrainedTokenizerBase,
        *,
        column: str | None = None,
        batch_size: int = 1000,
        show_progress_bar: bool = False,
    ) -> FrequencyTable:
        """Count the tokens of ``texts`` in one stream, without special tokens or truncation.

        Args:
            texts: any iterable of strings: a list, a generator, a column of a data set, or a data set with a text
                column.
            tokenizer: the tokenizer of the model that will be trained, one of the transformers library.
            column: column of a data set. None: the first of sentence, text, sentence1, content that exists, otherwise
                the only column of strings.
            batch_size: number of texts in each call of the tokenizer.
            show_progress_bar: show texts per second, and progress if ``len(texts)`` is known.

        Raises:
            ValueError: if ``texts`` is a string or a data set with splits, holds anything but strings, or holds no
                token; if the tokenizer is of another library, has no vocabulary or fails; or if a setting is not
                allowed.
        """
        batch_size = check_count("batch_size", batch_size, 1, _MAX_BATCH_SIZE)
        tokens, encode = vocabulary(tokenizer), _token_encoder(tokenizer)
        counts = np.zeros(len(tokens), dtype=np.int64)
        num_texts = 0
        total = len(texts) if isinstance(texts, Sized) else None
        with tqdm(total=total, unit=" texts", desc="Counting tokens", delay=0.5, disable=not show_progress_bar) as bar:
            for batch in _batches(iterate_sentences(texts, column, name="texts"), batch_size):
                ids = np.fromiter(chain.from_iterable(encode(batch)), dtype=np.int64)
                counts += np.bincount(ids, minlength=len(tokens))
                num_texts += len(batch)
                bar.update(len(batch))
        if num_texts == 0:
            raise ValueError("texts must hold at least one text, got none.")
        table = cls(tokens, torch.from_numpy(counts), num_texts)
        unknown = 0 if tokenizer.unk_token_id is None else int(table.counts[tokenizer.unk_token_id])
        if unknown == table.total:
            raise ValueError(
                "texts must hold words that the tokenizer knows, got only unknown tokens: use another encoder."
            )
        if unknown > _MANY_UNKNOWN * table.total:
            logger.warning(
                f"{unknown / table.total:.0%} of the tokens are words that the tokenizer does not know: an encoder of "
                "this language would see them."
            )
        return table

    @classmethod
    def from_file(cls, path: str | PathLike[str], tokenizer: PreTrainedTokenizerBase | None = None) -> FrequencyTable:
        """Read ``token<TAB>count`` lines, such as those of the SLT-FAI paper.

        Args:
            path: the file; ``.gz`` is unpacked. It may start with the header ``token<TAB>count``.
            tokenizer: puts the tokens at its ids, in whatever order the file has them; tokens left out get count 0.
                None: the file must be in the order of the ids.

        Raises:
            ValueError: if a line is none of these, a token stands twice, or the tokenizer does not know one.
        """
        counted: dict[str, int] = {}
        for number, line in read_lines(path):
            row = line.rstrip("\r\n")
            if not row or (number == 1 and row == "token\tcount"):
                continue
            token, tab, count = row.rpartition("\t")  # the token may hold a tab itself
            if not tab or not count.isdecimal() or len(count) > 18:
                raise ValueError(f"{path}, line {number}: expected token<TAB>count, got {shown(row)}.")
            if token in counted:
                raise ValueError(f"{path}, line {number}: the file must hold each token once, got {token!r} twice.")
            counted[token] = int(count)
        tokens = tuple(counted) if tokenizer is None else vocabulary(tokenizer)
        unknown = sorted(counted.keys() - set(tokens))
        if unknown:
            raise ValueError(
                f"{path} must be counted with this tokenizer, got {len(unknown)} tokens that are not in its "
                f"vocabulary, such as {', '.join(map(repr, unknown[:3]))}."
            )
        try:
            return cls(tokens, [0 if token is None else counted.get(token, 0) for token in tokens])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def load(cls, path: str | PathLike[str], tokenizer: PreTrainedTokenizerBase | None = None) -> FrequencyTable:
        """Read a file of :meth:`save`; with a tokenizer, refuse a table of any other vocabulary.

        Raises:
            ValueError: if it is not such a file, or the table has another vocabulary than the tokenizer.
        """
        with open_text(path) as stream:
            content = parse_json(stream.read(), str(path))
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"{path} must be a file that FrequencyTable.save wrote, got {shown(content)}.")
        tokens = content.get("tokens")
        if not isinstance(tokens, list) or not all(token is None or isinstance(token, str) for token in tokens):
            raise ValueError(f"{path} must hold a list of tokens, got {shown(tokens)}.")
        try:
            table = cls(tokens, content["counts"], content["num_texts"])
        except (KeyError, TypeError, OverflowError, RuntimeError, ValueError) as error:
            raise ValueError(f"{path} must hold tokens, counts and num_texts as they were saved: {error}") from None
        if tokenizer is not None:
            table.check_tokenizer(tokenizer, f"The frequency table {path}")
        return table

    def save(self, path: str | PathLike[str]) -> None:
        """Write vocabulary, counts and number of texts as JSON; ``path`` appears only when the file is complete.

        Args:
            path: the file; packed if its name ends in ``.gz``.
        """
        content: dict[str, Any] = {"format": _FORMAT, "num_texts": self.num_texts}
        content |= {"tokens": self.tokens, "counts": self.counts.tolist()}
        data = (json.dumps(content, ensure_ascii=False) + "\n").encode()
        with whole_file(Path(path)) as partial:
            partial.write_bytes(gzip.compress(data) if file_kind(path)[1] == ".gz" else data)

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
        ours, theirs = self.tokens, vocabulary(tokenizer)
        if ours == theirs:
            return
        index = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if index is None:
            difference = f"{len(ours)} ids here, {len(theirs)} there"
        else:
            difference = f"id {index} is {ours[index]!r} here and {theirs[index]!r} there"
        raise ValueError(f"{name} and the tokenizer must have the same vocabulary, got a difference: {difference}.")


def _batches(texts: Iterator[str], batch_size: int) -> Iterator[list[str]]:
    """Make batches of at most ``batch_size`` texts, of fewer if the texts are long."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if len(batch) == batch_size or characters > _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _token_encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[list[str]], list[list[int]]]:
    """Return a function from texts to lists of ids, without special tokens, truncation or padding."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda texts: tokenizer(texts, add_special_tokens=False, truncation=False)["input_ids"]
    copy = Tokenizer.from_str(backend.to_str())  # an earlier call may have left truncation on in the original
    copy.no_truncation()
    copy.no_padding()
    return lambda texts: [item.ids for item in copy.encode_batch_fast(texts, add_special_tokens=False)]


def vocabulary(tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, ...]:
    """Return the token at each id of the tokenizer, None at ids without a token.

    Raises:
        ValueError: if it is not a tokenizer of transformers, or has no vocabulary.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(
            f"tokenizer must be one of transformers, got {shown(tokenizer)}: give the .tokenizer of a transformer, or "
            "wrap one of tokenizers in PreTrainedTokenizerFast(tokenizer_object=...)."
        )
    ids = tokenizer.get_vocab()
    if not ids:
        raise ValueError("tokenizer must have a vocabulary, got one without a token.")
    tokens: list[str | None] = [None] * (max(ids.values()) + 1)
    for token, index in ids.items():
        tokens[index] = token
    return tuple(tokens)
