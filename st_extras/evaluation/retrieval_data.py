"""Search collections: queries, documents and which are relevant, read from BEIR's layout or made of question pairs."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from st_extras.checks import check_instance, shown
from st_extras.text.corpus import Sources, check_sentence, is_blank
from st_extras.text.documents import Document, as_documents, read_documents, read_queries, text_id
from st_extras.text.files import file_kind, read_lines
from st_extras.text.folders import TABLES, find_file, find_judgements
from st_extras.text.tables import DOCUMENT_IDS, QUERY_IDS, Column, Rows, Table, open_file, read_number

logger = logging.getLogger(__name__)

_GRADE = Column(
    ("score", "relevance", "grade", "label", "rating", "rel", "gain", "judgement", "judgment", "relevancy", "qrel"),
    remedy="name the column of grades so, or leave all but two columns out if each row is relevant",
    optional_up_to=2,
)
"""Without it, all documents in a file of two columns are relevant."""
_JUDGEMENT_COLUMNS = {
    "query": Column((*QUERY_IDS, "query", "topic")),
    "document": Column((*DOCUMENT_IDS, "document", "cid")),
    "grade": _GRADE,
}
"""Columns of a file of judgements."""
_JUDGED_QUERY_COLUMNS = {
    "query": Column(("query", "question")),
    "document": Column((*DOCUMENT_IDS, "id")),
    "grade": _GRADE,
}
"""Columns of a file of queries with their judgements."""
_WITHOUT_HEADER = {3: ("query", "document", "grade"), 4: ("query", "iteration", "document", "grade")}
"""Columns of a file of judgements whose first row is no header: BEIR's, and TREC's."""
_SEPARATORS = ("\t", None, ",", ";", "|")  # of the fields of such a row; None: space


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, documents, and which documents are relevant to a query, by id.

    It may be made of what Sentence Transformers, BEIR and MTEB hold: ids that are whole numbers become text, and
    relevant documents without grades (a set, a list or a single id) get the grade 1. Grades of 0 and below mean that a
    document is not relevant. Judgements of a query or document that is not there are left out, and counted in the log.

    Attributes:
        queries: id -> query.
        documents: id -> text. A question that is also a query has the same id in both.
        relevant: query id -> document id -> grade, above 0. A query may have none: it is then not scored.

    Raises:
        ValueError: if one of the three has another shape, an id stands twice, a text is none, a grade is no finite
            number, most judgements are of queries or documents that are not there, or no query has a relevant document.

    Example:
        >>> from st_extras.evaluation import RetrievalTask
        >>> RetrievalTask({1: "my card was stolen"}, {7: "A lost card is blocked.", 8: "A loan."}, {1: {7}}).relevant
        {'1': {'7': 1.0}}
    """

    queries: dict[str, str]
    documents: dict[str, str]
    relevant: dict[str, dict[str, float]]

    def __post_init__(self) -> None:
        for name, kind in (("queries", "query"), ("documents", "document")):
            texts = as_documents(_by_id(name, getattr(self, name), kind), name)
            object.__setattr__(self, name, _texts_by_id(texts))
        relevant: dict[str, dict[str, float]] = {}
        total, dangling = 0, []
        for query, judged in _by_id("relevant", self.relevant, "query").items():
            for document, grade in _graded(f"relevant[{query!r}]", judged).items():
                if grade > 0:
                    total += 1
                    if query in self.queries and document in self.documents:
                        relevant.setdefault(query, {})[document] = grade
                    else:
                        dangling.append(document if query in self.queries else query)
        if 2 * len(dangling) > total:
            raise ValueError(
                f"relevant must hold ids of queries and documents that are there, got {len(dangling)} of {total} "
                f"judgements with others, such as {dangling[0]!r}: a query is {shown(next(iter(self.queries), None))}, "
                f"a document {shown(next(iter(self.documents), None))}."
            )
        if not relevant:
            raise ValueError("relevant must hold at least one query with a relevant document, got none.")
        if dangling:
            logger.warning(
                "Judgements of a query or document that is not there are left out: %d of %d, such as %r.",
                *(len(dangling), total, dangling[0]),
            )
        object.__setattr__(self, "relevant", relevant)

    def own_documents(self) -> frozenset[str]:
        """Return the ids of the queries that stand among the documents, as in ArguAna and Quora.

        A document is a query's own if it has its id and holds its text, and is not judged relevant to it. Collections
        that number queries and documents apart have equal ids of unlike texts.
        """

        def holds(key: str, query: str) -> bool:
            return " ".join(query.split()) in " ".join(self.documents[key].split())

        both = {key: query for key, query in self.queries.items() if key in self.documents}
        return frozenset(k for k, query in both.items() if k not in self.relevant.get(k, {}) and holds(k, query))


def _by_id(name: str, mapping: Any, kind: str) -> dict[str, Any]:
    """Return a dictionary with its ids as text."""
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{name} must be a dict by id, got {shown(mapping)}.")
    keys = [text_id(key, name, kind) for key in mapping]
    if twice := [key for key, count in Counter(keys).items() if count > 1]:
        raise ValueError(f"{name} must hold each id once, got {twice[0]!r} twice, as text and as a number.")
    return dict(zip(keys, mapping.values(), strict=True))


def _texts_by_id(documents: Iterable[Document]) -> dict[str, str]:
    return {str(one.id): one.full_text for one in documents}


def _graded(where: str, relevant: Any) -> dict[str, float]:
    """Return document id -> grade of what is relevant to a query: grades by id, several ids, or one."""
    if not isinstance(relevant, Mapping):
        several = relevant if isinstance(relevant, set | frozenset | list | tuple) else [relevant]
        return {text_id(key, where, "document"): 1.0 for key in several}
    grades = _by_id(where, relevant, "document")
    return {key: read_number(grade, f"{where}[{key!r}]", "grade") for key, grade in grades.items()}


def load_retrieval(folder: str | PathLike[str], split: str | None = None) -> RetrievalTask:
    """Read a search collection in BEIR's layout: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``.

    ``corpus`` and ``queries`` may be .jsonl, .csv, .tsv (also .gz) or .parquet files with the columns ``_id`` (or
    ``id``), ``text`` and, for documents, ``title``, which is put before the text. ``qrels`` may be such a file too,
    with the columns ``query-id``, ``corpus-id`` and ``score`` (also ``relevance``, ``grade``, ``label``, ``rating``,
    ``rel`` or ``gain``; without such a column, it has the other two alone, and all are relevant); or have no header,
    with query, document and grade in each line, or, as in TREC's files, query, anything, document and grade.

    Files that editors leave behind (``test.tsv~``) are not read. Documents and queries without text are left out, as
    are judgements of what is not there; the log has their numbers.

    Args:
        folder: holds the files.
        split: which file of ``qrels/``, by its name without ending. None: the only one, or "test".

    Raises:
        ValueError: if a file or column is missing, two files could be meant, an id stands twice, a judgement
            contradicts another one or has a grade that is no finite number, most judgements are of what is not there,
            or no document is relevant to any query. The message names the file, and the line if it is one.

    Example:
        >>> from pathlib import Path
        >>> from st_extras.evaluation import load_retrieval
        >>> Path("faq").mkdir()
        >>> _ = Path("faq/corpus.csv").write_text("id,title,text\\n7,Cards,A lost card is blocked at once.\\n")
        >>> _ = Path("faq/queries.csv").write_text("id,text\\na,my card was stolen\\n")
        >>> _ = Path("faq/qrels.txt").write_text("a 0 7 1\\n")
        >>> load_retrieval("faq").relevant
        {'a': {'7': 1.0}}
    """
    check_instance("split", split, str, or_none=True)
    root = Path(folder)
    if not str(folder) or not root.is_dir():
        raise ValueError(f"There is no folder of a search collection {str(folder)!r}.")
    documents = read_documents(find_file(root, "corpus", TABLES), remedy="", require_ids=True)
    queries = read_queries(find_file(root, "queries", TABLES), remedy="", require_ids=True)
    file = _judgement_file(root, split)
    table, taken_for = _open_judgements(file)
    try:
        judged = _by_query((where, text_id(row["query"], where, "query").strip(), row) for where, row in table.rows())
        return RetrievalTask(queries, _texts_by_id(documents), judged)
    except ValueError as error:
        place = "" if str(error).startswith(str(file)) else f"{file}: "
        raise ValueError(f"{place}{str(error).removesuffix('.')}{taken_for}.") from None


def load_judged(sources: Sources, judged: str | PathLike[str], *, whole_files: bool = False) -> RetrievalTask:
    """Load a search collection of your own: documents, and one file of judged queries.

    Args:
        sources: files, folders or patterns of documents with ids, as for ``st-extras search``.
        judged: a table, such as .tsv or .jsonl, with the columns ``query`` (its text), ``id`` (of a document; also
            ``corpus-id`` or ``doc_id``) and, if wanted, ``grade`` (also ``score``, ``relevance``, ``label``,
            ``rating``, ``rel`` or ``gain``; above 0: relevant). A file without grades has the other two columns alone.
            A query with several relevant documents has a row for each.
        whole_files: a .txt file is one document, and its path the id.

    Raises:
        ValueError: if a file, a column or an id is missing, a document is judged twice for a query with different
            grades, or no document is relevant to any query.
    """
    texts = _texts_by_id(read_documents(sources, remedy="", require_ids=True, whole_files=whole_files))
    rows = open_file(judged, _JUDGED_QUERY_COLUMNS, other=".tsv").rows()
    relevant = _by_query((where, _check_query(row["query"], where), row) for where, row in rows)
    if not relevant:
        raise ValueError(f"{judged} must have a header, such as query and id, and rows below it, got no row.")
    try:
        return RetrievalTask({query: query for query in relevant}, texts, relevant)
    except ValueError as error:
        raise ValueError(f"{judged}: {error}") from None


def _check_query(value: Any, where: str) -> str:
    """Return the text of a query, stripped.

    Raises:
        ValueError: if it is no valid text, or blank; the message begins with ``where``.
    """
    if is_blank(text := check_sentence(value, where)):
        raise ValueError(f"{where}: a query must have text, got {value!r:.80}: leave its row out.")
    return text.strip()


def _by_query(rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> dict[str, dict[str, float]]:
    """Return query -> document id -> grade of judgements: place, query, and the row with document and grade."""
    judged: dict[str, dict[str, float]] = {}
    for where, query, row in rows:
        if row["document"] is None and row.get("grade") is None:
            raise ValueError(
                f"{where}: the id of a document is missing, as its row has {shown(query)} alone: fill it, or separate "
                "the fields as in the first line."
            )
        document = text_id(row["document"], where, "document").strip()  # 3 and "3 " are the same in files
        grade = read_number(row.get("grade", 1), where, "grade")
        if (before := judged.setdefault(query, {}).setdefault(document, grade)) != grade:
            raise ValueError(f"{where}: {document!r} is judged twice for {query!r}, by {before:g} and by {grade:g}.")
    return judged


def _open_judgements(file: Path) -> tuple[Table, str]:
    """Return the table of a file of judgements, and, for messages, what its columns were taken for without a header."""
    if file_kind(file)[0] == ".parquet":
        return open_file(file, _JUDGEMENT_COLUMNS), ""
    number, first = next(((number, line) for number, line in read_lines(file) if line.strip()), (0, ""))
    for between in _SEPARATORS:
        fields = first.split(between)
        if (names := _WITHOUT_HEADER.get(len(fields), ())) and _reads_as_number(fields[-1]):
            taken_for = f" (its columns, which no header names, were read as {', '.join(names[:-1])} and {names[-1]})"
            return Table(str(file), _JUDGEMENT_COLUMNS, partial(_split_rows, names=names)), taken_for
    header = first.split()
    if not {*first} & {*"\t,;|"} and all(_JUDGEMENT_COLUMNS[key].found_in(header) for key in ("query", "document")):
        return Table(str(file), _JUDGEMENT_COLUMNS, partial(_split_rows, names=header, skipped=number)), ""
    return open_file(file, _JUDGEMENT_COLUMNS, other=".tsv"), ""


def _split_rows(table: Table, names: Sequence[str], skipped: int = 0) -> Rows:
    """Yield the rows below the first lines, whose fields one of _SEPARATORS separates, and none has quotes."""
    lines = ((number, line.strip()) for number, line in read_lines(table.name) if number > skipped and line.strip())
    between: str | None = None
    for row, (number, line) in enumerate(lines):
        if row == 0:
            between = next((sign for sign in _SEPARATORS if len(line.split(sign)) == len(names)), None)
        fields = (field.strip() for field in line.split(between, len(names) - 1))
        yield f"{table.name}, line {number}", dict.fromkeys(names) | dict(zip(names, fields, strict=False))


def _reads_as_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _judgement_file(root: Path, split: str | None) -> Path:
    """Return the file of judgements of a split; without one, the only file, or that of the test split."""
    files = find_judgements(root)
    chosen = next(iter(files)) if split is None and len(files) == 1 else split or "test"
    if chosen not in files:
        raise ValueError(
            f"{str(root)!r} must hold the judgements qrels/{chosen}.tsv or qrels.tsv, got "
            f"{', '.join(files) or 'none'}{': name one of these as split' if files else ''}."
        )
    return files[chosen]
