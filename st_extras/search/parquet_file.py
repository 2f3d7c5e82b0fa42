"""The file of a search: one Parquet table with a row for each document, which other programs read too.

Its columns are id, title and text, one for each field of metadata, and what the search made of the documents: spans and
embeddings of their passages, and their words with how often each stands there. The rest, such as the weight, is JSON in
the schema's metadata. Nothing in it can run code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyarrow import compute, parquet
from scipy.sparse import csr_matrix

from st_extras.checks import check_choice, check_count, check_not_negative
from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.passages import Passages, check_passages
from st_extras.search.state import EmbeddingBlocks, SearchState, Weight, WeightRule
from st_extras.text.documents import Document, Scalar
from st_extras.text.term_weights import WordCounts, check_language, check_share, word_rules

_KEY = b"st_extras.search"
_MAGIC = b"PAR1"  # the first and the last bytes of a Parquet file
_ROWS = 8192  # documents that are written and read together
_WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError)
"""What reading raises of values that no search wrote."""


def _types(dimension: int) -> dict[str, Any]:
    """Return the type of each column beside those of the metadata, for embeddings of D dimensions."""
    return {
        "id": pa.string(),
        "title": pa.string(),
        "text": pa.string(),
        "id_is_number": pa.bool_(),
        "spans": pa.list_(pa.list_(pa.int32(), 2)),
        "embeddings": pa.list_(pa.list_(pa.float32(), dimension)),
        "words": pa.list_(pa.dictionary(pa.int32(), pa.string())),
        "counts": pa.list_(pa.int32()),
    }


# --- writing ---


def write_state(path: Path, state: SearchState) -> None:
    """Write a state to a file, some documents at a time."""
    fields = _metadata_columns(state.documents)
    names = _names_in_file(fields)
    about = {
        "version": state.version,
        "encoder": state.encoder.to_json(),
        "similarity": state.similarity,
        "passage_words": state.passage_words,
        "language": state.words.language,
        "word_rules": word_rules(state.words.language),
        "rule": asdict(state.rule),
        "weight": asdict(state.weight),
        "metadata": [[names[field], field, is_json] for field, (_, is_json) in fields.items()],
    }
    types = _types(state.embeddings.dimension)
    of_metadata = {names[field]: column for field, (column, _) in fields.items()}
    order = ["id", "title", "text", *of_metadata, "id_is_number", "spans", "embeddings", "words", "counts"]
    types |= {name: column.type for name, column in of_metadata.items()}
    schema = pa.schema([(name, types[name]) for name in order], {_KEY: json.dumps(about)})
    texts = [name for name in order if types[name] == pa.string()]  # numbers would not shrink
    vocabulary = pa.array([*state.words.vocabulary], pa.string())
    with parquet.ParquetWriter(
        path,
        schema,
        compression=dict.fromkeys(texts, "zstd"),
        use_dictionary=["words.list.element"],
        write_statistics=[*of_metadata],
        write_page_checksum=True,
    ) as file:
        for first in range(0, len(state.documents), _ROWS):
            part = slice(first, first + _ROWS)
            columns = _columns(state, part, vocabulary) | {name: column[part] for name, column in of_metadata.items()}
            file.write_table(pa.table([columns[name] for name in order], schema=schema))


def _columns(state: SearchState, part: slice, vocabulary: pa.Array) -> dict[str, pa.Array]:
    """Return what the columns of a search hold for some of its documents."""
    documents = state.documents[part]
    end = part.start + len(documents)
    first = state.passages.first[part.start : end + 1]
    rows = np.arange(first[0], first[-1])
    counts = state.words.counts[part.start : end]
    used, words = np.unique(counts.indices, return_inverse=True)  # only these words stand in the dictionary
    dictionary = pa.DictionaryArray.from_arrays(pa.array(words, pa.int32()), vocabulary.take(pa.array(used)))
    of_passages, of_words = (pa.array(offsets - offsets[0], pa.int32()) for offsets in (first, counts.indptr))
    return {
        "id": [str(document.id) for document in documents],
        "id_is_number": [isinstance(document.id, int) for document in documents],
        "title": [document.title for document in documents],
        "text": [document.text for document in documents],
        "spans": pa.ListArray.from_arrays(of_passages, _lists(state.passages.spans[rows])),
        "embeddings": pa.ListArray.from_arrays(of_passages, _lists(state.embeddings.rows(rows))),
        "words": pa.ListArray.from_arrays(of_words, dictionary),
        "counts": pa.ListArray.from_arrays(of_words, pa.array(counts.data, pa.int32())),
    }


def _lists(rows: NDArray[Any]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


# --- metadata ---


def _metadata_columns(documents: Sequence[Document]) -> dict[str, tuple[pa.Array, bool]]:
    """Return a column (N,) for each field of metadata, and whether it holds JSON.

    It does if no column of one type gives back the values, as where some are texts and others numbers.
    """
    values: dict[str, list[Scalar | None]] = {}
    for place, document in enumerate(documents):
        for field, value in document.metadata.items():
            values.setdefault(field, [None] * len(documents))[place] = value
    columns = {}
    for field, of_field in values.items():
        try:
            column = pa.array(of_field)
            is_json = column.to_pylist() != of_field
        except (pa.ArrowException, OverflowError, ValueError):
            is_json = True
        columns[field] = (pa.array(map(_as_json, of_field), pa.string()) if is_json else column), is_json
    return columns


def _as_json(value: Scalar | None) -> str | None:
    """Return a value of metadata as JSON, a date as a dict with its kind."""
    return None if value is None else json.dumps(value, default=lambda day: {type(day).__name__: day.isoformat()})


def _from_json(value: str) -> Scalar:
    """Return the value that :func:`_as_json` wrote."""
    found: Any = json.loads(value)
    if isinstance(found, dict):
        ((kind, text),) = found.items()
        return {"date": date, "datetime": datetime}[kind].fromisoformat(text)
    return found  # type: ignore[no-any-return]


def _names_in_file(fields: Iterable[str]) -> dict[str, str]:
    """Return the column of each field of metadata: its name, with "_" after one that another column has."""
    names: dict[str, str] = {}
    for field in fields:
        name = field
        while name in _types(1) or name in names.values():
            name += "_"
        names[field] = name
    return names


# --- reading ---


def read_state(path: Path) -> SearchState:
    """Read the state that a file holds, all of it into memory.

    If its words were counted by other rules, as by an earlier version of this package or of what stems words, they are
    counted again.

    Raises:
        ValueError: if it is no file of a search, or damaged.
        OSError: if it cannot be read.
    """
    with _opened(path) as file:
        return _read(file, _about(file))


def check_search_file(path: str | PathLike[str]) -> Path:
    """Return the absolute path, links resolved, if a search can be saved there: a new file, or that of a search.

    Raises:
        ValueError: if it is a folder or another file, or its folder does not exist.
        OSError: if it cannot be read.
    """
    file = resolved(path)
    if not file.parent.is_dir():
        raise ValueError(f"path must be in a folder that exists, got {str(path)!r}.")
    stored_version(file)
    return file


def resolved(path: str | PathLike[str]) -> Path:
    """Return the absolute path of a file, links resolved, so that the file and not a link to it is replaced."""
    if not str(path).strip():
        raise ValueError(f"path must name a file, got {str(path)!r}.")
    return Path(path).resolve()


def stored_version(path: Path) -> str | None:
    """Return the version of the state that a file holds; None if there is no file or an empty one.

    Raises:
        ValueError: if it is no file of a search.
        OSError: if it cannot be read.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    with _opened(path) as file:
        return str(_about(file)["version"])


@contextmanager
def _opened(path: Path) -> Iterator[parquet.ParquetFile]:
    """Yield a Parquet file; what fails while it is read is a ValueError that names it and says what it is."""
    if not path.is_file():
        raise ValueError(
            f"path must be a file that HybridSearch.save wrote, got {str(path)!r}, "
            f"{'a folder' if path.is_dir() else 'where there is no file'}."
        )
    with path.open("rb") as stream:  # not mapped into memory: another process may replace the file
        is_parquet = stream.read(len(_MAGIC)) == _MAGIC
        try:
            with parquet.ParquetFile(stream, page_checksum_verification=True) as file:
                yield file
        except (pa.ArrowException, OSError, *_WRONG) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            found = "which is cut off, damaged or changed" if is_parquet else "which is not a Parquet file"
            reason = "" if not is_parquet else f" ({' '.join(str(error).split())[:200].rstrip('.')})"
            raise ValueError(
                f"path must be a file that HybridSearch.save wrote, got {str(path)!r}, {found}{reason}: give another "
                "file, or make the search again from its documents."
            ) from error


def _about(file: parquet.ParquetFile) -> dict[str, Any]:
    """Return what the schema's metadata says of the search."""
    content = (file.schema_arrow.metadata or {}).get(_KEY)
    if content is None:
        raise ValueError("a table that another program wrote")
    about: dict[str, Any] = json.loads(content)
    return about


def _read(file: parquet.ParquetFile, about: Mapping[str, Any]) -> SearchState:
    """Return the state of a file.

    Raises:
        ValueError: if a value is none that was written; some raise another error of :data:`_WRONG`.
    """
    language = check_language(about["language"])
    encoder = EncoderFingerprint.from_json(about["encoder"])
    dimension = encoder.probes.shape[1]
    for name, kind in _types(dimension).items():
        if file.schema_arrow.field(name).type != kind:
            raise ValueError(f"the column {name} has another type")
    documents: list[Document] = []
    vocabulary: dict[str, int] = {}
    of_passages, of_words = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]  # how many each document has
    spans, embeddings = [np.empty((0, 2), dtype=np.int32)], []
    columns, counts = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
    for number in range(file.num_row_groups):
        table = file.read_row_group(number)
        documents += _documents(table, about["metadata"])
        lists = {name: table.column(name).combine_chunks() for name in ("spans", "embeddings", "words", "counts")}
        parts = {name: column.flatten() for name, column in lists.items()}
        sizes = {name: compute.list_value_length(column).to_numpy() for name, column in lists.items()}
        for one, other in (("spans", "embeddings"), ("words", "counts")):
            if not np.array_equal(sizes[one], sizes[other]):
                raise ValueError(f"{one} and {other} of a document differ in number")
        of_passages.append(sizes["spans"])
        of_words.append(sizes["words"])
        spans.append(parts["spans"].flatten().to_numpy().reshape(-1, 2))
        embeddings.append(parts["embeddings"].flatten().to_numpy().reshape(-1, dimension))
        words = parts["words"].dictionary.to_pylist()
        column_of = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in words], dtype=np.int32)
        columns.append(column_of[parts["words"].indices.to_numpy()])
        counts.append(parts["counts"].to_numpy())
    first, first_words = np.cumsum(np.concatenate(of_passages)), np.cumsum(np.concatenate(of_words))
    passages = Passages(first, np.concatenate(spans))
    _check(documents, passages, embeddings, counts)
    rule = WeightRule(**about["rule"] | {"queries": tuple(map(str, about["rule"]["queries"]))})
    check_share(rule.share)
    check_not_negative("bm25_weight", 0.0 if rule.given is None else rule.given)
    weight = Weight(**about["weight"])
    check_not_negative("bm25_weight", weight.value)
    check_count("documents", weight.documents)
    check_count("added", weight.added)
    if about["word_rules"] == word_rules(language):
        matrix = csr_matrix(
            (np.concatenate(counts), np.concatenate(columns), first_words), shape=(len(documents), len(vocabulary))
        )
        word_counts = WordCounts(matrix, vocabulary, language)
    else:
        word_counts = WordCounts.of([document.full_text for document in documents], language)
    return SearchState(
        documents,
        passages,
        EmbeddingBlocks.of(embeddings, dimension),
        word_counts,
        encoder,
        check_choice("similarity", about["similarity"], ("cosine", "dot")),
        check_passages(about["passage_words"]),
        rule,
        weight,
        str(about["version"]),
    )


def _documents(table: pa.Table, metadata: Sequence[Any]) -> list[Document]:
    """Return some documents, with the fields of metadata: the column, the name and whether it holds JSON of each."""
    fields: list[dict[str, Scalar]] = [{} for _ in range(len(table))]
    for column, name, is_json in metadata:
        for place, value in enumerate(table.column(column).to_pylist()):
            if value is not None:
                fields[place][name] = _from_json(value) if is_json else value
    ids, are_numbers, titles, texts = (
        table.column(name).to_pylist() for name in ("id", "id_is_number", "title", "text")
    )
    keys = [int(key) if is_number else key for key, is_number in zip(ids, are_numbers, strict=True)]
    if None in ids or None in titles or None in texts:
        raise ValueError("a document without id, title or text")
    return [*map(Document, keys, titles, texts, fields)]


def _check(
    documents: Sequence[Document],
    passages: Passages,
    embeddings: Sequence[NDArray[np.float32]],
    counts: Sequence[NDArray[np.int32]],
) -> None:
    """Check what a search relies on.

    Raises:
        ValueError: if it does not hold.
    """
    if len({document.id for document in documents}) < len(documents):
        raise ValueError("an id that stands twice")
    if (np.diff(passages.first) < 1).any():
        raise ValueError("a document without a passage")
    if not len(passages.spans) == passages.first[-1] == sum(map(len, embeddings)):
        raise ValueError("a passage without a span or an embedding")
    lengths = np.array([len(document.full_text) for document in documents], dtype=np.int64)
    starts, stops = passages.spans.T
    if ((starts < 0) | (stops < starts) | (stops > np.repeat(lengths, np.diff(passages.first)))).any():
        raise ValueError("a passage that is not in its document")
    if not all(np.isfinite(part.min(initial=0) + part.max(initial=0)) for part in embeddings):
        raise ValueError("an embedding that is not finite")
    if any(part.min(initial=1) < 1 for part in counts):
        raise ValueError("a word that stands less than once in its document")
