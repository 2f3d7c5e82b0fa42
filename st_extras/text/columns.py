"""Data sets with columns: which column holds the sentences, and its values one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike
from typing import Any

from st_extras.checks import shown

_USUAL_COLUMNS = ("sentence", "text", "sentence1", "content")
_AHEAD = 8  # rows of a stream read together: three times as fast as one by one, and hardly further than asked
_BATCH = 1000  # rows of a data set on disk read together


def iterate_values(
    source: Any, column: str | None = None, *, name: str = "sentences", ahead: int = _AHEAD
) -> Iterator[tuple[int, Any]]:
    """Iterate over the values of an iterable, or of a column of a data set, of any type, in flat memory.

    Args:
        source: a list, a generator, a column, or a ``datasets.Dataset`` or ``IterableDataset``.
        column: column of a data set. None: see :func:`text_column`.
        name: name of the argument, for the messages.
        ahead: rows of an ``IterableDataset`` that are read together.

    Yields:
        ``(row from 0, value)``.

    Raises:
        ValueError: if ``source`` is neither, or the column does not exist.
    """
    if not is_dataset(source, name=name):
        if column is not None:
            raise ValueError(f"column must be None unless {name} is a data set, got {column!r}.")
        yield from enumerate(source)
        return
    chosen = text_column(source, column, name=name)
    if chosen is None:  # a stream that knows its columns only when it is read
        yield from _values_of_rows(source, column, name)
    elif hasattr(source, "iter") and getattr(source, "format", {}).get("type") != "custom":  # a transform may need all
        size = _BATCH if hasattr(source, "__len__") else ahead
        batches = source.select_columns([chosen]).iter(batch_size=size)
        yield from enumerate(chain.from_iterable(batch[chosen] for batch in batches))
    else:
        yield from enumerate(source[chosen])


def _values_of_rows(stream: Any, column: str | None, name: str) -> Iterator[tuple[int, Any]]:
    for number, row in enumerate(stream):
        textual = [key for key, value in row.items() if isinstance(value, str)] if column is None else []
        column = choose_column(f"{name}, row {number}", row, column, textual)
        yield number, row[column]


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


def text_column(dataset: Any, column: str | None = None, *, name: str = "sentences") -> str | None:
    """Return the name of the column of a ``datasets.Dataset`` or ``IterableDataset`` that holds the sentences.

    Args:
        dataset: the data set.
        column: the column asked for. None: the first of sentence, text, sentence1, content that exists, otherwise the
            only column of strings.
        name: name of the argument, for the messages.

    Returns:
        The name; None if the data set is a stream that knows its columns only when it is read.

    Raises:
        ValueError: if there is no such column.
    """
    names = dataset.column_names
    if names is None:
        return None
    features = getattr(dataset, "features", None) or {}
    textual = [key for key in names if getattr(features.get(key), "dtype", None) in ("string", "large_string")]
    return choose_column(name, names, column, textual)


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
    """Return the column asked for; otherwise the first usual one, or the only one of ``textual``, the columns of text.

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
