"""Rows of tables and data sets, and which of their columns are read."""

from __future__ import annotations

import csv
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import has_magic
from itertools import dropwhile, islice
from os import PathLike
from pathlib import Path
from typing import Any

from st_extras.checks import counted, shown
from st_extras.text.files import MAX_LINE, check_decoded, file_kind, open_text, parse_json, read_lines
from st_extras.text.folders import KEY_OF_SEARCH, files_of_folder, files_of_pattern, find_search_folder, is_copy
from st_extras.text.markdown import parse_markdown

logger = logging.getLogger(__name__)

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
MADE_BY_SEARCH = ("id_is_number", "spans", "embeddings", "words", "counts")
"""The columns of such a file beside those of the documents."""
_SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""What may separate the fields of a .csv file, by its name in messages."""
_SHOWN = 20  # names of columns in a message
_BATCH = 1000  # rows of a parquet file that are read together
_NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
_WHOLE = "whole file"  # beside the kinds of files, as an ending
_ARROW_TEXTS = ("string", "large_string", "string_view")
_SNIFFED = 100_000  # rows of a .tsv file by which it is decided whether quotes enclose fields


@dataclass(frozen=True)
class Column:
    """A column to read.

    Attributes:
        usual: names that it may have, the first that exists is read; neither case nor space around a name matters.
        given: its name, if the user gave one: no other is read.
        remedy: what to do if a table lacks it, for messages.
        optional_up_to: a table with this many columns or fewer may lack it; -1: no table may, ``math.inf``: each may.
    """

    usual: Sequence[str] = ()
    given: str | None = None
    remedy: str = ""
    optional_up_to: float = -1

    @property
    def names(self) -> Sequence[str]:
        """The names that it may have, best first."""
        return self.usual if self.given is None else (self.given,)

    def found_in(self, names: Iterable[Any]) -> list[Any]:
        """Return the names of a table's columns that it may be, best first."""
        real = {name: name for name in names}
        real = {str(name).strip().casefold(): name for name in reversed([*real])} | real
        matching = (real.get(name, real.get(name.casefold())) for name in self.names)
        return [name for name in matching if name is not None]


@dataclass(frozen=True)
class Table:
    """A file or data set, and which of its columns are read.

    Attributes:
        name: what the user called it, or its path.
        columns: to read, by keys of the reader's.
        read: returns its rows.
        may_guess_text: whether the first column may be the only one of strings, as values have types.
        hint: what is wrong if a file of this kind has no such column.
        faults: why its front matter could not be read, if so; filled while rows are read.
        left_out: names, without values, of columns that are neither text nor metadata, such as images; filled likewise.
    """

    name: str
    columns: Mapping[str, Column]
    read: Callable[[Table], Rows]
    may_guess_text: bool = False
    hint: str = ""
    faults: list[str] = field(default_factory=list)
    left_out: dict[str, None] = field(default_factory=dict)

    def rows(self, *, with_others: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the place of each row, and what it holds in the columns, by their keys.

        A line of a text file or a string in .jsonl is a row of the first of them alone. An optional column that does
        not exist is left out.

        Args:
            with_others: whether the key "others" holds a dict of what stands in all other columns, by their names.

        Raises:
            ValueError: if a required column does not exist or is there twice, or the file cannot be read.
        """
        chosen: dict[str, str] = {}
        names: tuple[str, ...] | None = None
        name_of_line = next(iter(self.columns.values())).names[0]
        for where, content in self.read(self):
            row = content if isinstance(content, Mapping) else {name_of_line: content}
            if tuple(row) != names:
                chosen = self._choose(self.name if names is None else where, row)
                names = tuple(row)
            values = {key: row[name] for key, name in chosen.items()}
            if with_others:
                read = set(chosen.values())
                values["others"] = {name: value for name, value in row.items() if name not in read}
            yield where, values

    def _choose(self, where: str, row: Mapping[str, Any]) -> dict[str, str]:
        """Return the name of each column that is read, by its key; messages begin with ``where``."""
        ids = self.columns["id"].found_in(row) if "id" in self.columns else []
        strings = [name for name, value in row.items() if isinstance(value, str) and name not in ids]
        size = sum(1 for name in row if str(name).strip())
        chosen = dict[str, str]()
        for key, column in self.columns.items():
            candidates = [name for name in column.found_in(row) if name not in chosen.values()]
            if not candidates and not chosen and column.given is None and self.may_guess_text and len(strings) == 1:
                candidates = strings
            if candidates:
                chosen[key] = candidates[0]
            elif size > column.optional_up_to:
                remedy = f"; {column.remedy}" if column.remedy else ""
                wanted = " or ".join(column.names)
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
    remedy: str = "column (--column) can name another",
) -> dict[str, Column]:
    """Return the columns of texts, with the titles before them unless ``column`` is given, and their ids.

    Args:
        column: the column of the texts that the user gave.
        ids: usual names of the column of ids, between _id and id; none without any.
        usual: usual names of the column of the texts.
        remedy: what to do if a table has none of them, for messages.
    """
    columns = {"text": Column(usual, column, remedy)}
    if column is None:
        columns["title"] = Column(("title",), optional_up_to=math.inf)
    if ids:
        columns["id"] = Column(("_id", *ids, "id"), optional_up_to=math.inf)
    return columns


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, or NaN as pandas has it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def read_number(value: Any, where: str, what: str) -> float:
    """Return the number that a cell holds.

    Raises:
        ValueError: if it is empty, or no finite number; the message begins with ``where``, and calls it ``what``.
    """
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{where}: a {what} is missing, got {shown(value)}: fill it, or leave its row out.")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: a {what} must be a finite number, got {shown(value)}.")
    return number


# --- what a name stands for ---


def open_tables(name: str, columns: Mapping[str, Column], *, whole_files: bool = False) -> list[Table]:
    """Return what ``name`` stands for: one table, or each file of a folder or pattern; of a search folder, its corpus.

    Files are read when their rows are asked for; data sets are found, and downloaded, at once.

    Args:
        name: of a file, a folder, a pattern or a data set.
        columns: to read.
        whole_files: a text file is one row, and its path the id, rather than a row for each line.

    Raises:
        ValueError: if there is nothing of that name, or it is not clear which files are meant.
    """
    if not name.strip():
        raise ValueError(f"A source of text must be a file, folder, pattern or data set, got {name!r}.")
    path = Path(name)
    other = _WHOLE if whole_files else ".txt"
    if path.is_file() or path.is_fifo():
        return [open_file(path, columns, other)]
    if path.is_dir():
        collection = find_search_folder(path)
        files = files_of_folder(path) if collection is None else [collection.corpus]
        return [open_file(file, columns, other) for file in files]
    if has_magic(name) and "://" not in name:
        return [open_file(file, columns, other) for file in files_of_pattern(name)]
    check_no_missing_file(name)
    return [_hub_table(name, columns)]


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
        other: what a file of any other ending, or of .txt, is read as: ".txt", a row for each line, ".tsv", or a row
            that is the whole file.

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
    return Table(str(path), columns, read, may_guess_text=kind == ".parquet", hint=hint)


def warn_of_faults(tables: Iterable[Table]) -> None:
    """Log of how many files the front matter could not be read, and of the first one why."""
    faulty = [table for table in tables if table.faults]
    if faulty:
        logger.warning(
            "Front matter that could not be read is left out: of %s, such as %s (%s).",
            *(counted(len(faulty), "file"), faulty[0].name, faulty[0].faults[0]),
        )


# --- files ---


def _lines(table: Table) -> Rows:
    return ((f"{table.name}, line {number}", line) for number, line in read_lines(table.name))


def _whole_text(table: Table) -> Rows:
    """Yield the one document of a text file; its path is its id."""
    yield table.name, {"id": table.name, "text": "".join(line for _, line in read_lines(table.name))}


def _markdown(table: Table) -> Rows:
    """Yield the one document of a Markdown file; its path is its id, unless it has one."""
    page = parse_markdown("".join(line for _, line in read_lines(table.name)))
    if page.fault:
        table.faults.append(page.fault)
    yield table.name, {"id": page.id or table.name, "title": page.title, "text": page.text, "metadata": page.fields}


def _jsonl(table: Table) -> Rows:
    for where, line in _lines(table):
        if content := line.strip():
            yield where, _checked_row(parse_json(content, where), where, ": name a file that is one list .json")


def _checked_row(row: Any, where: str, hint_of_list: str = "") -> Any:
    """Return a row of JSON if it is an object or a text.

    Raises:
        ValueError: if it is not; the message begins with ``where``, and ends with the hint if it is a list.
    """
    if not isinstance(row, dict | str):
        hint = hint_of_list if isinstance(row, list) else ""
        raise ValueError(f"{where}: a row must be an object or a text, got {shown(row)}{hint}.")
    return row


def _json(table: Table) -> Rows:
    """Yield the objects of a list, or those of lines as in .jsonl, which many programs call .json."""
    name = table.name
    with open_text(name) as stream:
        start = stream.read(10_000).lstrip()
        if start.startswith("["):
            content = start + stream.read()
            check_decoded(content, name)
            for number, row in enumerate(parse_json(content, name)):
                where = f"{name}, row {number}"
                yield where, _checked_row(row, where)
            return
    try:
        yield from _jsonl(table)
    except ValueError as error:
        raise ValueError(f"{name} must be a list of objects, or hold one per line: {error}") from None


def _csv(table: Table) -> Rows:
    return _below_header(table.name, _separator(table.name, table.columns), quoted=True)


def _tsv(table: Table) -> Rows:
    return _below_header(table.name, "\t", _has_quoted_fields(table.name))


def _separator(path: str, columns: Mapping[str, Column]) -> str:
    """Return what separates the fields of a .csv file.

    A line such as ``sep=;`` before the header, which Excel reads, decides. Without it each separator is tried on the
    header: that which gives most of the required columns wins, then that which gives most fields.
    """
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    if named := _NAMED_SEPARATOR.fullmatch(first):
        return named[1]

    def fit(separator: str) -> tuple[int, int]:
        try:
            _, header = next(_records(path, separator, quoted=True), ("", []))
        except ValueError:  # its quotes do not fit this separator
            return -1, -1
        required = [column for column in columns.values() if column.optional_up_to < 0]
        return sum(bool(column.found_in(header)) for column in required), len(header)

    return max(_SEPARATORS, key=fit)


def _below_header(path: str, separator: str, quoted: bool) -> Rows:
    """Yield the rows of a file whose first row names its columns; what is missing at the end of a row is None."""
    names: list[str] | None = None
    held: list[tuple[str, dict[str, str | None]]] = []  # empty rows, which spreadsheets leave below the last one
    for where, fields in _records(path, separator, quoted):
        if names is None:
            if separator.join(fields).casefold() == f"sep={separator}":  # for Excel
                continue
            names = fields
            if any(names.count(name) > 1 for name in names if name):
                header = "its first row must be a header that names each column once"
                raise ValueError(f"{path}: {header}, got {', '.join(names)}: add one if that is text.")
            continue
        while len(fields) > len(names) and not fields[-1].strip():  # rows may end in separators
            fields.pop()
        if len(fields) > len(names):
            sign = _SEPARATORS.get(separator, repr(separator))
            raise ValueError(
                f"{where}: a row must have at most {len(names)} fields, one for each column of the header "
                f"({_shown_names(names)}), got {len(fields)}: put a field that holds {sign} in double quotes, or mend "
                "the header."
            )
        if not quoted and len(fields) < len(names) and sum(field.count('"') for field in fields) % 2:
            raise ValueError(
                f"{where}: a row must have {len(names)} fields, got {len(fields)} and a quote that is not closed on "
                "its line: save the table as .csv."
            )
        held.append((where, dict.fromkeys(names) | dict(zip(names, fields, strict=False))))
        if not _is_empty(fields):
            yield from held
            held.clear()


def _is_empty(fields: Sequence[str]) -> bool:
    return not any(map(str.strip, fields))


def _records(path: str, separator: str, quoted: bool) -> Iterator[tuple[str, list[str]]]:
    """Return what :func:`_all_records` yields, from the first record on that is not empty."""
    return dropwhile(lambda record: _is_empty(record[1]), _all_records(path, separator, quoted))


def _all_records(path: str, separator: str, quoted: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the fields of each record; lines without any are skipped.

    By ``csv``: pandas and pyarrow know no line numbers, and lose rows without an error where a quote is not closed.

    Args:
        path: the file.
        separator: between two fields.
        quoted: whether a field may be in double quotes, and then hold separators and line ends; else quotes are text.
    """
    lines = read_lines(path)
    if not quoted:
        for number, line in lines:
            if content := line.rstrip("\r\n"):
                yield f"{path}, line {number}", content.split(separator)
        return
    csv.field_size_limit(MAX_LINE)  # 131,072 unless it is set
    spaced = separator != "\t"  # a quote may follow a comma and a space
    texts = (line for _, line in lines)
    reader = csv.reader(texts, delimiter=separator, strict=True, skipinitialspace=spaced)
    start = 1
    try:
        for fields in reader:
            if fields:
                yield f"{path}, line {start}", fields
            start = reader.line_num + 1
    except csv.Error as error:
        reason, remedy = str(error), "double a quote that belongs to the text"
        if reason == "unexpected end of data":
            reason = "a quote is opened and never closed"
        elif reason.startswith("new-line character"):
            reason, remedy = "a carriage return within a line", "put the field that holds it in quotes"
        raise ValueError(f"{path}, line {start}: {reason}: {remedy}.") from None


def _has_quoted_fields(path: str) -> bool:
    """Return whether quotes of a .tsv file enclose fields, as pandas and spreadsheets write it, or are text.

    They enclose fields if they enclose a name in the header, or all rows can be read so and it matters: a field holds a
    quote, a tab or a line end.
    """
    header = next((line for _, line in read_lines(path) if line.strip()), "")
    if any(name.startswith('"') for name in header.split("\t")):
        return True
    width, matters = 0, False
    try:
        for _, fields in islice(_records(path, "\t", quoted=True), _SNIFFED):
            width = width or len(fields)
            split = any("\n" in field and "\t" in field for field in fields)  # likely two quotes of two rows
            if len(fields) != width or split:
                return False
            matters = matters or any(sign in field for field in fields for sign in '"\n\t')
    except ValueError:
        return False
    return matters


def _parquet(table: Table) -> Rows:
    """Yield the rows of a parquet file, with a named index."""
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    number = 0
    try:
        with ParquetFile(table.name, buffer_size=2**20, coerce_int96_timestamp_unit="us") as file:
            made = MADE_BY_SEARCH if KEY_OF_SEARCH in (file.metadata.metadata or {}) else ()
            names = _readable([one for one in file.schema_arrow if one.name not in made], table)
            kept = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
            ranges = [one for one in kept if isinstance(one, dict) and one["name"]]  # a consecutive index is no column
            for batch in file.iter_batches(_BATCH, columns=names):
                columns = {name: _values(batch.column(name), name, table) for name in names}
                for i in range(batch.num_rows):
                    index = {one["name"]: one["start"] + number * one["step"] for one in ranges}
                    yield f"{table.name}, row {number}", {name: values[i] for name, values in columns.items()} | index
                    number += 1
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{table.name}, row {number}: could not be read ({_reason(error)}).") from error


def _readable(schema: Iterable[Any], table: Table) -> list[str]:
    """Return the names of the columns that are read: with single values or, where documents are read, lists of texts.

    An index of pandas without a name is none.

    Raises:
        ValueError: if two of them have one name.
    """
    from pyarrow.types import is_nested  # type: ignore[import-untyped]

    names: list[str] = []
    for column in schema:
        if column.name.startswith("__index_level_"):
            continue
        if column.name in names:
            raise ValueError(f"{table.name}: its columns must have different names, got {column.name} twice.")
        items = getattr(column.type, "value_type", None)
        holds_texts = str(getattr(items, "value_type", items)) in _ARROW_TEXTS  # of a dictionary: its values
        is_single = not is_nested(getattr(column.type, "storage_type", column.type))  # of an extension of arrow
        if is_single or (holds_texts and "id" in table.columns):
            names.append(column.name)
        else:
            table.left_out[column.name] = None
    return names


def _values(column: Any, name: str, table: Table) -> list[Any]:
    """Return the values of a column of pyarrow; None for dates that Python does not have."""
    import pyarrow

    if not pyarrow.types.is_temporal(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    values = [_date(scalar) for scalar in column]
    if values.count(None) > column.null_count:
        table.left_out[name] = None
    return values


def _date(scalar: Any) -> Any:
    """Return a date or time of pyarrow; None if it is beyond the year 9999 or of a time zone that is not known here."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return None


_READERS: dict[str, tuple[Callable[[Table], Rows], str]] = {
    ".txt": (_lines, ""),
    _WHOLE: (_whole_text, ""),
    ".md": (_markdown, ""),
    ".jsonl": (_jsonl, ""),
    ".json": (_json, " (it must be a list of objects, or hold one per line)"),
    ".csv": (_csv, " (its first row must be a header; commas, semicolons, tabs or bars separate its fields)"),
    ".tsv": (_tsv, " (its first row must be a header; tabs separate its fields)"),
    ".parquet": (_parquet, ""),
}
"""How each kind of file is read, and what is wrong if it has no such column."""
_READ_TWICE = (".csv", ".tsv", ".parquet")  # first its header, its quotes, or its end


def _reason(error: Exception) -> str:
    """Return what is wrong, in one line for a message."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), 'no reason given')}"


# --- data sets ---


def _hub_table(name: str, columns: Mapping[str, Column]) -> Table:
    """Return the table of a data set of the Hub: downloaded, or streamed if its name begins with ``hf://``."""
    streamed = "://" in name
    address = name.removeprefix("hf://").removeprefix("datasets/") if streamed else name
    repository, *rest = address.split(":")
    if "/" in "".join(rest) or repository.count("/") > 1 or len(rest) > 2:
        raise ValueError(
            "A data set must be named owner/name, owner/name:split or owner/name:configuration:split, after "
            f"hf://datasets/ to stream it, got {name!r}."
        )
    options: dict[str, Any] = {"name": rest[0]} if len(rest) == 2 else {}
    options |= {"streaming": True} if streamed else {}
    try:
        from datasets import load_dataset

        dataset = load_dataset(repository, split=(rest[-1] if rest else "") or "train", **options)
    except Exception as error:
        raise ValueError(
            f"{name!r} is neither a file nor a data set that could be loaded ({_reason(error)})."
        ) from error
    return dataset_table(dataset, name, columns)


def dataset_table(dataset: Any, name: str, columns: Mapping[str, Column]) -> Table:
    """Return the table of a ``datasets.Dataset`` or ``IterableDataset``.

    Of columns that hold no single values, lists of texts are read where documents are, and no images, vectors etc.
    """
    return Table(name, columns, lambda table: _rows_of_dataset(dataset, table), may_guess_text=True)


def _rows_of_dataset(dataset: Any, table: Table) -> Rows:
    names = _readable(dataset.features.arrow_schema, table) if dataset.features else []
    is_changed = getattr(dataset, "format", {}).get("type") == "custom"  # by a transform, which may need all columns
    number = 0
    try:
        for number, row in enumerate(dataset if not names or is_changed else dataset.select_columns(names)):
            yield f"{table.name}, row {number}", row
    except Exception as error:
        raise ValueError(f"{table.name}, after row {number}: could not be read ({_reason(error)}).") from error
