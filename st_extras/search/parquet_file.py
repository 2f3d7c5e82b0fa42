"""The file of a search: one Parquet table with a row for each document, which other programs read too.

Its columns are id, title and text, one for each field of metadata, and what the search made of the documents: spans and
embeddings of their passages, and their words with how often each stands there. The rest, such as the weight, is JSON in
the file's metadata, beside a checksum: what another program changed is refused. Nothing in it can run code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date, datetime
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyarrow import compute, parquet
from scipy.sparse import csr_matrix

from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.passages import Passages
from st_extras.ranking import EmbeddingBlocks
from st_extras.search.state import SearchState, Weight, WeightRule
from st_extras.text.documents import Document, Scalar, exact
from st_extras.text.folders import KEY_OF_SEARCH
from st_extras.text.tables import MADE_BY_SEARCH
from st_extras.text.term_weights import WordCounts, word_rules

_CHECKSUM = b"st_extras.checksum"  # in the file's metadata
_MAGIC = b"PAR1"  # how a Parquet file begins, and how it ends after its footer and the footer's length
_ROWS = 8192  # documents that are written and read together
_OWN = ("id", "title", "text", *MADE_BY_SEARCH)  # columns beside those of the metadata


# --- writing ---


class _Summed:
    """A file to write to, with the checksum (CRC-32) of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.checksum = file, 0

    def write(self, content: bytes) -> int:
        """Write some bytes."""
        self.checksum = crc32(content, self.checksum)
        return self.file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def write_state(path: Path, state: SearchState) -> None:
    """Write a state to a file, some documents at a time, and wait until it has reached the disk."""
    metadata = _metadata_columns(state.documents)
    about = {
        "version": state.version,
        "encoder": state.encoder.to_json(),
        "similarity": state.similarity,
        "passage_words": state.passage_words,
        "language": state.words.language,
        "word_rules": word_rules(state.words.language),
        "rule": asdict(state.rule),
        "weight": asdict(state.weight),
        "metadata": [[name, field, is_json] for name, (field, _, is_json) in metadata.items()],
    }
    vocabulary = pa.array([*state.words.vocabulary], pa.string())
    schema = _table(state, slice(0, 0), vocabulary, metadata).schema
    texts = [name for name in schema.names if schema.field(name).type == pa.string()]
    with path.open("wb") as stream:
        file = _Summed(stream)
        with parquet.ParquetWriter(
            file,
            schema,
            compression=dict.fromkeys(texts, "zstd"),  # numbers would not shrink
            use_dictionary=["words.list.element"],
            write_statistics=[*metadata],
        ) as writer:
            for first in range(0, len(state.documents), _ROWS):
                writer.write_table(_table(state, slice(first, first + _ROWS), vocabulary, metadata))
            content = json.dumps(about)
            checksum = crc32(content.encode(), file.checksum)
            writer.add_key_value_metadata({KEY_OF_SEARCH: content, _CHECKSUM: str(checksum)})
        stream.flush()
        os.fsync(stream.fileno())


def _table(
    state: SearchState, part: slice, vocabulary: pa.Array, metadata: Mapping[str, tuple[str, pa.Array, bool]]
) -> pa.Table:
    """Return the rows of some documents."""
    documents = state.documents[part]
    end = part.start + len(documents)
    first = state.passages.first[part.start : end + 1]
    rows = np.arange(first[0], first[-1])
    counts = state.words.counts[part.start : end]
    stands = np.bincount(counts.indices, minlength=len(vocabulary)) > 0  # only these words are in the dictionary
    words = (np.cumsum(stands) - 1)[counts.indices]
    dictionary = pa.DictionaryArray.from_arrays(pa.array(words, pa.int32()), vocabulary.filter(pa.array(stands)))
    of_passages, of_words = (pa.array(offsets - offsets[0], pa.int32()) for offsets in (first, counts.indptr))
    return pa.table(
        {
            "id": pa.array([str(document.id) for document in documents], pa.string()),
            "title": pa.array([document.title for document in documents], pa.string()),
            "text": pa.array([document.text for document in documents], pa.string()),
            **{name: column[part] for name, (_, column, _) in metadata.items()},
            "id_is_number": pa.array([isinstance(document.id, int) for document in documents], pa.bool_()),
            "spans": pa.ListArray.from_arrays(of_passages, _lists(state.passages.spans[rows])),
            "embeddings": pa.ListArray.from_arrays(of_passages, _lists(state.embeddings.rows(rows))),
            "words": pa.ListArray.from_arrays(of_words, dictionary),
            "counts": pa.ListArray.from_arrays(of_words, pa.array(counts.data, pa.int32())),
        }
    )


def _lists(rows: NDArray[Any]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def _metadata_columns(documents: Sequence[Document]) -> dict[str, tuple[str, pa.Array, bool]]:
    """Return each field of metadata, its column (N,) and whether that holds JSON, by the name of the column.

    That is the field's name, with "_" after one that another column has. A column holds JSON if no type gives back the
    values, as where some are texts and others numbers.
    """
    values: dict[str, list[Scalar | None]] = {}
    for place, document in enumerate(documents):
        for field, value in document.metadata.items():
            if field not in values:
                values[field] = [None] * len(documents)
            values[field][place] = value
    columns: dict[str, tuple[str, pa.Array, bool]] = {}
    for field, of_field in values.items():
        name = field
        while name in _OWN or name in columns:
            name += "_"
        try:
            column = pa.array(of_field)
            is_json = [*map(exact, column.to_pylist())] != [*map(exact, of_field)]
        except (pa.ArrowException, OverflowError, ValueError):
            is_json = True
        columns[name] = field, pa.array(map(_json_of, of_field), pa.string()) if is_json else column, is_json
    return columns


def _json_of(value: Scalar | None) -> str | None:
    """Return a value of metadata as JSON, a date as a dict with its kind."""
    return None if value is None else json.dumps(value, default=lambda day: {type(day).__name__: day.isoformat()})


def _value_of(value: str) -> Scalar:
    """Return the value that :func:`_json_of` wrote."""
    found: Any = json.loads(value)
    if isinstance(found, dict):
        ((kind, text),) = found.items()
        return {"date": date, "datetime": datetime}[kind].fromisoformat(text)
    return found  # type: ignore[no-any-return]


# --- reading ---


def resolved(path: str | PathLike[str]) -> Path:
    """Return the absolute path of a file, links resolved, so that the file and not a link to it is replaced.

    Raises:
        ValueError: if it names none, or its folder does not exist.
    """
    if not str(path).strip():
        raise ValueError(f"path must name a file, got {str(path)!r}.")
    file = Path(path).resolve()
    if not file.parent.is_dir():
        raise ValueError(f"path must be in a folder that exists, got {str(path)!r}.")
    return file


def stored_version(path: Path) -> str | None:
    """Return the version of the state that a file holds; None if there is no file or an empty one.

    Raises:
        ValueError: if HybridSearch.save did not write it.
        OSError: if it cannot be read.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    with _opened(path) as (_, file):
        return str(json.loads(file.metadata.metadata[KEY_OF_SEARCH])["version"])


def read_state(path: Path) -> SearchState:
    """Read the state that a file holds, all of it into memory.

    If its words were counted by other rules, as by an earlier version of this package or of what stems words, they are
    counted again.

    Raises:
        ValueError: if HybridSearch.save did not write it, or it was changed since.
        OSError: if it cannot be read.
    """
    with _opened(path) as (stream, file):
        content = file.metadata.metadata[KEY_OF_SEARCH]
        if _checksum(stream, content) != int(file.metadata.metadata[_CHECKSUM]):
            raise ValueError("the checksum is another")
        return _state_in(file, json.loads(content))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, parquet.ParquetFile]]:
    """Yield the file of a search, also as Parquet; what fails while it is read is a ValueError that says what it is."""
    refused = f"path must be a file that HybridSearch.save wrote, got {str(path)!r}, "
    if not path.is_file():
        raise ValueError(f"{refused}{'a folder' if path.is_dir() else 'where there is no file'}.")
    found = "which is not a Parquet file"
    with path.open("rb") as stream:  # not mapped into memory: another process may replace the file
        try:
            if stream.read(len(_MAGIC)) == _MAGIC:
                found = "which is cut off, damaged, or was changed by another program"
            with parquet.ParquetFile(stream) as file:
                if KEY_OF_SEARCH not in (file.metadata.metadata or {}):
                    found = "a table that another program wrote"
                    raise KeyError(KEY_OF_SEARCH)
                yield stream, file
        except (MemoryError, ImportError):  # no fault of the file
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ValueError(
                f"{refused}{found}: give another file, or make the search again from its documents."
            ) from error


def _checksum(stream: BinaryIO, about: bytes) -> int:
    """Return the checksum of what stands before the footer of a Parquet file, and of what it says about the search."""
    left = stream.seek(-8, os.SEEK_END) - int.from_bytes(stream.read(4), "little")
    stream.seek(0)
    checksum = 0
    while left > 0 and (content := stream.read(min(left, 2**20))):
        checksum, left = crc32(content, checksum), left - len(content)
    return crc32(about, checksum)


def _state_in(file: parquet.ParquetFile, about: dict[str, Any]) -> SearchState:
    """Return the state that an open file holds, with what its metadata say about it."""
    encoder, language = EncoderFingerprint.from_json(about["encoder"]), about["language"]
    dimension = encoder.probes.shape[1]
    groups = (file.read_row_group(number) for number in range(file.num_row_groups))
    table = pa.concat_tables([file.schema_arrow.empty_table(), *groups])
    spans, embeddings = table.column("spans"), table.column("embeddings")
    documents = _documents(table, about["metadata"])
    if about["word_rules"] == word_rules(language):
        word_counts = _word_counts(table.column("words"), table.column("counts"), language)
    else:
        word_counts = WordCounts.of([document.full_text for document in documents], language)
    return SearchState(
        documents,
        Passages(_bounds(spans), np.concatenate([_rows_of_lists(part, 2) for part in spans.chunks])),
        EmbeddingBlocks.of(*(_rows_of_lists(part, dimension) for part in embeddings.chunks)),
        word_counts,
        encoder,
        about["similarity"],
        about["passage_words"],
        WeightRule(**about["rule"] | {"queries": tuple(about["rule"]["queries"])}),
        Weight(**about["weight"]),
        about["version"],
    )


def _bounds(lists: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return (N + 1,) the number of the first item of each of N lists; at the end, that of all items."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(compute.list_value_length(lists).to_numpy())])


def _rows_of_lists(lists: pa.Array, size: int) -> NDArray[Any]:
    """Return the rows (P, size) of numbers that lists hold, without a copy."""
    return lists.flatten().flatten().to_numpy().reshape(-1, size)  # type: ignore[no-any-return]


def _word_counts(words: pa.ChunkedArray, counts: pa.ChunkedArray, language: str | None) -> WordCounts:
    """Return how often each word stands in each of N documents."""
    flat = compute.list_flatten(words).unify_dictionaries().combine_chunks()
    vocabulary = {word: column for column, word in enumerate(flat.dictionary.to_pylist())}
    arrays = compute.list_flatten(counts).to_numpy(), flat.indices.to_numpy(), _bounds(words)
    counted = csr_matrix(arrays, shape=(len(words), len(vocabulary)), copy=True)  # SciPy sorts in place
    return WordCounts(counted, vocabulary, language)


def _documents(table: pa.Table, metadata: Sequence[tuple[str, str, bool]]) -> list[Document]:
    """Return some documents, with the fields of metadata: the column, the name and whether it holds JSON of each."""
    fields: list[dict[str, Scalar]] = [{} for _ in range(len(table))]
    for column, name, is_json in metadata:
        for place, value in enumerate(table.column(column).to_pylist()):
            if value is not None:
                fields[place][name] = _value_of(value) if is_json else value
    keys, titles, texts, are_numbers = (
        table.column(name).to_pylist() for name in ("id", "title", "text", "id_is_number")
    )
    ids = [int(key) if is_number else key for key, is_number in zip(keys, are_numbers, strict=True)]
    return [*map(Document, ids, titles, texts, fields)]
