"""Documents and queries with their ids, for search; a title is part of its document, as in BEIR and MTEB."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, NamedTuple

from st_extras.checks import shown
from st_extras.text.corpus import Sources, check_sentence, is_blank, is_dataset, source_names, text_rows
from st_extras.text.folders import find_search_folder
from st_extras.text.tables import (
    DOCUMENT_IDS,
    QUERY_COLUMNS,
    QUERY_IDS,
    Column,
    Table,
    dataset_table,
    open_tables,
    text_columns,
)

logger = logging.getLogger(__name__)


_LARGEST_ID = 2**63 - 1  # that a database holds


class Document(NamedTuple):
    """A document with its id.

    Attributes:
        id: a text or a whole number, as the user gave it; of a file, text.
        title: stripped; "" without one.
        text: without the title.
    """

    id: int | str
    title: str
    text: str

    @property
    def full_text(self) -> str:
        """What is searched: the title and the text, with a space between; a text without a title as it is."""
        return f"{self.title} {self.text.strip()}".strip() if self.title else self.text


def as_documents(documents: Any) -> list[Document]:
    """Return documents held in Python, with their ids.

    Args:
        documents: one of

            * texts, in a list or any other iterable: the id of each is its place from 0;
            * a dict by id, of texts or of dicts with text and title (BEIR's corpus);
            * dicts with id, title and text, in a list or any other iterable; or :class:`Document`;
            * a ``datasets.Dataset`` or ``IterableDataset`` with such columns.

            Ids stand under ``_id``, corpus-id, document_id, doc_id, docid, pid or ``id``, texts under sentence, text,
            sentence1, content or contents. A title may be left out, and so may the ids of all documents.

    Returns:
        N documents in their order, those without text too. Ids keep their type; numpy's whole numbers become Python's.

    Raises:
        ValueError: if ``documents`` is a string, a set (its order changes from run to run), a dict of splits or a data
            frame; an id is neither a text nor a whole number of 64 bits, is blank, stands twice, or is missing where
            others have one; or a text or title is not a string, or holds a lone surrogate.

    Example:
        >>> from st_extras.text.documents import as_documents
        >>> as_documents([{"id": 7, "title": "Cards", "text": "A lost card is blocked at once."}])
        [Document(id=7, title='Cards', text='A lost card is blocked at once.')]
    """
    if isinstance(documents, set | frozenset):
        raise ValueError(
            "documents must have an order, got a set, whose order changes from run to run: give a list or a dict by id."
        )
    if hasattr(documents, "iloc"):  # of pandas
        if hasattr(documents, "columns"):
            raise ValueError('documents must not be a data frame, got one: give frame.to_dict("records").')
        if list(documents.index) != [*range(len(documents))]:
            raise ValueError(
                "documents must be a dict by id, a data set or a list, got a Series with an index of its own: give "
                "series.to_dict(), or list(series) to number them from 0."
            )
    is_split = isinstance(documents, Mapping) and any(hasattr(split, "column_names") for split in documents.values())
    if (is_split or not isinstance(documents, Mapping)) and is_dataset(documents, name="documents"):
        table = dataset_table(documents, "documents")
    else:
        table = Table("documents", lambda: _rows(documents), typed=True)
    found: list[Document] = []
    known: set[int | str] = set()
    columns = text_columns(ids=("_id", *DOCUMENT_IDS, "id"), option="")
    has_ids = isinstance(documents, Mapping) or None  # None: the first document decides
    for number, (where, row) in enumerate(table.rows(columns)):
        key = row.get("id")
        has_ids = key is not None if has_ids is None else has_ids
        if has_ids != (key is not None):
            raise ValueError(f"{where}: each document must have an id, or none, got {shown(key)}.")
        title, text = row.get("title"), row["text"]
        title = "" if title is None else check_sentence(title, where).strip()
        text = "" if text is None and title else check_sentence(text, where)
        identity = _as_given(key if has_ids else number, where)
        if identity in known:
            raise ValueError(f"{where}: the id {shown(identity)} stands twice.")
        known.add(identity)
        found.append(Document(identity, title, text))
    return found


def _rows(documents: Any) -> Iterator[tuple[str, Any]]:
    """Yield the place of each document that is held in Python, and its text or a dict with its text, title and id."""
    if isinstance(documents, Mapping):
        for key, value in documents.items():
            yield f"documents[{key!r}]", {**(value if isinstance(value, Mapping) else {"text": value}), "_id": key}
    else:
        for number, value in enumerate(documents):
            yield f"documents, row {number}", value._asdict() if isinstance(value, Document) else value


def _as_given(value: Any, where: str) -> int | str:
    """Return an id as the user gave it; numpy's strings and whole numbers as Python's.

    Raises:
        ValueError: if it is neither a text nor a whole number of 64 bits, or is blank; the message begins with
            ``where``.
    """
    is_number = isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= _LARGEST_ID
    if not is_number and (not isinstance(value, str) or is_blank(value)):
        raise ValueError(f"{where}: the id of a document must be a text or a whole number, got {shown(value)}.")
    return int(value) if is_number else str(check_sentence(value, where))


class ReadDocuments(NamedTuple):
    """N documents that have text.

    Attributes:
        ids: of each, as text.
        texts: of each, stripped; a title is its beginning.
        titles: of each; "" without one.
    """

    ids: list[str]
    texts: list[str]
    titles: list[str]

    def by_id(self) -> dict[str, str]:
        """Return the texts by id, as a search takes them."""
        return dict(zip(self.ids, self.texts, strict=True))


def read_documents(sources: Sources, *, column: str | None = None, require_ids: bool = False) -> ReadDocuments:
    """Read documents with their ids; of a folder in BEIR's layout, those of its ``corpus`` file.

    Args:
        sources: files, folders, patterns or data sets, as for :func:`~st_extras.text.stream_sentences`.
        column: column of the texts. None: the first of sentence, text, sentence1, content, contents that exists, with
            the column title before it.
        require_ids: refuse texts without ids, which are otherwise numbered from 0, empty ones counted.

    Returns:
        Ids, texts and titles. The id of a document stands in the column ``_id``, otherwise in corpus-id, document_id,
        doc_id, docid, pid or ``id``; that of a .md file is its path. Empty documents are left out; the log has their
        number, if they have ids.

    Raises:
        ValueError: as for ``stream_sentences``; or if an id stands twice, is missing where others have one, or is
            neither a string nor a whole number, or there is no document. The message names the file with its line.
    """
    return _read(source_names(sources), "document", text_columns(column, ("_id", *DOCUMENT_IDS, "id")), require_ids)


def read_queries(
    sources: Sources, *, column: str | None = None, require_ids: bool = False
) -> tuple[list[str], list[str]]:
    """Read queries with their ids; of a folder in BEIR's layout, those of its ``queries`` file.

    Arguments and errors are those of :func:`read_documents`; texts may also stand in a column query or question, ids in
    query-id, query_id or qid.

    Returns:
        Q ids, and Q texts, stripped.
    """
    chosen = []
    for source in source_names(sources):
        folder = find_search_folder(source)
        if folder is not None and folder.queries is None:
            raise ValueError(f"{source!r} must hold one queries file, got none.")
        chosen.append(source if folder is None else str(folder.queries))
    columns = text_columns(column, ("_id", *QUERY_IDS, "id"), QUERY_COLUMNS, "column (--query-column)")
    ids, texts, _ = _read(chosen, "query", columns, require_ids)
    return ids, texts


def check_id(value: Any, where: str, kind: str) -> str:
    """Return an id as text, without space around it: 3 and "3 " are the same.

    Raises:
        ValueError: if it is neither a string nor a whole number, or is empty; the message begins with ``where``.
    """
    if isinstance(value, bool) or not isinstance(value, str | Integral) or not str(value).strip():
        raise ValueError(f"{where}: the id of a {kind} must be a string or a whole number, got {shown(value)}.")
    return str(value).strip()


def _read(names: list[str], kind: str, columns: Mapping[str, Column], require_ids: bool) -> ReadDocuments:
    texts: dict[str, str] = {}
    titles: dict[str, str] = {}
    has_ids: bool | None = require_ids or None  # None: the first row decides
    empty = 0
    rows = (row for name in names for table in open_tables(name) for row in text_rows(table, columns))
    for number, (where, text, row) in enumerate(rows):
        key = row.get("id")
        has_ids = key is not None if has_ids is None else has_ids
        if has_ids != (key is not None):
            raise ValueError(
                f"{where}: each {kind} must have an id, in one of the columns {', '.join(columns['id'].usual)}."
            )
        identity = check_id(key if has_ids else number, where, kind)
        if identity in texts:
            raise ValueError(f"{where}: the id {identity!r} stands twice.")
        if is_blank(text):
            empty += has_ids
        else:
            texts[identity], titles[identity] = text.strip(), (row.get("title") or "").strip()
    if not texts:
        raise ValueError(f"{', '.join(map(repr, names)) or 'sources'} holds no {kind}.")
    if empty:
        logger.warning("%s: %d without text left out, %d read.", ", ".join(names), empty, len(texts))
    return ReadDocuments(list(texts), list(texts.values()), list(titles.values()))
