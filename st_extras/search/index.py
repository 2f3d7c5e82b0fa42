"""What a hybrid search reads of its documents, and the SQLite file that keeps it.

A change of the file is one transaction: whenever it is stopped, the file holds the earlier state or the new one.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from st_extras.checks import check_not_negative
from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.passages import Passages, check_passages
from st_extras.ranking import Floats
from st_extras.text.documents import Document
from st_extras.text.term_weights import BM25, BM25_SHARE, WordCounts, check_language, check_share, word_rules

WeightSource = Literal["given", "queries", "documents"]

WAIT = 10.0
"""Seconds to wait for another process that changes the file."""
_APPLICATION = 0x53544578  # what SQLite's file header says of an index; "STEx"
_FORMAT = 1
_ROWS = 10_000  # read at a time
_REMEDY = "make the index again from its documents"
_MAKING_BM25 = threading.Lock()
_SCHEMA = (
    "CREATE TABLE search(version TEXT NOT NULL, encoder TEXT NOT NULL, similarity TEXT NOT NULL, "
    "passage_words INTEGER, language TEXT, word_rules TEXT NOT NULL, bm25_weight REAL NOT NULL, "
    "weight_source TEXT NOT NULL, weight_share REAL NOT NULL, weight_queries TEXT NOT NULL, "
    "weight_documents INTEGER NOT NULL)",
    "CREATE TABLE documents(number INTEGER PRIMARY KEY, "
    "id NOT NULL UNIQUE CHECK(typeof(id) IN ('text', 'integer')), "
    "title TEXT NOT NULL CHECK(typeof(title) = 'text'), text TEXT NOT NULL CHECK(typeof(text) = 'text'), "
    "words BLOB NOT NULL CHECK(typeof(words) = 'blob'))",
    "CREATE TABLE passages(number INTEGER PRIMARY KEY, "
    "document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE, "
    "start INTEGER NOT NULL, stop INTEGER NOT NULL, embedding BLOB NOT NULL CHECK(typeof(embedding) = 'blob'))",
    "CREATE INDEX passages_of_documents ON passages(document)",
    "CREATE TABLE words(number INTEGER PRIMARY KEY, word TEXT NOT NULL CHECK(typeof(word) = 'text'))",
)
"""``words`` of a document: its distinct words and how often each stands in it, (W, 2) int32, as BM25 counts them."""


@dataclass(frozen=True)
class Weight:
    """The weight of BM25 beside the encoder, and where it is from.

    Attributes:
        value: w in ``dense + w * BM25``.
        source: "given", or found from "queries" or from sentences of the "documents".
        share: how far the scores of BM25 spread after weighting, relative to the encoder's.
        queries: those that it was found from, if they were given.
        document_count: how many documents there were when it was found.
    """

    value: float = 0.0
    source: WeightSource = "documents"
    share: float = BM25_SHARE
    queries: tuple[str, ...] = ()
    document_count: int = 0


def new_version() -> str:
    """Return the version of a state that differs from all others."""
    return uuid.uuid4().hex


@dataclass(frozen=True, eq=False)
class SearchState:
    """N documents that have text, with P passages, as a search compares them: made anew by each change.

    Attributes:
        documents: in the order in which they were added.
        passages: which passages each document has, in its full text.
        embeddings: (P, D), whose inner products are the similarities; 0 of what the encoder does not know.
        words: of the documents, with the language of BM25's stems and stop words.
        encoder: what made the embeddings.
        similarity: "cosine" or "dot".
        passage_words: words of a passage; None: documents stay whole.
        weight: of BM25 beside the encoder.
        version: another one after each change.
    """

    documents: list[Document]
    passages: Passages
    embeddings: Floats
    words: WordCounts
    encoder: EncoderFingerprint
    similarity: str
    passage_words: int | None
    weight: Weight
    version: str = field(default_factory=new_version)

    @classmethod
    def without_documents(
        cls,
        encoder: EncoderFingerprint,
        similarity: str,
        passage_words: int | None,
        language: str | None,
        weight: Weight,
    ) -> SearchState:
        """Return a state to which documents can be added."""
        passages = Passages(np.zeros(1, dtype=np.int64), np.empty((0, 2), dtype=np.int32))
        embeddings = np.empty((0, encoder.probes.shape[1]), dtype=np.float32)
        words = WordCounts.of([], language)
        return cls([], passages, embeddings, words, encoder, similarity, passage_words, weight)

    @cached_property
    def places(self) -> dict[int | str, int]:
        """The place of each document by its id."""
        return {document.id: place for place, document in enumerate(self.documents)}

    @cached_property
    def has_embedding(self) -> NDArray[np.bool_]:
        """(P,) whether the embedding is not 0."""
        return np.asarray(self.embeddings.any(axis=1))

    @property
    def bm25(self) -> BM25:
        """BM25 of the documents, made when it is first needed: by one thread, for which the others wait."""
        with _MAKING_BM25:
            return self.words.bm25

    def changed(
        self, kept: NDArray[np.bool_], documents: Sequence[Document], passages: Passages, embeddings: Floats
    ) -> SearchState:
        """Return the state with the documents that stay, and further ones after them.

        Args:
            kept: (N,) which documents stay.
            documents: M further ones.
            passages: which of Q passages each of these has, in its full text.
            embeddings: (Q, D) of these passages.
        """
        rows = np.flatnonzero(np.repeat(kept, np.diff(self.passages.first)))
        _, staying = self.passages.kept(rows)
        all_embeddings = np.empty((len(rows) + len(embeddings), self.embeddings.shape[1]), dtype=np.float32)
        np.take(self.embeddings, rows, axis=0, out=all_embeddings[: len(rows)], mode="clip")  # which makes no copy
        all_embeddings[len(rows) :] = embeddings
        return replace(
            self,
            documents=[self.documents[place] for place in np.flatnonzero(kept).tolist()] + [*documents],
            passages=Passages(
                np.concatenate([staying.first, len(rows) + passages.first[1:]]),
                np.concatenate([staying.spans, passages.spans]),
            ),
            embeddings=all_embeddings,
            words=self.words.changed(kept, [document.full_text for document in documents]),
            version=new_version(),
        )


# --- the file ---


@contextmanager
def transaction(path: Path, *, may_be_new: bool = False, write: bool = True) -> Iterator[sqlite3.Connection]:
    """Yield the file within one transaction, which ends with the block; an error leaves the file as it was.

    One process writes at a time; others read the earlier state meanwhile.

    Args:
        path: an index.
        may_be_new: whether it may also be a new file, which gets the tables of an index if it is written to.
        write: whether the file will be changed.

    Raises:
        ValueError: if the file is no index.
        TimeoutError: if another process changes it for longer than ``WAIT``.
        OSError: if it cannot be read or written.
    """
    if path.is_dir() or not (may_be_new or path.is_file()):
        found = "a folder" if path.is_dir() else "no file"
        raise ValueError(f"path must be an index that HybridSearch.save wrote, got {str(path)!r}, {found}.")
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if may_be_new else 'rw'}"  # a write-protected file is only read
    with _errors_of(path), closing(sqlite3.connect(uri, uri=True, timeout=WAIT, isolation_level=None)) as file:
        file.execute("PRAGMA trusted_schema = OFF")
        file.execute("PRAGMA foreign_keys = ON")
        file.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        if not _is_index(file, path, may_be_new=may_be_new) and write:
            for statement in (*_SCHEMA, f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {_FORMAT}"):
                file.execute(statement)
        yield file
        file.execute("COMMIT")


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise what SQLite raises as an error that names the file and says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        reason = str(error)
        if "locked" in reason:
            raise TimeoutError(
                f"{str(path)!r} has been in use by another process for more than {WAIT:g} seconds: do the same again "
                "when that is done."
            ) from error
        if any(part in reason for part in ("disk I/O", "disk is full", "readonly", "unable to open")):
            raise OSError(
                f"{str(path)!r} could not be read or written ({reason}): see to its disk, and do the same again."
            ) from error
        raise ValueError(
            f"path must be an index that HybridSearch.save wrote, got {str(path)!r}, which is another file or damaged "
            f"({reason}): {_REMEDY}, in a new file."
        ) from error


def _is_index(file: sqlite3.Connection, path: Path, *, may_be_new: bool) -> bool:
    """Return whether a file has the tables of an index and nothing else, such as triggers; False of a new one.

    Raises:
        ValueError: if it is another file, or is new and may not be.
    """
    schema = [sql for (sql,) in file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")]
    numbers = [file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if may_be_new and (schema, numbers) == ([], [0, 0]):
        return False
    if (schema, numbers) != ([*_SCHEMA], [_APPLICATION, _FORMAT]):
        raise ValueError(
            f"path must be an index that HybridSearch.save wrote, got {str(path)!r}, which is another file: give the "
            "name of an index or of a new file."
        )
    return True


def check_index_path(path: str | PathLike[str]) -> Path:
    """Return the path if an index can be written there: a new file in a folder that exists, or an earlier index.

    Raises:
        ValueError: if it is a folder or another file, or its folder does not exist.
        TimeoutError: if another process changes it.
    """
    checked = Path(path)
    if not checked.parent.is_dir():
        raise ValueError(f"path must be in a folder that exists, got {str(checked)!r}.")
    if checked.exists():
        with transaction(checked, may_be_new=True, write=False):
            pass
    return checked


def stored_version(file: sqlite3.Connection) -> str | None:
    """Return the version of the state that the file holds; None of a new file."""
    row: tuple[str] | None = file.execute("SELECT version FROM search").fetchone()
    return None if row is None else row[0]


def write_state(file: sqlite3.Connection, state: SearchState) -> None:
    """Write a whole state in the place of an earlier one, if any."""
    for table in ("passages", "documents", "words"):
        file.execute(f"DELETE FROM {table}")
    _insert(file, state, 0, 0)
    _write_search(file, state)


def write_change(file: sqlite3.Connection, before: SearchState, kept: NDArray[np.bool_], after: SearchState) -> None:
    """Write what a change took from a state and added to it.

    All of it, if the file does not hold the earlier state: :func:`read_state` counted its words again.

    Args:
        file: from which the earlier state was read.
        before: the earlier state, of N documents.
        kept: (N,) which of them stay.
        after: the new state: what stays, and further documents after it.
    """
    if stored_version(file) != before.version:
        write_state(file, after)
        return
    gone = ((before.documents[place].id,) for place in np.flatnonzero(~kept).tolist())
    file.executemany("DELETE FROM documents WHERE id = ?", gone)
    _insert(file, after, int(kept.sum()), before.words.counts.shape[1])
    _write_search(file, after)


def _insert(file: sqlite3.Connection, state: SearchState, first: int, first_word: int) -> None:
    """Insert the documents of a state from ``first`` on, and its words from ``first_word`` on."""
    words = islice(state.words.vocabulary, first_word, state.words.counts.shape[1])  # not those of a change that failed
    file.executemany("INSERT INTO words VALUES (?, ?)", enumerate(words, start=first_word))
    (last,) = file.execute("SELECT coalesce(max(number), 0) FROM documents").fetchone()
    new = state.documents[first:]
    numbers = range(last + 1, last + 1 + len(new))
    file.executemany(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?)",
        (
            (number, document.id, document.title, document.text, blob)
            for number, document, blob in zip(numbers, new, _word_blobs(state.words.counts, first), strict=True)
        ),
    )
    row = int(state.passages.first[first])
    of_documents = np.repeat(numbers, np.diff(state.passages.first[first:])).tolist()
    blobs = (embedding.tobytes() for embedding in state.embeddings[row:])
    file.executemany(
        "INSERT INTO passages(document, start, stop, embedding) VALUES (?, ?, ?, ?)",
        zip(of_documents, *state.passages.spans[row:].T.tolist(), blobs, strict=True),
    )


def _word_blobs(counts: csr_matrix, first: int) -> Iterator[bytes]:
    """Yield the words of each document from ``first`` on, as the table of documents holds them."""
    for begin, end in zip(counts.indptr[first:-1], counts.indptr[first + 1 :], strict=True):
        yield np.stack([counts.indices[begin:end], counts.data[begin:end]], axis=1).astype(np.int32).tobytes()


def _write_search(file: sqlite3.Connection, state: SearchState) -> None:
    weight = state.weight
    row = (
        state.version,
        json.dumps(state.encoder.to_json()),
        state.similarity,
        state.passage_words,
        state.words.language,
        word_rules(state.words.language),
        weight.value,
        weight.source,
        weight.share,
        json.dumps(weight.queries),
        weight.document_count,
    )
    file.execute("DELETE FROM search")
    file.execute(f"INSERT INTO search VALUES ({', '.join('?' * len(row))})", row)


def open_state(path: Path) -> SearchState:
    """Read a file, and check that it is whole. Nothing in it can run code.

    Raises:
        ValueError: if it is another file or damaged.
        TimeoutError: if another process changes it.
        OSError: if it cannot be read.
    """
    with transaction(path, write=False) as file:
        (found,) = file.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        return read_state(file)


def read_state(file: sqlite3.Connection) -> SearchState:
    """Return the state that a file holds.

    If its words were counted by other rules, as by an earlier version of this package or of what stems words, they are
    counted again, and the state has a version of its own: the next change writes all of it.

    Raises:
        sqlite3.DatabaseError: if a value is none that was written.
    """
    try:
        return _read_state(file)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError) as error:
        raise sqlite3.DatabaseError(f"a table holds what was not written: {error}") from error


def _read_state(file: sqlite3.Connection) -> SearchState:
    ((version, encoder, similarity, passage_words, language, rules, *of_weight),) = file.execute("SELECT * FROM search")
    fingerprint = EncoderFingerprint.from_json(json.loads(encoder))
    value, source, share, queries, count = of_weight
    weight = Weight(float(value), source, float(share), tuple(map(str, json.loads(queries))), int(count))
    if similarity not in ("cosine", "dot") or source not in get_args(WeightSource):
        raise ValueError("the row of the search")
    check_not_negative("bm25_weight", weight.value)
    check_share(weight.share)
    check_passages(passage_words)
    check_language(language)
    numbers, documents, words = _read_documents(file)
    passages, embeddings = _read_passages(file, numbers, fingerprint.probes.shape[1])
    lengths = np.fromiter((len(document.full_text) for document in documents), np.int64, len(documents))
    starts, stops = passages.spans.T
    if ((starts < 0) | (stops < starts) | (stops > np.repeat(lengths, np.diff(passages.first)))).any():
        raise ValueError("a passage that is not in its document")
    counts = WordCounts(*words, language)
    if rules != word_rules(language):
        counts, version = WordCounts.of([document.full_text for document in documents], language), new_version()
    state = SearchState(
        documents, passages, embeddings, counts, fingerprint, similarity, passage_words, weight, version
    )
    if len(state.places) != len(documents):
        raise ValueError("an id that stands twice")
    return state


def _read_documents(
    file: sqlite3.Connection,
) -> tuple[NDArray[np.int64], list[Document], tuple[csr_matrix, dict[str, int]]]:
    """Return the numbers (N,) of the documents in the file, the documents, and the counts and columns of words."""
    numbers: list[int] = []
    documents: list[Document] = []
    pairs, sizes = [np.empty((0, 2), dtype=np.int32)], [0]
    for block in _blocks(file, "SELECT number, words, id, title, text FROM documents ORDER BY number"):
        numbers += [number for number, *_ in block]
        documents += [Document(*document) for _, _, *document in block]
        sizes += [len(blob) // 8 for _, blob, *_ in block]
        pairs.append(np.frombuffer(b"".join(blob for _, blob, *_ in block), dtype=np.int32).reshape(-1, 2))
    columns, counts = map(np.ascontiguousarray, np.concatenate(pairs).T)
    vocabulary = {word: number for number, word in file.execute("SELECT number, word FROM words ORDER BY number")}
    if [*vocabulary.values()] != [*range(len(vocabulary))] or sum(sizes) != len(columns):
        raise ValueError("words")
    if len(columns) and not (columns.min() >= 0 and columns.max() < len(vocabulary) and counts.min() > 0):
        raise ValueError("words of a document")
    matrix = csr_matrix((counts, columns, np.cumsum(sizes)), shape=(len(documents), len(vocabulary)))
    return np.array(numbers, dtype=np.int64), documents, (matrix, vocabulary)


def _read_passages(file: sqlite3.Connection, numbers: NDArray[np.int64], dimension: int) -> tuple[Passages, Floats]:
    """Return the passages of the documents with these numbers (N,), one at least each, and their embeddings (P, D)."""
    (total,) = file.execute("SELECT count(*) FROM passages").fetchone()
    of_documents, spans = np.empty(total, dtype=np.int64), np.empty((total, 2), dtype=np.int32)
    embeddings = np.empty((total, dimension), dtype=np.float32)
    row = 0
    for block in _blocks(file, "SELECT document, start, stop, embedding FROM passages ORDER BY number"):
        if {len(blob) for *_, blob in block} != {4 * dimension}:
            raise ValueError("an embedding of another size")
        end = row + len(block)
        embeddings[row:end] = np.frombuffer(b"".join(blob for *_, blob in block), np.float32).reshape(-1, dimension)
        of_documents[row:end] = [number for number, *_ in block]
        spans[row:end] = [span for _, *span, _ in block]
        row = end
    first = np.append(np.searchsorted(of_documents, numbers), total).astype(np.int64)
    if (np.diff(of_documents) < 0).any() or not np.array_equal(np.unique(of_documents), numbers):
        raise ValueError("passages of other documents")
    if not np.isfinite(embeddings.min(initial=0) + embeddings.max(initial=0)):
        raise ValueError("an embedding that is not finite")
    return Passages(first, spans), embeddings


def _blocks(file: sqlite3.Connection, query: str) -> Iterable[list[Any]]:
    """Yield the rows that a query finds, some at a time, which bounds the memory."""
    found = file.execute(query)
    return iter(lambda: found.fetchmany(_ROWS), [])
