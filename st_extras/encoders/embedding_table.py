"""A guide's embeddings of the training sentences, computed once and looked up by their token ids.

A table is rows of keys and vectors in the order of reading, and a sorted index of the keys. In a folder, both are
mapped into memory, and a lookup reads a few pages. Rows are appended (see :class:`~st_extras.files.RowFile`), and the
index is written when all are there. A computation that continues after an interruption reads its rows once, to check
them, and encodes at most CHUNK sentences again. The rows are one file, so :meth:`EmbeddingTable.merge` copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_choice, check_rows, shown
from st_extras.encoders.fingerprint import differing_settings
from st_extras.encoders.frozen import TextGuide
from st_extras.encoders.rows import Features, token_rows
from st_extras.files import RowFile, State, checked_rows, digest, map_rows, require_whole, whole_file
from st_extras.functional import unit_rows
from st_extras.text.corpus import iterate_sentences
from st_extras.text.frequency import vocabulary

CHUNK = 16_384
"""Sentences that are read, embedded and written together."""
_FORMAT = "st-extras embedding table"
_INDEX = "index.bin"
_open = partial(RowFile.open, kind=_FORMAT, differing=differing_settings)
_ENTRY = np.dtype([("key", "S16"), ("row", ">u8")])
_BYTES = f"S{_ENTRY.itemsize}"  # entries sort as bytes do


class EmbeddingTable(nn.Module):
    """A guide's embeddings of the training sentences, computed once and looked up by their token ids.

    A loss does not see texts, so the key of a sentence is its unpadded token ids, as the trained model's tokenizer
    gives them with its max_seq_length and prompt. Use :meth:`compute` to make a table: in memory, or for
    millions of sentences in a folder.

    Args:
        keys: token ids of each of the N sentences; of equal ones, the first counts.
        embeddings: (N, D), row i belongs to ``keys[i]``; stored normalised, in float32.
        vocabulary: hash of the vocabulary that the ids belong to, which :meth:`check_tokenizer` compares. None: not
            known.

    Raises:
        ValueError: if ``keys`` is empty, not token ids or of another length than ``embeddings``, or these are not
            finite (N, D) floating-point numbers.
    """

    def __init__(self, keys: Sequence[Sequence[int]], embeddings: Tensor, vocabulary: str | None = None) -> None:
        embeddings = check_rows("embeddings", embeddings)
        if len(keys) != len(embeddings):
            raise ValueError(f"embeddings must be as many as keys, got {len(embeddings)} for {len(keys)}.")
        with _open(None, settings={"vocabulary": vocabulary, "dtype": "float32"}) as file:
            rows, hashes = _Rows(file), _hashes([list(map(index, key)) for key in keys])
            new = rows.new(hashes)
            rows.add(hashes[new], embeddings[new])
            self._hold(rows.index, file.rows(), file.settings)

    def _hold(self, entries: np.ndarray, rows: np.ndarray, settings: State, path: Path | None = None) -> EmbeddingTable:
        super().__init__()
        self._index, self._rows, self._settings, self.path = entries, rows, settings, path
        self.vocabulary: str | None = settings["vocabulary"]
        return self

    @property
    def embeddings(self) -> Tensor:
        """All embeddings, (N, D), normalised, in float32; those of a folder are read into memory."""
        return torch.from_numpy(self._rows["vector"].astype(np.float32))

    @property
    def name(self) -> str:
        """The name of the folder, if there is one, and the size; for the model card."""
        folder = f"{self.path.name} " if self.path else ""
        return f"EmbeddingTable {folder}of {len(self)} sentences, {self._rows['vector'].shape[1]} dimensions"

    def __len__(self) -> int:
        return len(self._index)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self._rows, np.memmap):
            return type(self).load, (self.path,)  # copies and worker processes map the same files
        return super().__reduce_ex__(protocol)

    @classmethod
    def compute(
        cls,
        model: SentenceTransformer,
        complementary_model: SentenceTransformer | str | PathLike[str],
        sentences: Iterable[str],
        *,
        prompt: str | None = None,
        batch_size: int = 64,
        show_progress_bar: bool = True,
        folder: str | PathLike[str] | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        encode_options: Mapping[str, Any] | None = None,
    ) -> EmbeddingTable:
        """Encode the distinct sentences with the guide.

        With a ``folder``, sentences are read as a stream, once: memory holds CHUNK of them and 24 bytes of each. If it
        is interrupted, the same call resumes it; with sentences added at the end, it adds them. Shards of
        a corpus can be computed in folders of their own and joined with :meth:`merge`. Of sentences with equal token
        ids, the first counts.

        Of a text that the model's max_seq_length cuts, a guide of the same vocabulary sees what is left, as it does in
        training without a table.

        Args:
            model: the model to be trained: its tokenizer and max_seq_length make the keys.
            complementary_model: the guide, or its path or hub id.
            sentences: all training texts (both columns of pairs), or a data set with a column of them.
            prompt: the prompt that training puts before the sentences, if any.
            batch_size: sentences per call, for tokenizing and encoding.
            show_progress_bar: show a progress bar.
            folder: where to write the table: a new or empty folder, or one of an earlier call with the same settings
                and sentences. None: the table is held in memory.
            dtype: of the stored vectors; "float16" halves them, and changes cosines by about 1e-3.
            encode_options: device, pool and chunk_size for the guide's ``encode``: ``{"device": ["cuda:0", "cuda:1"]}``
                encodes in one process a device.

        Raises:
            ValueError: if there are no sentences, one is not a string, ``batch_size`` is not a whole number >= 1,
                ``prompt`` is not text, ``dtype`` or an option is another one, or the folder holds something else.
        """
        check_choice("dtype", dtype, ("float32", "float16"))
        stream = iterate_sentences(sentences)
        settings = {"vocabulary": _vocabulary(model.tokenizer), "dtype": dtype}
        with (
            TextGuide.open(complementary_model, model, prompt, batch_size, encode_options) as guide,
            _open(folder, settings=settings | guide.settings()) as file,
            tqdm(unit=" sentences", desc="Embedding", disable=not show_progress_bar) as bar,
        ):
            rows = _Rows(file)
            bar.update(rows.skip(stream))
            while chunk := list(islice(stream, CHUNK)):
                keys = guide.keys(chunk)
                if new := rows.new(hashes := _hashes(keys)):
                    rows.add(hashes[new], guide.embed([chunk[i] for i in new], [keys[i] for i in new]))
                rows.commit(chunk)
                bar.update(len(chunk))
            if not len(rows.index):
                raise ValueError("sentences must hold at least one sentence, got none.")
            return rows.table()

    @classmethod
    def merge(cls, tables: Sequence[str | PathLike[str]], folder: str | PathLike[str]) -> EmbeddingTable:
        """Join tables that were computed over shards of a corpus, with the same settings, into one.

        A sentence that several have counts once, as the first has it.

        Args:
            tables: their folders.
            folder: the folder to make: new or empty.

        Raises:
            ValueError: if there is none, one is not a complete folder, or their settings differ.
        """
        if isinstance(tables, str | bytes) or not isinstance(tables, Sequence) or not tables:
            raise ValueError(f"tables must be a list of at least one folder, got {shown(tables)}.")
        parts = [cls.load(table) for table in tables]
        for part in parts:
            if other := differing_settings(parts[0]._settings, part._settings):
                raise ValueError(f"tables must have the same settings, got {part.path} with another {other[0]}.")
        return _joined(parts, folder)

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Refuse a tokenizer with another vocabulary than the one that made the keys.

        Raises:
            ValueError: if both vocabularies are known and differ.
        """
        other = _vocabulary(tokenizer)
        if self.vocabulary is not None and other is not None and self.vocabulary != other:
            raise ValueError(
                "complementary_table must be computed with the trained model's tokenizer, got a table of another "
                "vocabulary: compute it again with EmbeddingTable.compute(model, ...)."
            )

    def forward(self, features: Features, decode: Callable[[list[int]], str] = str) -> Tensor:
        """Return the stored (B, D) embeddings of the features' sentences.

        Raises:
            ValueError: if a sentence is not in the table; ``decode`` turns its ids into text for the message.
        """
        keys = token_rows(features)
        hashes = _hashes(keys)
        found = _find(self._index, hashes)
        if (found < 0).any():
            raise ValueError(
                f"complementary_table has no embedding for {decode(keys[int(found.argmin())])!r}: compute it over all "
                "training sentences, with the same tokenizer, max_seq_length and prompt."
            )
        rows = require_whole(self._rows[found], self.path, key=hashes)
        return torch.from_numpy(rows["vector"].astype(np.float32)).to(features["input_ids"].device)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the table to a folder.

        Raises:
            ValueError: if the folder is not new or empty.
        """
        self.path = _joined([self], path).path

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EmbeddingTable:
        """Open the folder that :meth:`compute`, :meth:`merge` or :meth:`save` wrote; its arrays are mapped.

        Raises:
            ValueError: if there is no such folder, or it is not complete or damaged; the message names it.
        """
        rows, settings, state = map_rows(path, _FORMAT)
        file = Path(path, _INDEX)
        present = file.is_file() and file.stat().st_size == len(rows) * _ENTRY.itemsize
        entries = np.memmap(file, _ENTRY, "r") if present else np.empty(0, _ENTRY)
        if digest([entries.data]) != state.get("index"):
            raise ValueError(
                f"{str(path)!r} must be a complete table, got one that was interrupted or damaged: call compute again, "
                "or merge or save to a new folder."
            )
        return cls.__new__(cls)._hold(entries, rows, settings, Path(path))


class _Rows:
    """The rows of a table that is being computed, the index of their keys, and a digest of the sentences read."""

    def __init__(self, file: RowFile) -> None:
        self.file, self.index = file, np.empty(0, _ENTRY)
        self.read, self.digest = 0, ""
        for block in file.blocks(CHUNK):
            self._enter(block)

    def skip(self, sentences: Iterator[str]) -> int:
        """Pass over the sentences that were read before, and return how many.

        Raises:
            ValueError: if they are others.
        """
        before = self.file.state or {"read": 0, "digest": ""}
        self._count(islice(sentences, before["read"]))
        if (self.read, self.digest) != (before["read"], before["digest"]):
            raise ValueError(
                f"sentences must begin with those of the earlier call in {str(self.file.path)!r}, got others: give "
                "the same sentences in the same order, or a new folder."
            )
        return self.read

    def new(self, keys: np.ndarray) -> list[int]:
        """Return which of the keys (n,) have no row yet, the first of equal ones."""
        first = np.sort(np.unique(keys, return_index=True)[1])
        return [int(place) for place in first[_find(self.index, keys[first]) < 0]]

    def add(self, keys: np.ndarray, vectors: Tensor) -> None:
        """Add new keys (n,) with their vectors (n, D)."""
        vectors = unit_rows(vectors.detach().float()).cpu()  # in float32 before their length is taken
        if not bool(vectors.isfinite().all()):
            raise ValueError("embeddings must be finite, got NaN or infinity.")
        fields = [("key", "S16"), ("vector", np.dtype(self.file.settings["dtype"]).str, vectors.shape[1:])]
        self.append(checked_rows(fields, key=keys, vector=vectors.numpy()))

    def append(self, rows: np.ndarray) -> None:
        """Append rows with new keys."""
        self._enter(rows)
        self.file.append(rows)

    def _enter(self, rows: np.ndarray) -> None:
        entries = np.empty(len(rows), _ENTRY)
        entries["key"], entries["row"] = rows["key"], len(self.index) + np.arange(len(rows))
        entries.view(_BYTES).sort()
        self.index = np.insert(self.index, np.searchsorted(self.index.view(_BYTES), entries.view(_BYTES)), entries)

    def _count(self, sentences: Iterable[str]) -> None:
        for text in sentences:
            self.digest = digest([self.digest, text])
            self.read += 1

    def commit(self, sentences: Iterable[str]) -> None:
        """Record that all rows so far are whole, and that these sentences were read."""
        self._count(sentences)
        self.file.commit(read=self.read, digest=self.digest)

    def table(self) -> EmbeddingTable:
        """Return the table, which is complete."""
        if self.file.path is None:
            return EmbeddingTable.__new__(EmbeddingTable)._hold(self.index, self.file.rows(), self.file.settings)
        with whole_file(self.file.path / _INDEX) as partial:
            partial.write_bytes(self.index.tobytes())
        self.file.commit(read=self.read, digest=self.digest, index=digest([self.index.data]))
        return EmbeddingTable.load(self.file.path)


def _joined(tables: Sequence[EmbeddingTable], folder: str | PathLike[str]) -> EmbeddingTable:
    """Copy the rows of all tables to a new folder; of equal keys, the first counts."""
    with _open(folder, settings=tables[0]._settings, new=True) as file:
        rows = _Rows(file)
        for table in tables:
            for start in range(0, len(table), CHUNK):
                block = require_whole(table._rows[start : start + CHUNK], table.path)
                rows.append(block[rows.new(block["key"])])
        return rows.table()


def _find(entries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the row number of each of the (n,) keys in the sorted entries; -1 for a key that is missing."""
    if not len(entries):
        return np.full(len(keys), -1)
    places = np.searchsorted(entries.view(_BYTES), keys.astype(_BYTES)).clip(max=len(entries) - 1)
    found = entries[places]
    return np.where(found["key"] == keys, found["row"].astype(np.int64), -1)


def _hashes(rows: Iterable[Sequence[int]]) -> np.ndarray:
    """Return the 128-bit hash of each row of token ids, (N,) of 16 bytes."""
    hashes = [blake2b(np.asarray(row, dtype="<i8").tobytes(), digest_size=16).digest() for row in rows]
    return np.array(hashes, dtype="S16")


def _vocabulary(tokenizer: Any) -> str | None:
    """Return the hash of a tokenizer's vocabulary; None if it is not one of the transformers library."""
    known = isinstance(tokenizer, PreTrainedTokenizerBase)
    return digest(map(repr, vocabulary(tokenizer))) if known else None
