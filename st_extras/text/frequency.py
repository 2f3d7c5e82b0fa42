"""Token frequencies of a corpus, counted with the tokenizer of the model that will use them."""

from __future__ import annotations

import gzip
import json
import os
import string
import tempfile
from collections.abc import Iterable, Sequence, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from st_extras.text.corpus import read_lines
from st_extras.text.counting import batches, counted, stream, token_encoder

_FORMAT = "st-extras frequency table"


class FrequencyTable:
    """How often each token of a tokenizer's vocabulary occurs in a corpus.

    Tables of the same vocabulary add (``a + b``, ``sum(tables)``), so a corpus can be counted in shards.
    Memory while counting is one batch of texts and one table, whatever the size of the corpus.

    Args:
        tokens: The token at each input id; None at ids without a token. Length V.
        counts: Its number of occurrences. Shape (V,), integers >= 0, at least one of them positive.
        num_texts: How many texts were counted; 0 where unknown.

    Attributes:
        tokens: tuple of length V.
        counts: int64 tensor of shape (V,).
        num_texts: int.

    Raises:
        ValueError: The lengths differ, a count is negative, or nothing at all was counted.

    Example::

        table = FrequencyTable.count(dataset["sentence"], model.tokenizer)
        table.save("frequencies.json")
        table.labels(0.5)  # (V,): 1 = low frequency, 0 = high frequency
    """

    def __init__(self, tokens: Sequence[str | None], counts: Tensor | Sequence[int], num_texts: int = 0) -> None:
        self.tokens = tuple(tokens)
        self.counts = torch.as_tensor(counts).to(torch.int64).cpu()
        self.num_texts = num_texts
        if self.counts.shape != (len(self.tokens),):
            raise ValueError(
                f"counts must have one entry for each of the {len(self.tokens)} tokens, "
                f"got shape {tuple(self.counts.shape)}"
            )
        if (self.counts < 0).any():
            raise ValueError(f"counts must not be negative, got {int(self.counts.min())}")
        if not self.counts.any():
            raise ValueError("counts are all 0: the corpus holds no token")

    def __repr__(self) -> str:
        return f"FrequencyTable(types={self.num_seen}/{len(self)}, tokens={self.total}, texts={self.num_texts})"

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def total(self) -> int:
        """Tokens counted."""
        return int(self.counts.sum())

    @property
    def num_seen(self) -> int:
        """Vocabulary types that occur at least once."""
        return int((self.counts > 0).sum())

    def __add__(self, other: FrequencyTable) -> FrequencyTable:
        if not isinstance(other, FrequencyTable):
            return NotImplemented
        _refuse_other_vocabulary(self.tokens, other.tokens, "the other table")
        return FrequencyTable(self.tokens, self.counts + other.counts, self.num_texts + other.num_texts)

    def __radd__(self, other: int) -> FrequencyTable:  # sum() starts from 0
        return self if other == 0 else NotImplemented

    # ------------------------------------------------------------------ where tables come from

    @classmethod
    def count(
        cls,
        texts: Iterable[str | os.PathLike[str]] | os.PathLike[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 1000,
        num_processes: int = 1,
        show_progress_bar: bool = False,
    ) -> FrequencyTable:
        """Count the tokens of ``texts``, in one stream, without special tokens and without truncation.

        Args:
            texts: Any iterable of strings: a list, a generator, a column of a data set. A ``pathlib.Path``,
                alone or among them, is a text file (plain or ``.gz``, UTF-8) with one text a line.
            tokenizer: The tokenizer of the model that will be trained.
            batch_size: Texts for each call of the tokenizer.
            num_processes: 1 counts here (fast tokenizers already use every core); more start that many worker
                processes, which need the ``if __name__ == "__main__":`` guard in a script.
            show_progress_bar: Show texts a second, and the part done where ``len(texts)`` is known.

        Raises:
            ValueError: ``texts`` is a string, holds something that is no string, or holds no token.
        """
        for name, value in (("batch_size", batch_size), ("num_processes", num_processes)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        tokens = _vocabulary(tokenizer)
        counts = np.zeros(len(tokens), dtype=np.int64)
        num_texts = 0
        total = len(texts) if isinstance(texts, Sized) else None
        with tqdm(total=total, unit=" texts", desc="Counting tokens", disable=not show_progress_bar) as bar:
            for size, ids in counted(batches(stream(texts), batch_size), tokenizer, num_processes):
                counts[: len(ids)] += ids
                num_texts += size
                bar.update(size)
        if num_texts == 0:
            raise ValueError("texts is empty: there is nothing to count")
        return cls(tokens, torch.from_numpy(counts), num_texts)

    @classmethod
    def from_wordfreq(
        cls, tokenizer: PreTrainedTokenizerBase, language: str = "en", *, scale: float = 1e9
    ) -> FrequencyTable:
        """Estimate a table from the word list of the ``wordfreq`` package, where no corpus is at hand.

        Every word gives its frequency to each of its tokens. wordfreq knows no punctuation, which is frequent
        in any corpus: tokens of ASCII punctuation get the highest count. Numbers get wordfreq's estimate.

        Args:
            tokenizer: The tokenizer of the model that will be trained.
            language: A language code of wordfreq, such as "en" or "zh".
            scale: Corpus size, in words, that the counts pretend to.

        Raises:
            ImportError: wordfreq is not installed.
            ValueError: wordfreq has no list for ``language``.
        """
        try:
            import wordfreq
        except ImportError as error:
            raise ImportError('from_wordfreq needs wordfreq: pip install "st-extras[wordfreq]"') from error
        languages = wordfreq.available_languages()
        if language not in languages:
            raise ValueError(f"language must be one of wordfreq's {', '.join(sorted(languages))}; got {language!r}")
        words = {
            word: frequency
            for word, frequency in wordfreq.get_frequency_dict(language).items()
            if not any(character.isdigit() for character in word)  # digits are masked in the list: "0000"
        }
        tokens = _vocabulary(tokenizer)
        weights = np.zeros(len(tokens))
        encoded = token_encoder(tokenizer)([f" {word}" for word in words])  # byte-level tokenizers see the space
        for ids, frequency in zip(encoded, words.values(), strict=True):
            np.add.at(weights, ids, frequency)
        for index, token in enumerate(tokens):
            surface = (token or "").lstrip("Ġ▁").removeprefix("##")
            if surface and all(character in string.punctuation for character in surface):
                weights[index] = np.inf
            elif surface.isdigit():
                weights[index] = wordfreq.word_frequency(surface, language)
        highest = weights[np.isfinite(weights)].max()
        counts = np.rint(np.minimum(weights, highest) * scale).astype(np.int64)
        return cls(tokens, torch.from_numpy(counts))

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], tokenizer: PreTrainedTokenizerBase | None = None
    ) -> FrequencyTable:
        """Read a table: what :meth:`save` wrote, ``token<TAB>count`` lines, or a JSON ``{token: count}``.

        Args:
            path: The file; ``.gz`` is unpacked. A TSV may have a header line ``token<TAB>count``.
            tokenizer: Puts the tokens at its ids, in whatever order the file has them; tokens of its
                vocabulary that are not in the file have count 0. Without it, the file is in id order.

        Raises:
            ValueError: The file cannot be read as a table, or has tokens that the tokenizer does not know.
        """
        path = Path(path)
        text = "".join(line for _, line in read_lines(path))
        if text.lstrip().startswith("{") and "\t" not in text.partition("\n")[0]:
            table = cls._from_json(text, path)
        else:
            table = cls._from_tsv(text, path)
        return table if tokenizer is None else table._placed(tokenizer, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], tokenizer: PreTrainedTokenizerBase | None = None) -> FrequencyTable:
        """Read what :meth:`save` wrote; with a tokenizer, refuse a table of any other vocabulary.

        Raises:
            ValueError: The table belongs to another vocabulary.
        """
        table = cls.from_file(path)
        if tokenizer is not None:
            table.check_tokenizer(tokenizer)
        return table

    def save(self, path: str | os.PathLike[str], format: str | None = None) -> None:
        """Write the table; ``path`` appears only when it is complete.

        Args:
            path: Where to. ``.gz`` packs it.
            format: "table" (JSON: vocabulary, counts, number of texts), "tsv" (``token<TAB>count`` lines in
                the order of the ids) or "json" (``{token: count}``, the authors' own).
                None: "tsv" where the name ends in ``.tsv`` or ``.tsv.gz``, else "table".

        Raises:
            ValueError: Unknown format, or an entry that a TSV cannot hold: a token with a newline, no token.
        """
        path = Path(path)
        format = format or ("tsv" if path.name.removesuffix(".gz").endswith(".tsv") else "table")
        rows = [(token, count) for token, count in zip(self.tokens, self.counts.tolist(), strict=True)]
        if format == "table":
            content: dict[str, Any] = {"format": _FORMAT, "version": 1, "num_texts": self.num_texts}
            content |= {"tokens": self.tokens, "counts": [count for _, count in rows]}
            text = json.dumps(content, ensure_ascii=False) + "\n"
        elif format == "json":
            known = {token: count for token, count in rows if token is not None}
            text = json.dumps(known, ensure_ascii=False, indent=2) + "\n"
        elif format == "tsv":
            unfit = [token for token, _ in rows if token is None or "\n" in token]
            if unfit:
                raise ValueError(f"format 'tsv' cannot hold the token {unfit[0]!r}; use 'table'")
            text = "token\tcount\n" + "".join(f"{token}\t{count}\n" for token, count in rows)
        else:
            raise ValueError(f"format must be 'table', 'tsv' or 'json', got {format!r}")
        _write_whole(path, text)

    # ------------------------------------------------------------------ what tables are for

    def labels(self, low_frequency_ratio: float = 0.5) -> Tensor:
        """Frequency label of each input id: 1 = low, 0 = high. Shape (V,), int64.

        Of the n types that occur, sorted by count (equal counts by id), the lowest ``int(ratio * n)`` are
        low; so are the types that never occur.

        Args:
            low_frequency_ratio: The paper's lambda, in (0, 1).
        """
        if not 0 < low_frequency_ratio < 1:
            raise ValueError(f"low_frequency_ratio must lie between 0 and 1, got {low_frequency_ratio!r}")
        ascending = torch.argsort(self.counts, stable=True)
        num_low = len(self) - self.num_seen + int(low_frequency_ratio * self.num_seen)
        labels = torch.zeros(len(self), dtype=torch.int64)
        labels[ascending[:num_low]] = 1
        return labels

    def rare(self, input_ids: Tensor, low_frequency_ratio: float = 0.5) -> Tensor:
        """True where an input id is a low-frequency token: a bool tensor of the shape of ``input_ids``.

        Special tokens that the corpus never holds ([CLS], [PAD]) count as rare here; mask them where they
        must not.
        """
        return self.labels(low_frequency_ratio).to(input_ids.device)[input_ids] == 1

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raise a ValueError unless the table's vocabulary is the tokenizer's, id by id."""
        _refuse_other_vocabulary(self.tokens, _vocabulary(tokenizer), "the tokenizer")

    # ------------------------------------------------------------------ files

    @classmethod
    def _from_json(cls, text: str, path: Path) -> FrequencyTable:
        try:
            content = json.loads(text, object_pairs_hook=_each_once)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not a complete JSON file: {error}") from error
        except KeyError as error:
            raise ValueError(f"{path} must hold each token once, got {error} twice") from error
        if content.get("format") == _FORMAT:
            if missing := {"tokens", "counts", "num_texts"} - content.keys():
                raise ValueError(f"{path} is no whole frequency table: it lacks {', '.join(sorted(missing))}")
            return cls(content["tokens"], content["counts"], content["num_texts"])
        wrong = next((item for item in content.items() if type(item[1]) is not int), None)
        if wrong is not None:
            raise ValueError(f"{path} must map tokens to whole numbers, got {wrong[0]!r}: {wrong[1]!r}")
        return cls(list(content), list(content.values()))

    @classmethod
    def _from_tsv(cls, text: str, path: Path) -> FrequencyTable:
        rows = [line.rstrip("\r").rsplit("\t", 1) for line in text.split("\n") if line.strip("\r")]
        if rows and rows[0] == ["token", "count"]:
            del rows[0]
        for number, row in enumerate(rows, start=1):
            if len(row) != 2 or not row[1].strip().isdecimal():
                raise ValueError(f"{path}: row {number} must be token<TAB>count, got {'<TAB>'.join(row)!r}")
        repeated = len(rows) - len({token for token, _ in rows})
        if repeated or not rows:
            raise ValueError(f"{path} must hold each token once, got {len(rows)} rows, {repeated} repeated")
        return cls([token for token, _ in rows], [int(count) for _, count in rows])

    def _placed(self, tokenizer: PreTrainedTokenizerBase, path: Path) -> FrequencyTable:
        tokens = _vocabulary(tokenizer)
        position = {token: index for index, token in enumerate(tokens)}
        unknown = [token for token in self.tokens if token is not None and token not in position]
        if unknown:
            raise ValueError(
                f"{path} was counted with another tokenizer: {len(unknown)} of its tokens, such as "
                f"{', '.join(map(repr, unknown[:3]))}, are not in this one's vocabulary"
            )
        counts = torch.zeros(len(tokens), dtype=torch.int64)
        known = [(position[token], index) for index, token in enumerate(self.tokens) if token is not None]
        target, source = torch.tensor(known).unbind(1)
        counts[target] = self.counts[source]
        return FrequencyTable(tokens, counts, self.num_texts)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; KeyError for a key that it holds twice, of which json would keep the last."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise KeyError(key)
        content[key] = value
    return content


def _vocabulary(tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, ...]:
    vocabulary = tokenizer.get_vocab()
    tokens: list[str | None] = [None] * (max(vocabulary.values()) + 1)
    for token, index in vocabulary.items():
        tokens[index] = token
    return tuple(tokens)


def _refuse_other_vocabulary(ours: Sequence[str | None], theirs: Sequence[str | None], owner: str) -> None:
    if tuple(ours) == tuple(theirs):
        return
    index = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if index is None:
        reason = f"{len(ours)} ids here, {len(theirs)} there"
    else:
        reason = f"id {index} is {ours[index]!r} here and {theirs[index]!r} there"
    raise ValueError(f"the frequency table and {owner} must have the same vocabulary: {reason}")


def _write_whole(path: Path, text: str) -> None:
    """Write beside ``path`` and move into place, so that nobody ever sees half a file."""
    data = text.encode("utf-8")
    data = gzip.compress(data) if path.suffix == ".gz" else data
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
