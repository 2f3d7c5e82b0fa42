"""Text files, plain or packed: their lines, with errors that name the file and the line."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from st_extras.checks import has_lone_surrogate

MAX_LINE = 100_000_000
"""Characters of the longest line that is read."""

KINDS = (".txt", ".md", ".jsonl", ".csv", ".tsv", ".json", ".parquet")
"""The kinds of files that are read, as their names end."""

_ALIASES = {".ndjson": ".jsonl", ".markdown": ".md", ".mdown": ".md", ".mkd": ".md", ".mdx": ".md"}
_PACKINGS: dict[str, Any] = {".gz": gzip, ".bz2": bz2, ".xz": lzma}
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
_MARKUP = {
    ".html": "an HTML page",
    ".htm": "an HTML page",
    ".rst": "reStructuredText",
    ".adoc": "AsciiDoc",
    ".ipynb": "a notebook",
    ".yaml": "YAML",
    ".yml": "YAML",
}
"""Names of text files that hold more than texts: to be refused rather than read line by line."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def file_kind(path: str | PathLike[str]) -> tuple[str, str]:
    """Return the kind and the packing of a file by its name, in upper or lower case.

    Args:
        path: a path or a pattern.

    Returns:
        A kind such as ".csv", and a packing such as ".gz"; "" where the name has none. ".ndjson" is
        ".jsonl"; ".markdown", ".mdown", ".mkd" and ".mdx" are ".md".
    """
    name = Path(str(path).lower())
    packed = name.suffix if name.suffix in _PACKINGS else ""
    kind = Path(name.stem).suffix if packed else name.suffix
    kind = _ALIASES.get(kind, kind)
    return (kind if kind in KINDS else ""), packed


@contextmanager
def open_text(path: str | PathLike[str]) -> Iterator[TextIO]:
    r"""Open a UTF-8 file, or a UTF-16 file that begins with its byte order mark, unpacked if its name says so.

    Bytes that are not UTF-8 become lone surrogates, which :func:`read_lines` refuses with their line.

    Raises:
        ValueError: if the file begins like one of another kind, its name ends as that of markup other than Markdown, or
            it is packed and damaged.
    """
    packed = file_kind(path)[1]
    plain = Path(path).with_suffix("") if packed else Path(path)
    if markup := _MARKUP.get(plain.suffix.lower()):
        raise ValueError(
            f"{path} must be a text file or table, also as .gz, .bz2 or .xz, got {markup}: save its text as .md or "
            ".txt."
        )
    with (_PACKINGS[packed].open if packed else open)(path, "rb") as binary:
        try:
            start = binary.peek(8192)
            other_kind = next((kind for first, kind in _OTHER_FILES.items() if start.startswith(first)), None)
            other_kind = "a tar archive: unpack it" if start[257:262] == b"ustar" else other_kind
            if other_kind is not None:
                raise ValueError(f"{path} must be a text file or table, also as .gz, .bz2 or .xz, got {other_kind}.")
            newline = "" if b"\r" in start and b"\n" not in start else "\n"  # lines end at \r where there is no \n
            is_utf_16 = start.startswith(_UTF_16)
            encoding, errors = ("utf-16", "strict") if is_utf_16 else ("utf-8-sig", "surrogateescape")
            yield io.TextIOWrapper(binary, encoding, errors, newline)
        except (OSError, zlib.error, lzma.LZMAError, EOFError) as error:
            if not packed:
                raise
            raise ValueError(f"{path}: not a whole {packed} file ({error}).") from None


def packed_as(path: str | PathLike[str], content: bytes) -> bytes:
    """Return what a file of this name holds of ``content``: packed if the name ends in .gz, .bz2 or .xz."""
    packed = file_kind(path)[1]
    return _PACKINGS[packed].compress(content) if packed else content


def read_lines(path: str | PathLike[str]) -> Iterator[tuple[int, str]]:
    r"""Read the lines of a text file, see :func:`open_text`.

    Yields:
        ``(line number from 1, line)``. Lines end at ``\n`` and keep their line end; in a file whose first 8 KB hold no
        ``\n``, they end at ``\r`` too.

    Raises:
        ValueError: if a line is not valid text or is too long, or the file is damaged or not a text file.
    """
    number = 0
    with open_text(path) as stream:
        try:
            for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), ""), start=1):
                if len(line) > MAX_LINE:
                    raise ValueError(f"{path}, line {number}: a line must have at most {MAX_LINE:,} characters.")
                check_decoded(line, f"{path}, line {number}")
                yield number, line.lstrip("\ufeff")  # as where files were joined
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number + 1}: not UTF-16 ({error.reason}): save it as UTF-8.") from None


def check_decoded(text: str, where: str) -> None:
    """Check that a text of a file was UTF-8.

    Raises:
        ValueError: if it was not; the message begins with ``where``.
    """
    if "\0" in text:
        raise ValueError(f"{where}: not UTF-8 text, got a NUL: save the file as UTF-8 if it is UTF-16.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}: not UTF-8, got the byte 0x{ord(text[error.start]) & 0xFF:02x}: save the file as UTF-8; "
            "iconv -f cp1252 -t utf8 does that if it is Latin-1 or Windows-1252."
        ) from None


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: the JSON text.
        where: what it is, for the message: a file, and a line if it has several.

    Raises:
        ValueError: if the text is not JSON, or a string of it holds a lone surrogate.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, a number of too many digits, or nested too deeply
        reason = str(error)
        if isinstance(error, json.JSONDecodeError) and "\n" not in text:  # where may name the line
            reason = f"{error.msg}: column {error.colno}"
        raise ValueError(f"{where}: not JSON ({reason}).") from None
    if "\\u" in text and has_lone_surrogate(json.dumps(content, ensure_ascii=False)):
        raise ValueError(f"{where}: a JSON string must be valid text, got a lone surrogate (\\ud800 to \\udfff).")
    return content
