"""Tables and data sets: which columns hold the texts, and their values one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

from st_extras.checks import shown

_USUAL_COLUMNS = ("sentence", "text", "sentence1", "content", "contents")
_AHEAD = 8  # rows of a stream read together: three times as fast as one by one, and hardly further than needed
_BATCH = 1000  # rows of a data set on disk read together


class RowColumns(NamedTuple):
    """The columns of a table that make up a text.

    Attributes:
        text: holds the text.
        title: holds what is put before it; None: nothing is.
        id: holds its id; None: it has none.
    """

    text: str
    title: str | None = None
    id: str | None = None

    def read(self, row: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the id of a row, or None, and its text; in place of a text, a value that is none, to be refused."""
        key, text = None if self.id is None else row[self.id], row[self.text]
        title = None if self.title is None else row[self.title]
        if title is None:
            return key, text
        parts = [part for part in (title, text) if part is not None]
        wrong = [part for part in parts if not isinstance(part, str)]
        return key, wrong[0] if wrong else " ".join(part.strip() for part in parts).strip()


@dataclass(frozen=True)
class TextColumns:
    """Which columns of a table to read: a title and a text are one document, as in the collections of BEIR and MTEB.

    Attributes:
        column: the only column to read. None: the first of sentence, text, sentence1, content, contents that exists,
            otherwise the only column of strings; a column title is put before it.
        ids: usual names of the column of ids. () reads no ids.
    """

    column: str | None = None
    ids: Sequence[str] = ()

    def choose(self, where: str, available: Iterable[str], textual: Iterable[str] = (), hint: str = "") -> RowColumns:
        """Return the columns to read.

        Args:
            where: the table or row, with which the message begins.
            available: the names of its columns.
            textual: those of them that hold strings, if that is known.
            hint: end of the message if no column holds the text.

        Raises:
            ValueError: if no column holds the text, or two columns have its name.
        """
        names = list(available)
        text = choose_column(where, names, self.column, textual, hint)
        title = "title" if self.column is None and text != "title" and "title" in names else None
        return RowColumns(text, title, next((name for name in self.ids if name in names), None))


ANY_TEXT = TextColumns()
"""The usual columns."""


def iterate_values(
    source: Any, columns: TextColumns = ANY_TEXT, *, name: str = "sentences"
) -> Iterator[tuple[int, Any]]:
    """Iterate over the values of an iterable, or the texts of a data set, of any type, in flat memory.

    Args:
        source: a list, a generator, a column, or a ``datasets.Dataset`` or ``IterableDataset``.
        columns: which columns of a data set are read.
        name: name of the argument, for the messages.

    Yields:
        ``(row from 0, value)``.

    Raises:
        ValueError: if ``source`` is neither, or the column does not exist.
    """
    if not is_dataset(source, name=name):
        if columns.column is not None:
            raise ValueError(f"column must be None unless {name} is a data set, got {columns.column!r}.")
        yield from enumerate(source)
        return
    yield from ((row, text) for row, _, text in iterate_rows(source, columns, name=name))


def iterate_rows(
    dataset: Any, columns: TextColumns, *, name: str, ahead: int = _AHEAD
) -> Iterator[tuple[int, Any, Any]]:
    """Iterate over the rows of a data set.

    Args:
        dataset: a ``datasets.Dataset`` or ``IterableDataset``.
        columns: which columns are read.
        name: of the data set, for the messages.
        ahead: rows of an ``IterableDataset`` that are read together.

    Yields:
        ``(row from 0, id or None, text)``.
    """
    if dataset.column_names is None:  # a stream that knows its columns only when it is read
        for number, row in enumerate(dataset):
            textual = [key for key, value in row.items() if isinstance(value, str)]
            yield number, *columns.choose(f"{name}, row {number}", row, textual).read(row)
        return
    chosen = text_columns(dataset, columns, name=name)
    names = [key for key in chosen if key is not None]
    if hasattr(dataset, "iter") and getattr(dataset, "format", {}).get("type") != "custom":  # a transform may need all
        size = _BATCH if hasattr(dataset, "__len__") else ahead
        batches = dataset.select_columns(names).iter(batch_size=size)
    else:
        batches = iter([{key: dataset[key] for key in names}])
    rows = (row for batch in batches for row in zip(*(batch[key] for key in names), strict=True))
    for number, values in enumerate(rows):
        yield number, *chosen.read(dict(zip(names, values, strict=True)))


def is_dataset(source: Any, *, name: str = "sentences") -> bool:
    """Return whether ``source`` is a data set with columns, rather than an iterable of values.

    Raises:
        ValueError: if it is neither: a string, a path, a dictionary (such as a ``DatasetDict`` with its splits), a data
            frame, or nothing that can be iterated over.
    """
    if isinstance(source, str):
        raise ValueError(f"{name} must be an iterable of strings, got the string {shown(source)}.")
    if isinstance(source, Mapping):
        keys = ", ".join(map(repr, list(source)[:10])) or "none"
        given = f"a {type(source).__name__} with the keys {keys}"
        hint = f": give one of them, as in data[{next(iter(source), 'train')!r}]"
    elif hasattr(source, "columns") and not hasattr(source, "column_names"):
        given, hint = f"a {type(source).__name__}", ": give a column of it, as in frame['sentence']"
    elif isinstance(source, Iterable) and not isinstance(source, bytes) and getattr(source, "shape", None) != ():
        return hasattr(source, "column_names")
    else:
        given = f"{type(source).__name__} {shown(source)}"
        hint = ": read it first with read_sentences" if isinstance(source, PathLike) else ""
    raise ValueError(f"{name} must be an iterable of strings or a data set, got {given}{hint}.")


def text_columns(dataset: Any, columns: TextColumns = ANY_TEXT, *, name: str = "sentences") -> RowColumns:
    """Return the columns of a ``datasets.Dataset`` or ``IterableDataset`` to read, see :meth:`TextColumns.choose`.

    Raises:
        ValueError: if no column holds the text.
    """
    names = dataset.column_names
    features = getattr(dataset, "features", None) or {}
    textual = [key for key in names if getattr(features.get(key), "dtype", None) in ("string", "large_string")]
    return columns.choose(name, names, textual)


def can_be_split(dataset: Any, count: int) -> bool:
    """Return whether ``dataset`` is a stream of at least ``count`` files, of which ``shard`` takes some each."""
    return not hasattr(dataset, "__len__") and getattr(dataset, "num_shards", 1) >= count


def choose_column(
    where: str,
    available: Iterable[str],
    column: str | None,
    textual: Iterable[str] = (),
    hint: str = "",
    usual: Sequence[str] = _USUAL_COLUMNS,
) -> str:
    """Return ``column`` if it is given; otherwise the first usual one, or the only one of ``textual``, those of text.

    Raises:
        ValueError: if there is no such column, or two of that name; the message begins with ``where`` and, without
            such a column, ends with ``hint``.
    """
    names = list(available)
    for name in [column] if column is not None else usual:
        if names.count(name) > 1:
            raise ValueError(f"{where} must have one column {name}, got {names.count(name)}.")
        if name in names:
            return name
    texts = list(textual)
    if column is None and len(texts) == 1:
        return str(texts[0])
    wanted = column if column is not None else " or ".join(usual)
    raise ValueError(f"{where} has no column {wanted}: it has {', '.join(map(str, names)) or 'none'}{hint}.")
