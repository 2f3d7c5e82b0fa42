"""Readers of line-based text files, plain or gzip, whose errors name the file and the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import BinaryIO, cast


def read_lines(path: str | PathLike[str]) -> Iterator[tuple[int, str]]:
    r"""Read the lines of a UTF-8 file, unpacked if its name ends in ``.gz``.

    Args:
        path: the file. A byte order mark at its start is dropped.

    Yields:
        ``(line number from 1, line)``. Lines end at ``\n`` only, and keep their line end.

    Raises:
        ValueError: if a line is not UTF-8, or the gzip file is damaged.
    """
    file = Path(path)
    number = 0
    with cast(BinaryIO, gzip.open(file, "rb")) if file.suffix == ".gz" else file.open("rb") as stream:
        try:
            for number, line in enumerate(stream, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{file}, line {number}: not UTF-8 ({error.reason} at byte {error.start}).") from None
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{file}: not a whole gzip file ({error}).") from None


def read_tsv(path: str | PathLike[str], *, at_least: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """Read the tab-separated fields of each line; quotes have no special meaning.

    Args:
        path: the file, as for :func:`read_lines`.
        at_least: the number of fields that every line must have. None: any number.

    Yields:
        ``(line number from 1, fields)``. An empty line has one empty field.

    Raises:
        ValueError: if a line has too few fields, or :func:`read_lines` cannot read the file.
    """
    for number, line in read_lines(path):
        fields = line.rstrip("\r\n").split("\t")
        if at_least is not None and len(fields) < at_least:
            raise ValueError(f"{path}, line {number}: {len(fields)} tab-separated fields, expected {at_least}.")
        yield number, fields
