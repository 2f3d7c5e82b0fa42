"""Sentences from files and data sets, with errors that name the line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv")
_USUAL_COLUMNS = ("sentence", "text", "sentence1", "content")


def read_sentences(
    sources: str | PathLike[str] | Iterable[str | PathLike[str]], *, column: str | None = None, limit: int | None = None
) -> list[str]:
    """Sentences of text files (a line each), .jsonl, .csv or .tsv files, each also as .gz, or data sets of the hub.

    The first line of .csv and .tsv names the columns; quotes mean something in .csv only.

    Args:
        sources: one or several files or data set ids (``owner/name`` or ``owner/name:split``, default train).
        column: of jsonl, csv, tsv and data sets. None: the first of sentence, text, sentence1, content that is there.
        limit: stop after so many sentences.

    Returns:
        Stripped sentences in their order, empty lines left out.

    Raises:
        ValueError: a missing or empty file, text that is not UTF-8, a broken line (the line is named), a value that
            is no string, a column that is not there, a limit below 1.
    """
    names = [sources] if isinstance(sources, str | PathLike) else list(sources)
    if not names:
        raise ValueError("sources is empty: give at least one text file or data set.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be >= 1, got {limit!r}.")
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
    path = Path(name)
    if path.is_file():
        suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
        if suffix == ".jsonl":
            return _jsonl(path, column)
        if suffix in (".csv", ".tsv"):
            return (_csv if suffix == ".csv" else _tsv)(path, column)
        return ((f"{path}, line {number}", line) for number, line in read_lines(path))
    if path.is_dir():
        raise ValueError(f"{name!r} is a folder: give its text files.")
    looks_like_file = path.suffix in (*SUFFIXES, ".gz") or path.is_absolute() or name.startswith((".", "~"))
    if looks_like_file or name.count("/") > 1:
        raise ValueError(f"There is no file {name!r}.")
    return _dataset(name, column)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, .gz or not, with their numbers from 1 and their line ends.

    Raises:
        ValueError: a line that is not UTF-8 (named), or a broken gzip file.
    """
    number = 0
    with cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb") as stream:
        try:
            for number, line in enumerate(stream, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start}).") from None
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{path}: not a whole gzip file ({error}).") from None


def _pick(where: str, available: Iterable[str], column: str | None) -> str:
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
        yield where, row[_pick(where, row, column)] if isinstance(row, dict) else row


def _tsv(path: Path, column: str | None) -> Iterator[tuple[str, Any]]:
    rows = ((number, line.rstrip("\r\n").split("\t")) for number, line in read_lines(path))
    names = next(rows, (1, [""]))[1]
    if names == [""]:
        return
    place = names.index(_pick(str(path), names, column))
    for number, row in rows:
        if row != [""]:
            yield f"{path}, line {number}", row[place] if place < len(row) else None


def _csv(path: Path, column: str | None) -> Iterator[tuple[str, Any]]:
    reader = csv.DictReader(io.StringIO("".join(line for _, line in read_lines(path)), newline=""))
    try:
        if reader.fieldnames is None:
            return
        name = _pick(str(path), reader.fieldnames, column)
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
    chosen = _pick(name, rows.column_names, column)
    for number, value in enumerate(rows[chosen]):
        yield f"{name}, row {number}", value
