"""Readers of line-based text files, plain or gzip, whose errors name the file and the line.

Every file of text or tables that the package reads comes through here: UTF-8 without NUL bytes, no endless line, JSON
and CSV without faults that would be guessed away. The readers stream: what nobody asks for is not unpacked.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

from st_extras.checks import check_count

MAX_LINE = 1_000_000
"""Bytes of the longest line that is read, unless ``max_line`` is given."""

_LARGEST_MAX_LINE = 2**30  # bytes


def read_lines(path: str | PathLike[str], *, max_line: int = MAX_LINE) -> Iterator[tuple[int, str]]:
    r"""Read the lines of a UTF-8 file, unpacked if its name ends in ``.gz``.

    Args:
        path: the file. A byte order mark at its start is dropped.
        max_line: longest line allowed, in bytes.

    Yields:
        ``(line number from 1, line)``. Lines end at ``\n``, and keep their line end. In a file with no ``\n`` in its
        first ``max_line`` bytes they end at ``\r``, which becomes ``\n``.

    Raises:
        ValueError: if a line is not UTF-8, holds a NUL byte or is too long, or the gzip file is damaged.
    """
    file = Path(path)
    max_line = check_count("max_line", max_line, 1, _LARGEST_MAX_LINE)
    number = 0
    with cast(BinaryIO, gzip.open(file, "rb")) if file.suffix == ".gz" else file.open("rb") as stream:
        try:
            for number, line in enumerate(_raw_lines(stream, max_line), start=1):
                if len(line) > max_line:
                    raise ValueError(
                        f"{file}, line {number}: a line must have at most {max_line} bytes, got more: "
                        "break it into shorter lines, or give a larger max_line."
                    )
                text = line.decode("utf-8-sig" if number == 1 else "utf8")
                if "\0" in text:
                    found = f"a NUL at byte {line.index(0)}: the file may be UTF-16"
                    raise ValueError(f"{file}, line {number}: not UTF-8 text ({found}).")
                yield number, text
        except UnicodeDecodeError as error:
            raise ValueError(f"{file}, line {number}: not UTF-8 ({error.reason} at byte {error.start}).") from None
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{file}: not a whole gzip file ({error}).") from None


def _raw_lines(stream: BinaryIO, max_line: int) -> Iterator[bytes]:
    """Yield the lines of a stream with their ends; of a line that is too long, a piece that is too long as well."""
    line = stream.readline(max_line + 1)
    if not line.endswith(b"\n") and b"\r" in line:
        stream.seek(0)
        text = io.TextIOWrapper(stream, "latin-1", newline=None)  # each byte a character; "\r" and "\r\n" become "\n"
        while piece := text.readline(max_line + 1):
            yield piece.encode("latin-1")
        return
    while line:
        yield line
        line = stream.readline(max_line + 1)


def read_tsv(
    path: str | PathLike[str], *, at_least: int | None = None, max_line: int = MAX_LINE
) -> Iterator[tuple[int, list[str]]]:
    """Read the tab-separated fields of each line; quotes have no special meaning.

    Args:
        path: the file, as for :func:`read_lines`.
        at_least: the number of fields that every line must have. None: any number.
        max_line: longest line allowed, in bytes.

    Yields:
        ``(line number from 1, fields)``. An empty line has one empty field.

    Raises:
        ValueError: if a line has too few fields, or :func:`read_lines` cannot read the file.
    """
    for number, line in read_lines(path, max_line=max_line):
        fields = line.rstrip("\r\n").split("\t")
        if at_least is not None and len(fields) < at_least:
            raise ValueError(f"{path}, line {number}: {len(fields)} tab-separated fields, expected {at_least}.")
        yield number, fields


def read_records(
    path: str | PathLike[str],
    *,
    delimiter: str = "\t",
    quoted: bool = False,
    quote_hint: str = "double a quote that belongs to the text",
    max_line: int = MAX_LINE,
) -> Iterator[tuple[int, list[str]]]:
    """Read a table whose first line names its columns; empty lines are skipped.

    Args:
        path: the file, as for :func:`read_lines`.
        delimiter: what stands between two fields.
        quoted: whether a field may be in double quotes, and then hold delimiters and line ends.
        quote_hint: what to do about a wrong quote, for the message.
        max_line: longest line allowed, in bytes.

    Yields:
        ``(number of the record's first line, fields)``: first the names, then records of at most as many fields.

    Raises:
        ValueError: if a record has more fields than there are names, a quote is left open or does not enclose its
            field, or :func:`read_lines` cannot read the file.
    """
    if quoted:
        records = _quoted_records(path, delimiter, quote_hint, max_line)
    else:
        records = ((number, fields) for number, fields in read_tsv(path, max_line=max_line) if fields != [""])
    width = None
    for number, fields in records:
        width = len(fields) if width is None else width
        if len(fields) > width:
            hint = ": put a field that holds the delimiter in quotes" if quoted else ""
            raise ValueError(
                f"{path}, line {number}: a line must have at most {width} fields, one for each column, "
                f"got {len(fields)}{hint}."
            )
        yield number, fields


def _quoted_records(
    path: str | PathLike[str], delimiter: str, quote_hint: str, max_line: int
) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line for _, line in read_lines(path, max_line=max_line)), delimiter=delimiter, strict=True)
    start = 1
    try:
        for fields in reader:
            if fields:
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        opened = str(error) == "unexpected end of data"
        reason = "a quote is opened and never closed" if opened else str(error)
        raise ValueError(f"{path}, line {start}: {reason}: {quote_hint}.") from None


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: the JSON text.
        where: what it is, for the message: a file, and a line if it has several.

    Raises:
        ValueError: if the text is not JSON, an object of it holds a key twice, or a string holds a lone surrogate.
    """
    try:
        content = json.loads(text, object_pairs_hook=_without_repetition)
    except KeyError as error:
        raise ValueError(f"{where} must hold each key once, got {error} twice.") from None
    except RecursionError:
        raise ValueError(f"{where}: not JSON (nested too deeply).") from None
    except ValueError as error:  # a JSONDecodeError, or a number of too many digits
        raise ValueError(f"{where}: not JSON ({error}).") from None
    if "\\u" in text and has_lone_surrogate(json.dumps(content, ensure_ascii=False)):
        raise ValueError(f"{where}: a JSON string must be valid text, got a lone surrogate (\\ud800 to \\udfff).")
    return content


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary; KeyError if it holds a key twice, of which json would keep the last."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise KeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return content


def has_lone_surrogate(text: str) -> bool:
    """Return whether ``text`` holds half of a surrogate pair, which no file and no tokenizer takes."""
    if text.isascii():
        return False
    try:
        text.encode("utf8")
    except UnicodeEncodeError:
        return True
    return False
