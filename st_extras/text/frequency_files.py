"""The files of a frequency table: JSON with vocabulary and counts, TSV lines, or the authors' JSON object."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from st_extras.checks import check_choice
from st_extras.files import whole_file
from st_extras.text.files import file_kind, parse_json, read_lines
from st_extras.text.vocabularies import vocabulary_hash

_FORMAT = "st-extras frequency table"
_VERSION = 2
_MAX_LINE = 2**28  # bytes: a vocabulary of millions of tokens


class TableContent(NamedTuple):
    """What a file holds.

    Attributes:
        tokens: the token at each id, or the tokens in the order of the file.
        counts: the count of each token.
        num_texts: number of texts counted; 0 if unknown.
        in_id_order: whether the file states the whole vocabulary, id by id.
    """

    tokens: Sequence[str | None]
    counts: Sequence[int]
    num_texts: int = 0
    in_id_order: bool = False


def read_table(path: str | PathLike[str]) -> TableContent:
    """Read a table in any of the formats of :func:`write_table`; ``.gz`` is unpacked.

    Raises:
        ValueError: if the file is not a table, or holds a token twice.
    """
    lines = list(read_lines(path, max_line=_MAX_LINE))
    text = "".join(line for _, line in lines)
    if text.lstrip().startswith("{") and "\t" not in lines[0][1]:
        return _from_json(text, path)
    return _from_tsv(lines, path)


def table_format(path: str | PathLike[str], tokens: Sequence[str | None], format: str | None = None) -> str:
    """Return the format in which a table is written.

    Args:
        path: the file.
        tokens: of the table.
        format: "table", "tsv", "json", or None: "tsv" if the name ends in ``.tsv`` or ``.tsv.gz``, otherwise "table".

    Raises:
        ValueError: if the format is unknown or cannot hold one of the tokens.
    """
    format = format or ("tsv" if file_kind(Path(path))[0] == ".tsv" else "table")
    check_choice("format", format, ("table", "tsv", "json"))
    unfit = [token for token in tokens if token is None or "\n" in token]
    if format == "tsv" and unfit:
        raise ValueError(
            f"{path} must not be a TSV file for a table with the token {unfit[0]!r}, which fits no line of it: give it "
            "a name that ends in .json."
        )
    return format


def write_table(path: str | PathLike[str], content: TableContent, format: str | None = None) -> None:
    """Write a table; ``path`` appears only when the file is complete.

    Args:
        path: the file; packed if its name ends in ``.gz``.
        content: the table.
        format: "table" (JSON: vocabulary, counts, number of texts), "tsv" (``token<TAB>count`` lines in the order of
            the ids), "json" (``{token: count}``) or None, as :func:`table_format` takes it.

    Raises:
        ValueError: if the format is unknown or cannot hold one of the tokens.
    """
    file, format = Path(path), table_format(path, content.tokens, format)
    rows = list(zip(content.tokens, content.counts, strict=True))
    if format == "table":
        table: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "num_texts": content.num_texts}
        table |= {"vocabulary_size": len(content.tokens), "vocabulary_sha256": vocabulary_hash(content.tokens)}
        table |= {"tokens": content.tokens, "counts": content.counts}
        text = json.dumps(table, ensure_ascii=False) + "\n"
    elif format == "json":
        known = {token: count for token, count in rows if token is not None}
        text = json.dumps(known, ensure_ascii=False, indent=2) + "\n"
    else:
        text = "token\tcount\n" + "".join(f"{token}\t{count}\n" for token, count in rows)
    data = text.encode()
    with whole_file(file) as partial:
        partial.write_bytes(gzip.compress(data) if file_kind(file)[1] == ".gz" else data)


def _from_json(text: str, path: str | PathLike[str]) -> TableContent:
    content = parse_json(text, str(path))
    if content.get("format") == _FORMAT:
        return _from_own_json(content, path)
    wrong = next((item for item in content.items() if not _is_count(item[1])), None)
    if wrong is not None:
        raise ValueError(f"{path} must map tokens to whole numbers >= 0, got {wrong[0]!r}: {wrong[1]!r:.80}.")
    return TableContent(list(content), list(content.values()))


def _from_own_json(content: dict[str, Any], path: str | PathLike[str]) -> TableContent:
    """Return a file of the format "table", checked."""
    version = content.get("version")
    if version != _VERSION:
        raise ValueError(
            f"{path} must be a frequency table of version {_VERSION}, got {version!r:.80}: it needs another version of "
            "st_extras, or is damaged."
        )
    try:
        tokens, counts, num_texts = content["tokens"], content["counts"], content["num_texts"]
        found = (len(tokens), vocabulary_hash(tokens))
        stated = (content["vocabulary_size"], content["vocabulary_sha256"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} must be a whole frequency table, got one without {error}.") from None
    if stated != found:
        raise ValueError(f"{path}: its vocabulary does not match its recorded size and hash; the file was modified.")
    if not isinstance(counts, list) or not all(map(_is_count, counts)):
        raise ValueError(f"{path} must have a whole number from 0 to 2**63 - 1 as count of each token, got others.")
    return TableContent(tokens, counts, num_texts, in_id_order=True)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _from_tsv(lines: Sequence[tuple[int, str]], path: str | PathLike[str]) -> TableContent:
    rows = [(number, row) for number, line in lines if (row := line.rstrip("\r\n"))]
    if rows and rows[0][1] == "token\tcount":
        del rows[0]
    counts: dict[str, int] = {}
    for number, row in rows:
        token, tab, count = row.rpartition("\t")  # the token may hold a tab itself
        digits = count.strip()
        if not tab or not digits.isdecimal() or len(digits) > 19 or not _is_count(int(digits)):
            written = row.replace("\t", "<TAB>")
            raise ValueError(f"{path}, line {number}: expected token<TAB>count, got {written!r:.80}.")
        if token in counts:
            raise ValueError(f"{path}, line {number}: the file must hold each token once, got {token!r} twice.")
        counts[token] = int(digits)
    if not counts:
        raise ValueError(f"{path} must hold at least one line token<TAB>count, got none.")
    return TableContent(list(counts), list(counts.values()))
