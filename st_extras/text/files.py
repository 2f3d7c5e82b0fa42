"""Readers of line-based text files, plain or packed, whose errors name the file and the line.

All text files and tables are read here: UTF-8 without NUL bytes, lines of limited length, strict JSON and CSV. The
readers stream: a packed file is unpacked only as far as it is read.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import logging
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

from st_extras.checks import check_count, check_instance

MAX_LINE = 1_000_000
"""Bytes of the longest line that is read, unless ``max_line`` is given."""

KINDS = (".txt", ".jsonl", ".csv", ".tsv", ".json", ".parquet", ".arrow")
"""The kinds of files that are read, as their names end."""

_LARGEST_MAX_LINE = 2**30  # bytes
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_PACKED = (*_OPENERS, ".zst", ".lz4")
_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0": "a document of an office program",
    b"PAR1\x15": "a parquet file",
    b"\x1f\x8b": "a gzip file without .gz in its name",
    b"BZh9": "a bzip2 file without .bz2 in its name",
    b"\xfd7zXZ": "an xz file without .xz in its name",
    b"\x28\xb5\x2f\xfd": "a zstd file: unpack it",
    b"\x04\x22\x4d\x18": "an lz4 file: unpack it",
    b"%PDF-": "a PDF",
}
"""First bytes of files that are easily taken for text."""
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_SURROGATE = re.compile("[\ud800-\udfff]")
logger = logging.getLogger(__name__)


def file_kind(path: str | PathLike[str]) -> tuple[str, str]:
    """Return the kind and the packing of a file by its name, in upper or lower case.

    Args:
        path: a path, a pattern or an address.

    Returns:
        A kind such as ".csv", and a packing such as ".gz"; "" where the name has none. ".ndjson" is ".jsonl".
    """
    name = Path(str(path).lower())
    packed = name.suffix if name.suffix in _PACKED else ""
    kind = Path(name.stem).suffix if packed else name.suffix
    kind = ".jsonl" if kind == ".ndjson" else kind
    return (kind if kind in KINDS else ""), packed


def is_unpacked(path: str | PathLike[str]) -> bool:
    """Return whether a file is plain by its name, or packed in a way that :func:`read_lines` unpacks."""
    return file_kind(path)[1] in ("", *_OPENERS)


def read_lines(path: str | PathLike[str], *, max_line: int = MAX_LINE) -> Iterator[tuple[int, str]]:
    r"""Read the lines of a UTF-8 file, unpacked if its name ends in ``.gz``, ``.bz2`` or ``.xz``.

    Args:
        path: the file. A byte order mark at its start is dropped.
        max_line: longest line allowed, in bytes.

    Yields:
        ``(line number from 1, line)``. Lines end at ``\n``, and keep their line end. In a file with no ``\n`` in its
        first ``max_line`` bytes they end at ``\r`` too.

    Raises:
        ValueError: if a line is not UTF-8, holds a NUL byte or is too long, or a packed file is damaged or of another
            kind.
    """
    file = Path(path)
    max_line = check_count("max_line", max_line, 1, _LARGEST_MAX_LINE)
    number = 0
    opener = _OPENERS.get(file_kind(file)[1], open)
    with cast(BinaryIO, opener(file, "rb")) as stream:
        try:
            start = stream.peek(8)  # type: ignore[attr-defined]
            found = next((other for first, other in _OTHER_FILES.items() if start.startswith(first)), None)
            if found is not None:
                raise ValueError(
                    f"{file} must be a text, .jsonl, .csv or .tsv file (also .gz, .bz2, .xz), got {found}."
                )
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
        except (OSError, zlib.error, lzma.LZMAError, EOFError) as error:
            if opener is open:
                raise
            raise ValueError(f"{file}: not a whole {file_kind(file)[1]} file ({error}).") from None


def _raw_lines(stream: BinaryIO, max_line: int) -> Iterator[bytes]:
    """Yield the lines of a stream with their ends; of a line that is too long, a piece that is too long as well."""
    line = stream.readline(max_line + 1)
    if not line.endswith(b"\n") and b"\r" in line:
        stream.seek(0)
        text = io.TextIOWrapper(stream, "latin-1", newline="")  # each byte a character; ends at any line end
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
    width, warned = None, quoted
    for number, fields in records:
        width = len(fields) if width is None else width
        if not warned and _look_quoted(fields, width):
            warned = True
            logger.warning(
                f"{path}, line {number}: a field in double quotes, as pandas and spreadsheets write it. In .tsv files "
                "quotes are text and a line ends a row: save the table as .csv to have them read."
            )
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
    start, size = 1, 0

    def lines() -> Iterator[str]:
        nonlocal size
        for _, line in read_lines(path, max_line=max_line):
            size += len(line)
            if size > max_line:
                raise ValueError(
                    f"{path}, line {start}: a record must have at most {max_line} characters, got more: close its "
                    "quote, or give a larger max_line."
                )
            yield line

    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_MAX_LINE))  # a record's size is limited above
    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if fields:
                yield start, fields
            start, size = reader.line_num + 1, 0
    except csv.Error as error:
        reason = str(error)
        if reason == "unexpected end of data":
            reason = "a quote is opened and never closed"
        elif reason.startswith("new-line character"):
            reason, quote_hint = "a carriage return within a line", "put the field that holds it in quotes"
        raise ValueError(f"{path}, line {start}: {reason}: {quote_hint}.") from None


def _look_quoted(fields: list[str], width: int) -> bool:
    """Return whether fields were written with quotes around them: doubled quotes within, or a line end."""
    if len(fields) < width and fields[-1].startswith('"') and fields[-1].count('"') % 2:
        return True
    return any('""' in field and _QUOTED.fullmatch(field) for field in fields)


def read_rows(
    path: str | PathLike[str], *, max_line: int = MAX_LINE, **quotes: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a .jsonl, .csv or tab-separated file with their places, by the names of the columns.

    Args:
        path: the file, as for :func:`read_lines`. Anything else than .jsonl and .csv is separated by tabs.
        max_line: longest line allowed, in bytes.
        quotes: ``quoted`` and ``quote_hint`` of :func:`read_records`, for a tab-separated file.

    Yields:
        The place and the row; what is missing at the end of a line is None.

    Raises:
        ValueError: if two columns have one name, a line of .jsonl is no object, or the file cannot be read.
    """
    kind, _ = file_kind(path)
    if kind == ".jsonl":
        for number, line in read_lines(path, max_line=max_line):
            if line.strip():
                where = f"{path}, line {number}"
                yield where, check_instance(where, parse_json(line, where), dict)
        return
    format_ = {"delimiter": ",", "quoted": True} if kind == ".csv" else quotes
    records = read_records(path, max_line=max_line, **format_)
    _, names = next(records, (1, []))
    if any(names.count(name) > 1 for name in names if name):
        raise ValueError(f"{path} must name each column once, got {', '.join(names)}.")
    for number, values in records:
        yield f"{path}, line {number}", dict.fromkeys(names) | dict(zip(names, values, strict=False))


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
    return not text.isascii() and _SURROGATE.search(text) is not None
