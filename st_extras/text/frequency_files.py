"""The files of a frequency table: JSON with vocabulary and counts, TSV lines, or the authors' JSON object."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from st_extras.checks import check_choice
from st_extras.text.files import read_lines

_FORMAT = "st-extras frequency table"


class TableContent(NamedTuple):
    """What a file holds: the token at each id, its count, and the number of texts counted (0 if unknown)."""

    tokens: Sequence[str | None]
    counts: Sequence[int]
    num_texts: int = 0


def read_table(path: str | PathLike[str]) -> TableContent:
    """Read a table in any of the formats of :func:`write_table`; ``.gz`` is unpacked.

    Raises:
        ValueError: if the file is not a table, or holds a token twice.
    """
    lines = list(read_lines(path))
    text = "".join(line for _, line in lines)
    if text.lstrip().startswith("{") and "\t" not in lines[0][1]:
        return _from_json(text, path)
    return _from_tsv(lines, path)


def write_table(path: str | PathLike[str], content: TableContent, format: str | None = None) -> None:
    """Write a table; ``path`` appears only when the file is complete.

    Args:
        path: the file; packed if its name ends in ``.gz``.
        content: the table.
        format: "table" (JSON: vocabulary, counts, number of texts), "tsv" (``token<TAB>count`` lines in the order of
            the ids) or "json" (``{token: count}``). None: "tsv" if the name ends in ``.tsv`` or ``.tsv.gz``,
            otherwise "table".

    Raises:
        ValueError: if the format is unknown, or cannot hold one of the tokens.
    """
    file = Path(path)
    format = format or ("tsv" if file.name.removesuffix(".gz").endswith(".tsv") else "table")
    check_choice("format", format, ("table", "tsv", "json"))
    rows = list(zip(content.tokens, content.counts, strict=True))
    if format == "table":
        table: dict[str, Any] = {"format": _FORMAT, "version": 1, "num_texts": content.num_texts}
        table |= {"tokens": content.tokens, "counts": content.counts}
        text = json.dumps(table, ensure_ascii=False) + "\n"
    elif format == "json":
        known = {token: count for token, count in rows if token is not None}
        text = json.dumps(known, ensure_ascii=False, indent=2) + "\n"
    else:
        unfit = [token for token, _ in rows if token is None or "\n" in token]
        if unfit:
            raise ValueError(f'format must be "table" for a table with the token {unfit[0]!r}, got "tsv".')
        text = "token\tcount\n" + "".join(f"{token}\t{count}\n" for token, count in rows)
    _write_whole(file, text)


def _from_json(text: str, path: str | PathLike[str]) -> TableContent:
    try:
        content = json.loads(text, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a complete JSON file ({error}).") from error
    except KeyError as error:
        raise ValueError(f"{path} must hold each token once, got {error} twice.") from error
    if content.get("format") == _FORMAT:
        if missing := {"tokens", "counts", "num_texts"} - content.keys():
            raise ValueError(f"{path} must be a whole frequency table, got one without {', '.join(sorted(missing))}.")
        return TableContent(content["tokens"], content["counts"], content["num_texts"])
    wrong = next((item for item in content.items() if type(item[1]) is not int), None)
    if wrong is not None:
        raise ValueError(f"{path} must map tokens to whole numbers, got {wrong[0]!r}: {wrong[1]!r}.")
    return TableContent(list(content), list(content.values()))


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary; KeyError if it holds a key twice, of which json would keep the last."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise KeyError(key)
        content[key] = value
    return content


def _from_tsv(lines: Sequence[tuple[int, str]], path: str | PathLike[str]) -> TableContent:
    rows = [(number, row) for number, line in lines if (row := line.rstrip("\r\n"))]
    if rows and rows[0][1] == "token\tcount":
        del rows[0]
    counts: dict[str, int] = {}
    for number, row in rows:
        token, tab, count = row.rpartition("\t")  # the token may hold a tab itself
        if not tab or not count.strip().isdecimal():
            written = row.replace("\t", "<TAB>")
            raise ValueError(f"{path}, line {number}: expected token<TAB>count, got {written!r}.")
        if token in counts:
            raise ValueError(f"{path} must hold each token once, got {token!r} twice.")
        counts[token] = int(count)
    if not counts:
        raise ValueError(f"{path} must hold at least one line token<TAB>count, got none.")
    return TableContent(list(counts), list(counts.values()))


def _write_whole(path: Path, text: str) -> None:
    """Write beside ``path`` and move the file into place, so that nobody ever sees half of it."""
    data = text.encode("utf-8")
    data = gzip.compress(data) if path.suffix == ".gz" else data
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
