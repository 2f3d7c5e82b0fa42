"""Rows of tables and data sets, and which of their columns are read."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from glob import has_magic
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from st_extras.text.files import (
    MAX_LINE,
    check_decoded,
    check_valid,
    file_kind,
    open_text,
    parse_json,
    read_lines,
)
from st_extras.text.folders import files_of_folder, files_of_pattern, find_search_folder, is_copy
from st_extras.text.markdown import parse_markdown

TEXT_COLUMNS = ("sentence", "text", "sentence1", "content", "contents")
"""Usual names of the column of a text."""
QUERY_COLUMNS = ("query", "question", *TEXT_COLUMNS)
"""The same of a query."""
DOCUMENT_IDS = ("corpus-id", "corpus_id", "document_id", "doc_id", "docid", "docno", "pid")
"""Usual names of the column of a document's id in a file of judgements."""
QUERY_IDS = ("query-id", "query_id", "qid", "q_id")
"""The same of a query's id."""

Rows = Iterator[tuple[str, Any]]
"""``(place, row)``: the file with its line or row, for messages, and a value for each column, or a text alone."""
_SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""What may separate the fields of a .csv file, by its name in messages."""
_SHOWN = 20  # names of columns in a message
_BATCH = 1000  # rows of a parquet file that are read together
_NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
_SNIFFED = 100_000  # rows of a .tsv file by which it is decided whether quotes enclose fields


@dataclass(frozen=True)
class Column:
    """A column to read.

    Attributes:
        usual: names that it may have, the first that exists is read; neither case nor space around a name matters.
        given: its name, if the user gave one: no other is read.
        remedy: what to do if a table lacks it, for messages.
        optional_up_to: a table of at most so many columns may lack it: 0 none, ``math.inf`` any.
    """

    usual: Sequence[str] = ()
    given: str | None = None
    remedy: str = ""
    optional_up_to: float = 0

    def found_in(self, names: Iterable[Any]) -> list[Any]:
        """Return the names of a table's columns that it may be, best first."""
        real = {name: name for name in names}
        real = {str(name).strip().casefold(): name for name in reversed([*real])} | real
        wanted = self.usual if self.given is None else (self.given,)
        found = (real.get(name, real.get(name.casefold())) for name in wanted)
        return [name for name in found if name is not None]


@dataclass(frozen=True)
class Table:
    """A file or data set, and which of its columns are read.

    Attributes:
        name: what the user called it, or its path.
        columns: to read, by keys of the reader's.
        read: returns its rows.
        typed: whether a column of strings can be told from one of numbers.
        checked: whether its strings are known to be valid text, as those of a file are when it has been decoded.
        hint: what is wrong if a file of this kind has no such column.
    """

    name: str
    columns: Mapping[str, Column]
    read: Callable[[], Rows]
    typed: bool = False
    checked: bool = True
    hint: str = ""

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the place of each row, and what it holds in the columns, by their keys.

        A line of a text file or a string in .jsonl is the value of the first of them. An optional column that does not
        exist is left out. The first column may, in a ``typed`` table, be the only one whose first value is a string.

        Raises:
            ValueError: if a required column does not exist or is there twice, a string holds a lone surrogate, or the
                file cannot be read.
        """
        chosen: dict[str, str] = {}
        names: tuple[str, ...] | None = None
        text, *others = self.columns
        for where, row in self.read():
            if not isinstance(row, Mapping):
                if others:
                    self._choose(where, {}, {key: self.columns[key] for key in others})
                    others = []  # what is optional for one line is for all
                values = {text: row}
            else:
                if tuple(row) != names:
                    place = self.name if names is None else where
                    names = tuple(row)
                    chosen = self._choose(place, row, self.columns)
                values = {key: row[name] for key, name in chosen.items()}
            if not self.checked:
                for value in values.values():
                    check_valid(value, where)
            yield where, values

    def _choose(self, where: str, row: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, str]:
        """Return the name of each column that is read, by the keys of ``columns``; messages begin with ``where``."""
        ids = columns["id"].found_in(row) if "id" in columns else []
        strings = [name for name, value in row.items() if isinstance(value, str) and name not in ids]
        size = sum(1 for name in row if str(name).strip())
        chosen = dict[str, str]()
        for key, column in columns.items():
            found = [name for name in column.found_in(row) if name not in chosen.values()]
            if not found and not chosen and column.given is None and self.typed and len(strings) == 1:
                found = strings
            if found:
                chosen[key] = found[0]
            elif size > column.optional_up_to or not column.optional_up_to:
                wanted = " or ".join(column.usual if column.given is None else (column.given,))
                remedy = f"; {column.remedy}" if column.remedy else ""
                raise ValueError(f"{where} has no column {wanted}: it has {_shown_names(row)}{self.hint}{remedy}.")
        return chosen


def _shown_names(names: Collection[Any]) -> str:
    """Return the names of columns for a message, the first of many."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{', '.join(map(str, [*names][:_SHOWN])) or 'none'}{more}"


def text_columns(
    column: str | None = None,
    ids: Sequence[str] = (),
    usual: Sequence[str] = TEXT_COLUMNS,
    option: str = "column (--column)",
) -> dict[str, Column]:
    """Return the columns of texts, with the titles before them unless ``column`` is given, and their ids.

    Args:
        column: the column of the texts that the user gave.
        ids: usual names of the column of ids; none without any.
        usual: usual names of the column of the texts.
        option: what gives ``column``, for messages; "" where nothing does.
    """
    columns = {"text": Column(usual, column, f"{option} can name another" if option else "")}
    if column is None:
        columns["title"] = Column(("title",), optional_up_to=math.inf)
    if ids:
        columns["id"] = Column(ids, optional_up_to=math.inf)
    return columns


# --- what a name stands for ---


def open_tables(name: str, columns: Mapping[str, Column]) -> list[Table]:
    """Return what ``name`` stands for: one table, or each file of a folder or pattern; of a search folder, its corpus.

    Files are read when their rows are asked for; data sets are found, and downloaded, at once.

    Raises:
        ValueError: if there is nothing of that name, or it is not clear which files are meant.
    """
    if not name.strip():
        raise ValueError(f"A source of text must be a file, folder, pattern or data set, got {name!r}.")
    path = Path(name)
    if "://" in name:
        rest = name.removeprefix("hf://").removeprefix("datasets/")
        if not name.startswith("hf://") or rest.count("/") > 1:
            raise ValueError(f"An address must be that of a data set, hf://datasets/owner/name, got {name!r}.")
        return [_of_dataset(name, columns, partial(_load_hub, rest, streaming=True))]
    if path.is_file() or path.is_fifo():
        return [open_file(path, columns)]
    if path.is_dir():
        collection = find_search_folder(path)
        files = files_of_folder(path) if collection is None else [collection.corpus]
        return [open_file(file, columns) for file in files]
    if has_magic(name):
        return [open_file(file, columns) for file in files_of_pattern(name)]
    check_no_missing_file(name)
    return [_of_dataset(name, columns, partial(_load_hub, name, streaming=False))]


def check_no_missing_file(name: str) -> None:
    """Refuse the name of a file or folder that is not there; a data set's id and a pattern pass.

    Raises:
        ValueError: with that name.
    """
    path = Path(name)
    looks_like_file = any(file_kind(path)) or path.is_absolute() or name.startswith((".", "~", "-")) or "\\" in name
    if (looks_like_file or name.count("/") > 1) and not (path.exists() or "://" in name or has_magic(name)):
        raise ValueError(f"There is no file {name!r}.")


def open_file(path: str | PathLike[str], columns: Mapping[str, Column], other: str = ".txt") -> Table:
    """Return the table of a file by its ending.

    Args:
        path: the file.
        columns: to read.
        other: what a file of any other ending is read as: ".txt", one sentence per line, or ".tsv".

    Raises:
        ValueError: if it is a copy that an editor left, or a pipe that would have to be read twice.
    """
    if is_copy(path):
        raise ValueError(
            f"{str(path)!r} must not be a copy that an editor, a merge or a download left, as its name says: rename it "
            "to read it."
        )
    kind = file_kind(path)[0]
    kind = other if kind in ("", ".txt") else kind
    if kind in _READ_TWICE and Path(path).is_fifo():
        raise ValueError(f"{str(path)!r} must be a file, as a table is read twice, got a pipe: save it first.")
    read, hint = _READERS[kind]
    given = []
    if kind in (".csv", ".tsv"):
        of_kind = partial(_csv_layout, path, columns) if kind == ".csv" else partial(_tsv_layout, path)
        given = [cache(of_kind)]  # once, however often the rows are read
    return Table(str(path), columns, partial(read, path, *given), kind == ".parquet", hint=hint)


# --- files ---


def _lines(path: str | PathLike[str]) -> Rows:
    return ((f"{path}, line {number}", line) for number, line in read_lines(path))


def _markdown(path: str | PathLike[str]) -> Rows:
    """Yield the one document of a Markdown file; its path is its id, unless it has one."""
    page = parse_markdown("".join(line for _, line in read_lines(path)))
    yield str(path), page._asdict() | {"id": page.id or str(path)}


def _jsonl(path: str | PathLike[str]) -> Rows:
    for number, line in read_lines(path):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, parse_json(line, where)


def _json(path: str | PathLike[str]) -> Rows:
    """Yield the objects of a list, or those of lines as in .jsonl, which many programs call .json."""
    with open_text(path) as stream:
        start = stream.read(10_000).lstrip()
        content = start + stream.read() if start.startswith("[") else None
    if content is not None:
        check_decoded(content, str(path))
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(parse_json(content, str(path))))
        return
    rows = _jsonl(path)
    try:
        first = next(rows, None)
    except ValueError as error:
        raise ValueError(f"{path} must be a list of objects, or hold one per line: {error}") from None
    if first is not None:
        yield first
        yield from rows


class _Layout(NamedTuple):
    """How a .csv or .tsv file is written.

    Attributes:
        separator: between two fields.
        quoted: whether a field may be in double quotes, and then hold separators and line ends; else quotes are text.
        skipped: lines before its header, which are not read.
    """

    separator: str
    quoted: bool = True
    skipped: int = 0


def _csv_layout(path: str | PathLike[str], columns: Mapping[str, Column]) -> _Layout:
    """Return the layout of a .csv file: what separates its fields is tried on its header.

    The separator wins that gives most of the required columns, then that which gives most fields. A line such as
    ``sep=;``, which Excel reads, decides before.
    """
    number, first = next(((number, line) for number, line in read_lines(path) if line.strip()), (0, ""))
    if named := _NAMED_SEPARATOR.fullmatch(first):
        return _Layout(named[1], skipped=number)
    best, most = _Layout(","), (-1, -1)
    for layout in map(_Layout, _SEPARATORS):
        try:
            _, header = next(_records(path, layout), ("", []))
        except ValueError:  # its quotes do not fit this separator
            continue
        found = sum(bool(column.found_in(header)) for column in columns.values() if not column.optional_up_to)
        if (found, len(header)) > most:
            best, most = layout, (found, len(header))
    return best


def _tsv_layout(path: str | PathLike[str]) -> _Layout:
    return _Layout("\t", quoted=_has_quoted_fields(path))


def _table(path: str | PathLike[str], layout_of: Callable[[], _Layout]) -> Rows:
    """Yield the rows of a file whose first row names its columns; what is missing at the end of a row is None."""
    layout = layout_of()
    names: list[str] | None = None
    for where, fields in _records(path, layout):
        if names is None:
            names = fields
            if any(names.count(name) > 1 for name in names if name):
                header = "its first row must be a header that names each column once"
                raise ValueError(f"{path}: {header}, got {', '.join(names)}: add one if that is text.")
            continue
        while len(fields) > len(names) and not fields[-1].strip():  # rows may end in separators
            fields.pop()
        if len(fields) > len(names):
            sign = _SEPARATORS.get(layout.separator, repr(layout.separator))
            raise ValueError(
                f"{where}: a row must have at most {len(names)} fields, one for each column of the header "
                f"({_shown_names(names)}), got {len(fields)}: put a field that holds {sign} in double quotes, or mend "
                "the header."
            )
        if not layout.quoted and len(fields) < len(names) and sum(field.count('"') for field in fields) % 2:
            raise ValueError(
                f"{where}: a row must have {len(names)} fields, got {len(fields)} and a quote that is not closed on "
                "its line: save the table as .csv."
            )
        yield where, dict.fromkeys(names) | dict(zip(names, fields, strict=False))


def _records(path: str | PathLike[str], layout: _Layout) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the fields of each record; lines without any are skipped.

    By ``csv``: pandas and pyarrow know no line numbers, and lose rows without an error where a quote is not closed.
    """
    lines = islice(read_lines(path), layout.skipped, None)
    if not layout.quoted:
        for number, line in lines:
            if content := line.rstrip("\r\n"):
                yield f"{path}, line {number}", content.split(layout.separator)
        return
    csv.field_size_limit(MAX_LINE)  # 131,072 unless it is set
    spaced = layout.separator != "\t"  # a quote may follow a comma and a space
    texts = (line for _, line in lines)
    reader = csv.reader(texts, delimiter=layout.separator, strict=True, skipinitialspace=spaced)
    start = layout.skipped + 1
    try:
        for fields in reader:
            if fields:
                yield f"{path}, line {start}", fields
            start = layout.skipped + reader.line_num + 1
    except csv.Error as error:
        reason, remedy = str(error), "double a quote that belongs to the text"
        if reason == "unexpected end of data":
            reason = "a quote is opened and never closed"
        elif reason.startswith("new-line character"):
            reason, remedy = "a carriage return within a line", "put the field that holds it in quotes"
        raise ValueError(f"{path}, line {start}: {reason}: {remedy}.") from None


def _has_quoted_fields(path: str | PathLike[str]) -> bool:
    """Return whether quotes of a .tsv file enclose fields, as pandas and spreadsheets write it, or are text.

    They enclose fields if all rows can be read so and it matters: a field holds a quote, a tab or a line end.
    """
    width, found = 0, False
    try:
        for _, fields in islice(_records(path, _Layout("\t")), _SNIFFED):
            width = width or len(fields)
            split = any("\n" in field and "\t" in field for field in fields)  # likely two quotes of two rows
            if len(fields) != width or split:
                return False
            found = found or any(sign in field for field in fields for sign in '"\n\t')
    except ValueError:
        return False
    return found


def _parquet(path: str | PathLike[str]) -> Rows:
    """Yield the rows of a parquet file, with a named index; lists and the like are not read."""
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    number = 0
    try:
        with ParquetFile(path, buffer_size=2**20) as file:
            plain = [field.name for field in file.schema_arrow if not pyarrow.types.is_nested(field.type)]
            names = [name for name in plain if not name.startswith("__index_level_")]
            kept = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
            ranges = [one for one in kept if isinstance(one, dict) and one["name"]]  # a consecutive index is no column
            for batch in file.iter_batches(_BATCH, columns=names):
                for row in batch.to_pylist():
                    index = {one["name"]: one["start"] + number * one["step"] for one in ranges}
                    yield f"{path}, row {number}", row | index
                    number += 1
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(f"{path}, row {number}", error) from error


_READERS: dict[str, tuple[Callable[..., Rows], str]] = {
    ".txt": (_lines, ""),
    ".md": (_markdown, ""),
    ".jsonl": (_jsonl, ""),
    ".json": (_json, " (it must be a list of objects, or hold one per line)"),
    ".csv": (_table, " (its first row must be a header; commas, semicolons, tabs or bars separate its fields)"),
    ".tsv": (_table, " (its first row must be a header; tabs separate its fields)"),
    ".parquet": (_parquet, ""),
}
"""How each kind of file is read, and what is wrong if it has no such column."""
_READ_TWICE = (".csv", ".tsv", ".parquet")  # first its header, its quotes, or its end


def _unreadable(where: str, error: Exception) -> ValueError:
    reason = next(iter(str(error).splitlines()), "no reason given")
    return ValueError(f"{where}: could not be read ({type(error).__name__}: {reason}).")


# --- data sets ---


def _of_dataset(name: str, columns: Mapping[str, Column], load: Callable[[], Any]) -> Table:
    try:
        dataset = load()
    except Exception as error:
        reason = str(_unreadable(name, error)).partition("could not be read ")[2]
        raise ValueError(f"{name!r} is neither a file nor a data set that could be loaded {reason}") from error
    return dataset_table(dataset, name, columns)


def dataset_table(dataset: Any, name: str, columns: Mapping[str, Column]) -> Table:
    """Return the table of a ``datasets.Dataset`` or ``IterableDataset``; columns of lists, images etc. are not read."""
    return Table(name, columns, partial(_rows_of_dataset, dataset, name), typed=True, checked=False)


def _rows_of_dataset(dataset: Any, name: str) -> Rows:
    from datasets import ClassLabel, Value

    names = [key for key, feature in (dataset.features or {}).items() if isinstance(feature, Value | ClassLabel)]
    is_changed = getattr(dataset, "format", {}).get("type") == "custom"  # by a transform, which may need all columns
    number = 0
    try:
        for number, row in enumerate(dataset if not names or is_changed else dataset.select_columns(names)):
            yield f"{name}, row {number}", row
    except Exception as error:
        raise _unreadable(f"{name}, after row {number}", error) from error


def _load_hub(name: str, *, streaming: bool) -> Any:
    """Return a split of a data set of the Hub: ``owner/name``, ``...:split`` or ``...:configuration:split``."""
    from datasets import load_dataset

    repository, *rest = name.split(":")
    if len(rest) > 2:
        raise ValueError("expected owner/name, owner/name:split or owner/name:configuration:split")
    options: dict[str, Any] = {"name": rest[0]} if len(rest) == 2 else {}
    options |= {"streaming": True} if streaming else {}
    return load_dataset(repository, split=(rest[-1] if rest else "") or "train", **options)
