"""Documents and queries with their ids, for search; a title is part of its document, as in BEIR and MTEB."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from numbers import Integral
from os import PathLike
from typing import Any

from st_extras.checks import shown
from st_extras.text.columns import TextColumns
from st_extras.text.corpus import check_sentence, is_blank
from st_extras.text.files import MAX_LINE
from st_extras.text.folders import find_search_folder
from st_extras.text.sources import open_sources

DOCUMENT_IDS = ("corpus-id", "corpus_id", "document_id", "doc_id", "docid", "pid")
"""Usual names of the column of a document's id in a file of judgements."""
QUERY_IDS = ("query-id", "query_id", "qid")
"""The same of a query's id."""

Sources = str | PathLike[str] | Iterable[str | PathLike[str]]
logger = logging.getLogger(__name__)


def read_documents(
    sources: Sources, *, column: str | None = None, max_line: int = MAX_LINE, require_ids: bool = False
) -> tuple[list[str], list[str]]:
    """Read documents with their ids; of a folder in BEIR's layout, those of its ``corpus`` file.

    Args:
        sources: files, folders, patterns or data sets, as for :func:`~st_extras.text.stream_sentences`.
        column: column of the texts. None: the first of sentence, text, sentence1, content, contents that exists, with
            the column title before it.
        max_line: longest line of a local text file allowed, in bytes.
        require_ids: refuse texts without ids, which are otherwise numbered from 0.

    Returns:
        N ids, and N texts, stripped. The id of a document stands in the column ``_id``, otherwise in corpus-id,
        document_id, doc_id, docid, pid or ``id``. Empty documents are left out; the log has their number.

    Raises:
        ValueError: as for ``stream_sentences``; or if an id stands twice, is missing where others have one, or is
            neither a string nor a whole number, or there is no document. The message names the file with its line.
    """
    return _read_identified(
        _source_list(sources), "document", TextColumns(column, ("_id", *DOCUMENT_IDS, "id")), max_line, require_ids
    )


def read_queries(
    sources: Sources, *, column: str | None = None, max_line: int = MAX_LINE, require_ids: bool = False
) -> tuple[list[str], list[str]]:
    """Read queries with their ids; of a folder in BEIR's layout, those of its ``queries`` file.

    Arguments, result and errors are those of :func:`read_documents`; ids may also stand in query-id, query_id or qid.
    """
    chosen = []
    for source in _source_list(sources):
        folder = find_search_folder(source)
        if folder is not None and folder.queries is None:
            raise ValueError(f"{source!r} must hold one queries file, got none.")
        chosen.append(source if folder is None else str(folder.queries))
    return _read_identified(chosen, "query", TextColumns(column, ("_id", *QUERY_IDS, "id")), max_line, require_ids)


def check_id(value: Any, where: str, kind: str) -> str:
    """Return an id as text, without space around it: 3 and "3 " are the same.

    Raises:
        ValueError: if it is neither a string nor a whole number, or is empty; the message begins with ``where``.
    """
    if isinstance(value, bool) or not isinstance(value, str | Integral) or not str(value).strip():
        raise ValueError(f"{where}: the id of a {kind} must be a string or a whole number, got {shown(value)}.")
    return str(value).strip()


def _read_identified(
    names: list[str], kind: str, columns: TextColumns, max_line: int, require_ids: bool
) -> tuple[list[str], list[str]]:
    texts: dict[str, str] = {}
    has_ids: bool | None = require_ids or None  # None: the first row decides
    empty = 0
    for where, key, text in (
        row for name in names for one in open_sources(name, columns, max_line) for row in one.texts
    ):
        has_ids = key is not None if has_ids is None else has_ids
        if has_ids != (key is not None):
            usual = ", ".join(columns.ids)
            raise ValueError(f"{where}: each {kind} must have an id, in one of the columns {usual}.")
        identity = check_id(key if has_ids else len(texts), where, kind)
        if identity in texts:
            raise ValueError(f"{where}: the id {identity!r} stands twice.")
        if is_blank(check_sentence(text, where)):
            empty += has_ids
        else:
            texts[identity] = text.strip()
    if not texts:
        raise ValueError(f"{', '.join(map(repr, names)) or 'sources'} holds no {kind}.")
    if empty:
        logger.warning("%s: %d without text left out, %d read.", ", ".join(names), empty, len(texts))
    return list(texts), list(texts.values())


def _source_list(sources: Sources) -> list[str]:
    return [str(source) for source in ([sources] if isinstance(sources, str | PathLike) else sources)]
