"""Reading sentences from files and data sets, with errors that name the line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from st_extras.checks import check_count
from st_extras.text.files import read_lines, read_tsv

_SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv", ".gz")
_USUAL_COLUMNS = ("sentence", "text", "sentence1", "content")


def read_sentences(
    sources: str | PathLike[str] | Iterable[str | PathLike[str]], *, column: str | None = None, limit: int | None = None
) -> list[str]:
    """Read the sentences of files (text with a sentence per line, .jsonl, .csv or .tsv; also .gz) and hub data sets.

    The first line of a .csv or .tsv file names the columns. Quotes have a meaning in .csv files only.

    Args:
        sources: one or several files or data set ids (``owner/name`` or ``owner/name:split``; the default split is
            train).
        column: column of jsonl, csv and tsv files and of data sets. None: the first of sentence, text, sentence1,
            content that exists.
        limit: number of sentences after which to stop. None: read all.

    Returns:
        The sentences in order, stripped, without empty ones.

    Raises:
        ValueError: if a file is missing or empty or a line of it is broken or not UTF-8, a value is not a string, the
            column does not exist, or ``limit`` is not a whole number >= 1.
    """
    names = [sources] if isinstance(sources, str | PathLike) else list(sources)
    if not names:
        raise ValueError("sources must name at least one text file or data set, got none.")
    if limit is not None:
        limit = check_count("limit", limit, 1)
    sentences: list[str] = []
    for name in names:
        before = len(sentences)
        for where, value in _values(str(name), column):
            if not isinstance(value, str):
                raise ValueError(f"{where}: expected a sentence, got {value!r}.")
            if sentence := value.strip():
                sentences.append(sentence)
            if limit is not None and len(sentences) >= limit:
                return sentences
        if len(sentences) == before:
            raise ValueError(f"{str(name)!r} holds no sentences.")
    return sentences


def _values(name: str, column: str | None) -> Iterator[tuple[str, Any]]:
    """Return ``(place, value)`` for each value of a source; errors name the place."""
    path = Path(name)
    if path.is_file():
        suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
        if suffix == ".jsonl":
            return _jsonl(path, column)
        if suffix in (".csv", ".tsv"):
            return (_csv if suffix == ".csv" else _tsv)(path, column)
        return ((f"{path}, line {number}", line) for number, line in read_lines(path))
    if path.is_dir():
        raise ValueError(f"{name!r} is a folder: give the text files in it.")
    looks_like_file = path.suffix in _SUFFIXES or path.is_absolute() or name.startswith((".", "~"))
    if looks_like_file or name.count("/") > 1:
        raise ValueError(f"There is no file {name!r}.")
    return _dataset(name, column)


def _choose_column(where: str, available: Iterable[str], column: str | None) -> str:
    names = list(available)
    for name in [column] if column is not None else _USUAL_COLUMNS:
        if name in names:
            return name
    wanted = column if column is not None else " or ".join(_USUAL_COLUMNS)
    raise ValueError(f"{where} has no column {wanted}: it has {', '.join(map(str, names)) or 'none'}.")


def _jsonl(path: Path, column: str | None) -> Iterator[tuple[str, Any]]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON ({error.msg}).") from None
        yield where, row[_choose_column(where, row, column)] if isinstance(row, dict) else row


def _tsv(path: Path, column: str | None) -> Iterator[tuple[str, Any]]:
    rows = read_tsv(path)
    _, names = next(rows, (1, [""]))
    if names == [""]:
        return
    position = names.index(_choose_column(str(path), names, column))
    for number, row in rows:
        if row != [""]:
            yield f"{path}, line {number}", row[position] if position < len(row) else None


def _csv(path: Path, column: str | None) -> Iterator[tuple[str, Any]]:
    reader = csv.DictReader(io.StringIO("".join(line for _, line in read_lines(path)), newline=""))
    try:
        if reader.fieldnames is None:
            return
        name = _choose_column(str(path), reader.fieldnames, column)
        for row in reader:
            yield f"{path}, line {reader.line_num}", row[name]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None


def _dataset(name: str, column: str | None) -> Iterator[tuple[str, Any]]:
    repository, _, split = name.partition(":")
    try:
        from datasets import load_dataset

        rows = load_dataset(repository, split=split or "train")
    except Exception as error:
        raise ValueError(
            f"{name!r} is neither a file nor a data set that could be loaded ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no reason given'})."
        ) from error
    chosen = _choose_column(name, rows.column_names, column)
    for number, value in enumerate(rows[chosen]):
        yield f"{name}, row {number}", value
