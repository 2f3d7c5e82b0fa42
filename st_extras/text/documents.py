"""Documents and queries with their ids, for search; a title is part of its document, as in BEIR and MTEB."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

from st_extras.checks import shown
from st_extras.text.corpus import Sources, is_blank, source_names, text_rows
from st_extras.text.folders import find_search_folder
from st_extras.text.tables import DOCUMENT_IDS, QUERY_COLUMNS, QUERY_IDS, Column, open_tables, text_columns

logger = logging.getLogger(__name__)


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
