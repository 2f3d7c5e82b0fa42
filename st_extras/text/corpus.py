"""Reading sentences from files and data sets, with errors that name the line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from st_extras.checks import check_count
from st_extras.text.files import MAX_LINE, has_lone_surrogate, parse_json, read_lines, read_records

MAX_PROCESSES = 1024
"""The most processes that can be asked for to work on a corpus."""
_SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv", ".gz")
_USUAL_COLUMNS = ("sentence", "text", "sentence1", "content")


def iterate_sentences(source: Any, column: str | None = None, *, name: str = "sentences") -> Iterator[str]:
    """Iterate over sentences held in Python, one at a time: an iterable of strings, or a data set with a text column.

    Args:
        source: a list, a generator, a column, or a ``datasets.Dataset`` or ``IterableDataset``.
        column: column of a data set. None: see :func:`text_column`.
        name: name of the argument, for the messages.

    Yields:
        The sentences, unchanged.

    Raises:
        ValueError: if ``source`` is a string, a path, a data set with splits (a ``DatasetDict``) or a data frame, the
            column does not exist, or a sentence is not a string or holds a lone surrogate.
    """
    for row, value in iterate_values(source, column, name=name):
        yield check_sentence(value, f"{name}, row {row}")


def iterate_values(source: Any, column: str | None = None, *, name: str = "sentences") -> Iterator[tuple[int, Any]]:
    """Iterate over ``(row from 0, value)`` as :func:`iterate_sentences` does, with values of any type."""
    if is_dataset(source, name=name):
        chosen = text_column(source, column, name=name)
        if chosen is not None:
            yield from enumerate(source[chosen])
            return
        for number, row in enumerate(source):  # a stream that knows its columns only when it is read
            where = f"{name}, row {number}"
            chosen = chosen or _choose_column(where, row, column)
            if chosen not in row:
                raise ValueError(f"{where} has no column {chosen}: it has {', '.join(map(str, row)) or 'none'}.")
            yield number, row[chosen]
        return
    if column is not None:
        raise ValueError(f"column must be None unless {name} is a data set, got {column!r}.")
    yield from enumerate(source)


def is_dataset(source: Any, *, name: str = "sentences") -> bool:
    """Return whether ``source`` is a data set with columns, rather than an iterable of values.

    Raises:
        ValueError: if it is neither: a string, a path, a dictionary (such as a ``DatasetDict`` with its splits), a data
            frame, or nothing that can be iterated over.
    """
    if isinstance(source, str):
        raise ValueError(f"{name} must be an iterable of strings, got the string {source[:80]!r}.")
    if isinstance(source, Mapping):
        keys = ", ".join(map(repr, list(source)[:10])) or "none"
        raise ValueError(
            f"{name} must be an iterable of strings or one data set, got a {type(source).__name__} with the keys "
            f"{keys}: give one of them, as in data[{next(iter(source), 'train')!r}]."
        )
    if hasattr(source, "columns") and not hasattr(source, "column_names"):
        raise ValueError(
            f"{name} must be an iterable of strings or a data set, got a {type(source).__name__}: give a column of it, "
            "as in frame['sentence']."
        )
    if isinstance(source, bytes | PathLike) or not isinstance(source, Iterable) or getattr(source, "shape", None) == ():
        hint = ": read it first with read_sentences" if isinstance(source, PathLike) else ""
        raise ValueError(
            f"{name} must be an iterable of strings or a data set, got {type(source).__name__} {source!r:.80}{hint}."
        )
    return hasattr(source, "column_names")


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
    if column is None and not set(_USUAL_COLUMNS) & set(names):
        features = getattr(dataset, "features", None) or {}
        textual = [key for key in names if getattr(features.get(key), "dtype", None) in ("string", "large_string")]
        if len(textual) == 1:
            return str(textual[0])
    return _choose_column(name, names, column)


def check_sentence(value: Any, where: str) -> str:
    """Return ``value`` if it is a string that can be written to a file.

    Raises:
        ValueError: if it is not a string, or holds a lone surrogate; the message begins with ``where``.
    """
    if not isinstance(value, str):
        hint = ": name the column, as in dataset['sentence']" if isinstance(value, Mapping) else ""
        raise ValueError(f"{where}: expected a sentence, got {value!r:.80}{hint}.")
    if has_lone_surrogate(value):
        raise ValueError(f"{where}: a sentence must be valid text, got a lone surrogate in {value!r:.80}.")
    return value


def read_sentences(
    sources: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    column: str | None = None,
    limit: int | None = None,
    max_line: int = MAX_LINE,
) -> list[str]:
    """Read the sentences of files (text with a sentence per line, .jsonl, .csv or .tsv; also .gz) and hub data sets.

    The first line of a .csv or .tsv file names the columns. Quotes have a meaning in .csv files only.

    Args:
        sources: one or several files or data set ids (``owner/name`` or ``owner/name:split``; the default split is
            train).
        column: column of jsonl, csv and tsv files and of data sets. None: the first of sentence, text, sentence1,
            content that exists.
        limit: number of sentences after which to stop. None: read all.
        max_line: longest line of a file allowed, in bytes.

    Returns:
        The sentences in order, stripped, without empty ones.

    Raises:
        ValueError: if a file is missing or empty or a line of it is broken, too long, or not UTF-8, a value is not a
            string, the column does not exist, or ``limit`` is not a whole number >= 1.
    """
    names = [sources] if isinstance(sources, str | PathLike) else list(sources)
    if not names:
        raise ValueError("sources must name at least one text file or data set, got none.")
    if limit is not None:
        limit = check_count("limit", limit, 1)
    sentences: list[str] = []
    for name in names:
        before = len(sentences)
        for where, value in _values(str(name), column, max_line):
            if sentence := check_sentence(value, where).strip():
                sentences.append(sentence)
            if limit is not None and len(sentences) >= limit:
                return sentences
        if len(sentences) == before:
            raise ValueError(f"{str(name)!r} holds no sentences.")
    return sentences


def _values(name: str, column: str | None, max_line: int) -> Iterator[tuple[str, Any]]:
    """Return ``(place, value)`` for each value of a source; errors name the place."""
    path = Path(name)
    if path.is_file():
        suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
        if suffix == ".jsonl":
            return _jsonl(path, column, max_line)
        if suffix in (".csv", ".tsv"):
            return _table(path, column, max_line, is_csv=suffix == ".csv")
        return ((f"{path}, line {number}", line) for number, line in read_lines(path, max_line=max_line))
    if path.is_dir():
        raise ValueError(f"{name!r} is a folder: give the text files in it.")
    looks_like_file = path.suffix in _SUFFIXES or path.is_absolute() or name.startswith((".", "~"))
    if looks_like_file or name.count("/") > 1:
        raise ValueError(f"There is no file {name!r}.")
    return _hub_dataset(name, column)


def _choose_column(where: str, available: Iterable[str], column: str | None) -> str:
    names = list(available)
    for name in [column] if column is not None else _USUAL_COLUMNS:
        if names.count(name) > 1:
            raise ValueError(f"{where} must have one column {name}, got {names.count(name)}.")
        if name in names:
            return name
    wanted = column if column is not None else " or ".join(_USUAL_COLUMNS)
    raise ValueError(f"{where} has no column {wanted}: it has {', '.join(map(str, names)) or 'none'}.")


def _jsonl(path: Path, column: str | None, max_line: int) -> Iterator[tuple[str, Any]]:
    for number, line in read_lines(path, max_line=max_line):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        row = parse_json(line, where)
        yield where, row[_choose_column(where, row, column)] if isinstance(row, dict) else row


def _table(path: Path, column: str | None, max_line: int, *, is_csv: bool) -> Iterator[tuple[str, Any]]:
    rows = read_records(path, delimiter="," if is_csv else "\t", quoted=is_csv, max_line=max_line)
    _, names = next(rows, (1, None))
    if names is None:
        return
    position = names.index(_choose_column(str(path), names, column))
    for number, row in rows:
        yield f"{path}, line {number}", row[position] if position < len(row) else None


def _hub_dataset(name: str, column: str | None) -> Iterator[tuple[str, Any]]:
    repository, _, split = name.partition(":")
    try:
        from datasets import load_dataset

        rows = load_dataset(repository, split=split or "train")
    except Exception as error:
        raise ValueError(
            f"{name!r} is neither a file nor a data set that could be loaded ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no reason given'})."
        ) from error
    return ((f"{name}, row {number}", value) for number, value in iterate_values(rows, column, name=name))
