"""Documents and queries with their ids, for search; a title is part of its document, as in BEIR and MTEB."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from st_extras.checks import counted, shown
from st_extras.text.corpus import (
    Sources,
    check_sentence,
    is_blank,
    is_dataset,
    source_names,
    title_and_text,
    with_title,
)
from st_extras.text.files import file_kind
from st_extras.text.folders import find_search_folder
from st_extras.text.tables import (
    DOCUMENT_IDS,
    QUERY_COLUMNS,
    QUERY_IDS,
    Column,
    Table,
    dataset_table,
    is_missing,
    open_tables,
    text_columns,
    warn_of_faults,
)

logger = logging.getLogger(__name__)
_MANY_FILES = 20  # with this many .txt files, each is more likely one document than one per line
_LARGEST_ID = 2**63 - 1  # that a database holds


Scalar = str | int | float | bool | date | datetime
"""What a field of a document's metadata may hold."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document with its id, and what it came with.

    Attributes:
        id: a text or a whole number, as the user gave it; of a file, text.
        title: stripped; "" without one.
        text: without the title.
        metadata: further fields by their names, such as product or date: texts, numbers, truth values, dates and times,
            never None, NaN or infinite. Not to be changed in place: give :meth:`HybridSearch.add
            <st_extras.search.HybridSearch.add>` the document with other metadata. It is not part of the hash.
    """

    id: int | str
    title: str
    text: str
    metadata: Mapping[str, Scalar] = field(default_factory=dict, hash=False)

    @property
    def full_text(self) -> str:
        """What is searched: the title and the text, with a space between; a text without a title as it is."""
        return with_title(self.title, self.text)


def as_documents(documents: Any, name: str = "documents", *, require_ids: bool = False) -> list[Document]:
    """Return documents held in Python, with their ids.

    Args:
        documents: one of

            * texts, in a list or any other iterable: the id of each is its place from 0;
            * a dict by id, of texts or of dicts with text and title (BEIR's corpus);
            * dicts with id, title and text, in a list or any other iterable; or :class:`Document`;
            * a ``datasets.Dataset`` or ``IterableDataset`` with such columns.

            Ids stand under ``_id``, corpus-id, document_id, doc_id, docid, docno, pid or ``id``, texts under sentence,
            text, sentence1, content or contents. A title may be left out, and so may the ids of all documents. Further
            keys become :attr:`Document.metadata`, and so do those of a dict under "metadata" (BEIR's): see
            :func:`as_metadata`.
        name: of the argument, for the messages.
        require_ids: refuse documents without ids, which are otherwise numbered from 0.

    Returns:
        N documents in their order, those without text too. Ids keep their type; numpy's whole numbers become Python's.

    Raises:
        ValueError: if ``documents`` is a string, a set (its order changes from run to run), a dict of splits or a
            data frame; an id is neither a text nor a whole number of 64 bits, is blank, stands twice, or is missing
            where others have one; or a text or title is not a string, or holds a lone surrogate.

    Example:
        >>> from st_extras.text.documents import as_documents
        >>> as_documents([{"id": 7, "title": "Cards", "text": "A lost card is blocked at once."}])
        [Document(id=7, title='Cards', text='A lost card is blocked at once.', metadata={})]
        >>> as_documents({"e42": {"text": "There is no paper.", "product": "printer", "pages": 2}})[0].metadata
        {'product': 'printer', 'pages': 2}
    """
    if isinstance(documents, set | frozenset):
        raise ValueError(
            f"{name} must have an order, got a set, whose order changes from run to run: give a list or a dict by id."
        )
    if hasattr(documents, "iloc") or hasattr(documents, "columns"):  # a series of pandas, whose index may hold the ids
        raise ValueError(
            f"{name} must be texts, dicts or a data set, got a {type(documents).__name__}: give list(series), "
            'series.to_dict() by id, or rows by frame.to_dict("records") of pandas, frame.to_dicts() of polars or '
            "table.to_pylist() of pyarrow."
        )
    columns = text_columns(ids=DOCUMENT_IDS, remedy="")
    by_id = isinstance(documents, Mapping) and not any(hasattr(one, "column_names") for one in documents.values())
    if not by_id and is_dataset(documents, name=name):
        table = dataset_table(documents, name, columns)
    else:
        table = Table(name, columns, lambda _: _rows(documents, name), may_guess_text=True)
    return _collect([table], "document", require_ids or by_id)[0]


def _rows(documents: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the place of each document that is held in Python, and its text or a dict with its text, title and id."""
    if isinstance(documents, Mapping):
        for key, value in documents.items():
            row = dict(value) if isinstance(value, Mapping) else {"text": value}
            if isinstance(row.get("id"), int | str) and row["id"] == key:  # the id again is no metadata
                del row["id"]
            yield f"{name}[{key!r}]", row | {"_id": key}
    else:
        for number, value in enumerate(documents):
            yield f"{name}, row {number}", asdict(value) if isinstance(value, Document) else value


def read_documents(
    sources: Sources,
    *,
    column: str | None = None,
    remedy: str = "column (--column) can name another",
    require_ids: bool = False,
    whole_files: bool = False,
) -> list[Document]:
    """Read documents with their ids; of a folder in BEIR's layout, those of its ``corpus`` file.

    Args:
        sources: files, folders, patterns or data sets, as for :func:`~st_extras.text.stream_sentences`.
        column: column of the texts. None: the first of sentence, text, sentence1, content, contents that exists, and
            the column title.
        remedy: what to do if there is no such column, for messages.
        require_ids: refuse texts without ids, which are otherwise numbered from 0, empty ones counted.
        whole_files: a .txt file is one document, and its path the id, rather than a document for each line.

    Returns:
        N documents, their texts stripped. An id is text: that of the column ``_id``, otherwise of corpus-id,
        document_id, doc_id, docid, docno, pid or ``id``; that of a .md file is its path, unless its front matter has
        one. Further columns and front matter are metadata, see :func:`as_metadata`; empty cells are left out, and those
        of .csv and .tsv files and dates of YAML are texts. Empty documents are left out; the log has their number, if
        they have ids.

    Raises:
        ValueError: as for ``stream_sentences``; or if an id stands twice, is missing where others have one, or is
            neither a text nor a whole number, or there is no document. The message names the file with its line.
    """
    columns = text_columns(column, DOCUMENT_IDS, remedy=remedy)
    return _read(source_names(sources), "document", columns, require_ids, whole_files)


def read_queries(
    sources: Sources,
    *,
    column: str | None = None,
    remedy: str = "column (--query-column) can name another",
    require_ids: bool = False,
) -> dict[str, str]:
    """Read queries with their ids; of a folder in BEIR's layout, those of its ``queries`` file.

    Arguments and errors are those of :func:`read_documents`; texts may also stand in a column query or question, ids in
    query-id, query_id, qid or q_id.

    Returns:
        id -> query, stripped.
    """
    chosen = []
    for source in source_names(sources):
        folder = find_search_folder(source)
        if folder is not None and folder.queries is None:
            raise ValueError(f"{source!r} must hold one queries file, got none.")
        chosen.append(source if folder is None else str(folder.queries))
    columns = text_columns(column, QUERY_IDS, QUERY_COLUMNS, remedy)
    return {str(query.id): query.full_text for query in _read(chosen, "query", columns, require_ids)}


def _read(
    names: list[str], kind: str, columns: Mapping[str, Column], require_ids: bool, whole_files: bool = False
) -> list[Document]:
    tables = [table for name in names for table in open_tables(name, columns, whole_files=whole_files)]
    read, have_ids = _collect(tables, kind, require_ids, from_files=True)
    documents = [document for document in read if document.title or not is_blank(document.text)]
    if not documents:
        raise ValueError(f"{', '.join(map(repr, names)) or 'sources'} holds no {kind}.")
    text_files = [table.name for table in tables if file_kind(table.name)[0] == ".txt"]
    if kind == "document" and len(text_files) == len(tables) >= _MANY_FILES and not have_ids:
        logger.warning(
            "Each line of %s, such as %r, is a document, %s in all: whole_files (--whole-files) makes each file one.",
            *(counted(len(tables), "text file"), text_files[0], f"{len(read):,}"),
        )
    if have_ids and len(documents) < len(read):
        logger.warning(
            "%s: %d without text left out, %d read.", ", ".join(names), len(read) - len(documents), len(documents)
        )
    return documents


def _collect(
    tables: Sequence[Table], kind: str, require_ids: bool, *, from_files: bool = False
) -> tuple[list[Document], bool]:
    """Return documents or queries, and whether they have ids, without which they are numbered from 0.

    Args:
        tables: with the columns text, title and id.
        kind: "document" or "query", for messages.
        require_ids: refuse rows without ids.
        from_files: their ids become text, and their texts are stripped.

    Raises:
        ValueError: if an id stands twice, or is missing where others have one, or an id, a text or a title is not
            allowed; the message begins with its place.
    """
    documents: list[Document] = []
    known: set[int | str] = set()
    have_ids = require_ids
    rows = ((table, *row) for table in tables for row in table.rows(with_others=True))
    for number, (table, where, row) in enumerate(rows):
        key = row.get("id")
        if number == 0:
            have_ids = require_ids or key is not None
        if have_ids and "id" in row:  # an empty cell is refused
            document_id = text_id(key, where, kind).strip() if from_files else check_id(key, where, kind)
        elif have_ids or key is not None:
            without = (table if have_ids else tables[0]).name
            if file_kind(without)[0] == ".txt":
                remedy = "whole_files (--whole-files) makes the file one" if kind == "document" else "give a table"
                raise ValueError(f"{where}: each {kind} must have an id, and a line of {without!r} has none: {remedy}.")
            usual = ", ".join(table.columns["id"].usual)
            none = "" if require_ids else ", or none of them"
            raise ValueError(f"{where}: each {kind} must have an id, in one of the columns {usual}{none}.")
        else:
            document_id = str(number) if from_files else number
        title, text = title_and_text(row, where)
        if from_files:
            text = text.strip()
        if document_id in known:
            raise ValueError(f"{where}: the id {shown(document_id)} stands twice.")
        known.add(document_id)
        others = row["others"]
        if from_files:  # pandas writes a column of row numbers without a name
            others = {name: value for name, value in others.items() if str(name).strip()}
        metadata, dropped = as_metadata(others, where)
        if from_files:  # an empty cell
            metadata = {name: value for name, value in metadata.items() if value != "" and not str(value).isspace()}
        table.left_out.update(dict.fromkeys(dropped))
        documents.append(Document(document_id, title, text, metadata))
    warn_of_faults(tables)
    left_out = dict.fromkeys(name for table in tables for name in table.left_out)
    if left_out and kind == "document":
        first, *more = (table.name for table in tables if table.left_out)
        logger.warning(
            "%s: left out of the metadata, which holds texts, finite numbers, truth values and dates alone: %s.",
            *(f"{first} and others" if more else first, ", ".join(left_out)),
        )
    return documents, have_ids


def as_metadata(fields: Mapping[Any, Any], where: str) -> tuple[dict[str, Scalar], list[str]]:
    """Return the fields that a document keeps beside its text, and the names of those that it cannot keep.

    It keeps str, int, float, bool, date and datetime. Values of numpy and pandas become these, and a Decimal a float; a
    list of texts, such as tags, becomes one text with ", " between them. None, NaN, NaT, NA and an empty list are as if
    the field were absent. The fields of a dict under "metadata" count as the document's own. Infinite numbers, which
    JSON does not have, other lists, dicts, bytes, images and the like cannot be kept.

    Args:
        fields: by name, of a row of a table or a dict.
        where: the place of the document, with which a message begins.

    Raises:
        ValueError: if a text holds a lone surrogate.
    """
    kept: dict[str, Scalar] = {}
    dropped: list[str] = []
    inner = fields.get("metadata")
    if isinstance(inner, Mapping):
        fields = {**{name: value for name, value in fields.items() if name != "metadata"}, **inner}
    for key, value in fields.items():
        name = check_sentence(str(key), where).strip()
        if isinstance(value, list | tuple) and all(item is None or isinstance(item, str) for item in value):
            value = ", ".join(filter(None, value)) or None
        if value is None or type(value).__name__ == "NAType":  # of pandas, which has no truth value
            continue
        scalar = _as_scalar(value, where)
        if scalar is None or scalar in (math.inf, -math.inf) or not name:
            dropped.append(name or repr(key))
        elif scalar == scalar:  # else NaN or NaT
            kept[name] = scalar
    return kept, dropped


def _as_scalar(value: Any, where: str) -> Scalar | None:
    """Return a value as metadata has it, with a type of Python's own; None if it is no scalar."""
    if isinstance(value, str):
        return str.__str__(check_sentence(value, where))
    if type(value).__name__ in ("bool", "bool_", "datetime64"):  # bool is an int, too; the others are numpy's
        value = value.astype("datetime64[us]").item() if type(value).__name__ == "datetime64" else bool(value)
        return float("nan") if value is None else value
    if isinstance(value, datetime):  # pandas' has nanoseconds, and NaT is one too
        if value != value:
            return float("nan")
        return datetime.combine(value.date(), value.time(), value.tzinfo)
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real | Decimal) else None


def same_metadata(one: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> bool:
    """Return whether two documents have the same metadata, also in what "==" does not see, see :func:`exact`."""
    return {name: exact(value) for name, value in one.items()} == {name: exact(value) for name, value in other.items()}


def exact(value: Scalar | None) -> tuple[type, Scalar | None]:
    """Return a value of metadata with what "==" does not see by itself: True is not 1, nor a moment in another zone.

    But 1 is 1.0, as in a column of numbers, such as that of a file.
    """
    kind = float if isinstance(value, int) and not isinstance(value, bool) else type(value)
    return kind, value.isoformat() if isinstance(value, date) else value  # a datetime is a date, too


def check_id(value: Any, where: str, kind: str) -> int | str:
    """Return an id as the user gave it; numpy's strings and whole numbers as Python's.

    Raises:
        ValueError: if it is missing or blank, neither a text nor a whole number of 64 bits, or holds a lone surrogate;
            the message begins with ``where``.
    """
    if is_missing(value) or (isinstance(value, str) and is_blank(value)):
        raise ValueError(f"{where}: the id of a {kind} is missing, got {shown(value)}: give a text or a whole number.")
    if isinstance(value, str):
        return str(check_sentence(value, where))
    if isinstance(value, bool) or not isinstance(value, Integral) or abs(int(value)) > _LARGEST_ID:
        raise ValueError(f"{where}: the id of a {kind} must be a text or a whole number, got {shown(value)}.")
    return int(value)


def text_id(value: Any, where: str, kind: str) -> str:
    """Return an id as text, also a whole number beyond 64 bits.

    Raises:
        ValueError: as :func:`check_id`.
    """
    is_number = isinstance(value, Integral) and not isinstance(value, bool)
    return str(int(value) if is_number else check_id(value, where, kind))
