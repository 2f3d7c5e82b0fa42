"""``st-extras search``: search documents by an encoder and BM25 together."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from st_extras.checks import argument_called, counted
from st_extras.cli import options
from st_extras.cli.console import print_json, print_line, shows_bars, table_console

if TYPE_CHECKING:
    from st_extras.search import Hit, HybridSearch
    from st_extras.text.documents import Document, Scalar

_FEWEST_QUERIES = 20  # of a file, to find the weight from
_LONGEST_ID = 24  # characters of an id on a line
_BEGINNING = 40  # characters: a text is shown from before its first match, if that comes later
_LEAD = 10  # characters before it
_FEW_VALUES = 10  # of a field, in a message
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # also what reorders a line


def search(
    context: typer.Context,
    encoder: options.AnyEncoder,
    documents: Annotated[
        str,
        typer.Argument(
            help="What to search: a file (.txt, .md, .jsonl, .csv, .tsv, .parquet, .json; also .gz), a folder, a "
            "pattern or a data set id."
        ),
    ],
    query: Annotated[
        list[str] | None,
        typer.Argument(
            help='What to search for; none: asks, line by line. Put "--" before one that begins with "-".',
            callback=options.check_text,
        ),
    ] = None,
    more_documents: Annotated[
        list[str] | None,
        typer.Option("--documents", help="More to search, as DOCUMENTS; repeatable.", callback=options.find_texts),
    ] = None,
    queries: Annotated[str | None, typer.Option(help="File of queries, in place of QUERY.")] = None,
    top_k: Annotated[int, typer.Option(help="How many documents to show for a query.", min=1)] = 10,
    index: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps what was encoded, such as my-index.parquet: then only new and changed documents are "
            "encoded."
        ),
    ] = None,
    bm25_weight: Annotated[
        float | None,
        typer.Option(
            help="Weight of BM25 beside the encoder; default: that of --index, or found from queries or documents.",
            min=0,
        ),
    ] = None,
    passages: options.Passages = None,
    language: options.Language = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="FIELD=VALUE: search only in documents with this value, such as product=card; repeatable, all must "
            "hold."
        ),
    ] = None,
    query_prompt: options.QueryPrompt = None,
    document_prompt: options.DocumentPrompt = None,
    column: options.Column = None,
    whole_files: options.WholeFiles = False,
    query_column: options.QueryColumn = None,
    batch_size: options.EncodeBatch = 64,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Search documents by an encoder and BM25 together: score = encoder + weight x BM25.

    A title is read with its text. Of a long document, its best passage counts, and is shown. Words that match are
    marked, but for "the" and its like. Further columns of the documents are kept for --where.

    Example: st-extras search my-encoder documents.jsonl "how do I block a card" --index my-index.parquet
    """
    from st_extras.text.corpus import is_blank
    from st_extras.text.documents import read_documents, read_queries

    if query and queries is not None:
        raise ValueError("--queries does not go with QUERY: give one of them.")
    if queries is None:
        options.refuse_unread(context, "needs --queries", "query_column")
    options.check_index(index)
    if file := next((one for one in query or () if _is_file_like(one, documents)), None):
        raise ValueError(
            f"QUERY must be a text, got the file {file!r}: put a pattern in quotes, and give more documents by "
            "--documents, queries by --queries."
        )
    given = list(query or ()) if queries is None else [*read_queries(queries, column=query_column).values()]
    sources = [documents, *(more_documents or ())]
    read = read_documents(sources, column=column, whole_files=whole_files)
    among = _among(where or (), read)
    enough = queries is not None and len(set(given)) >= _FEWEST_QUERIES
    unlabelled = given if enough and bm25_weight is None else None  # from which the weight is found

    from st_extras.modules import load  # below: torch, which takes seconds
    from st_extras.search import HybridSearch
    from st_extras.search.parquet_file import resolved, stored_version

    is_new = False
    if index is not None:
        with argument_called("--index", "path"):
            is_new = stored_version(resolved(index)) is None
    model = load(encoder)
    options.set_prompts(model, query_prompt, document_prompt)
    show_progress_bar = shows_bars(quiet, as_json)
    if index is not None and not is_new:
        with argument_called("--index", "path"):
            found = HybridSearch.open(index, model, batch_size=batch_size)
        _check_made_with(found, index, passages, language)
        _follow(found, read, unlabelled, bm25_weight, show_progress_bar)
        _save(found, index)
    else:
        if unlabelled is None and bm25_weight is None:
            unlabelled = options.read_given_queries(None, sources)
        found = HybridSearch(
            model,
            read,
            queries=unlabelled,
            bm25_weight=bm25_weight,
            language=language,
            passages=options.passage_words(passages),
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
        )
        if index is not None:
            _save(found, index)
    if as_json and given:
        searches = [_as_json(query, hits) for query, hits in _find_each(found, given, top_k, among)]
        print_json({"documents": len(found.ids), "bm25_weight": found.bm25_weight, "searches": searches})
        return
    if not as_json:
        print_line(
            f"{counted(len(found.ids), 'document')}. Score: {found.model.similarity_fn_name} + "
            f"{found.bm25_weight:.4g} x BM25."
        )
        if is_new:
            _print_bound(found)
    for text, hits in _find_each(found, given or _read_lines(), top_k, among):
        if as_json:
            print_json(_as_json(text, hits))
        elif is_blank(text):
            print_line("A query without text finds nothing.")
        else:
            _print_hits(text, hits, found.model.similarity_fn_name)


def _is_file_like(query: str, documents: str) -> bool:
    """Return whether a query is a file with the ending of the documents, as where the shell has replaced a pattern."""
    ending = Path(query).suffix
    return ending != "" and ending == Path(documents).suffix and os.path.isfile(query)


def _save(found: HybridSearch, index: Path) -> None:
    try:
        found.save(index)
    except ValueError as error:  # it was a new file, or that of this search, when the command began
        raise ValueError(
            f"--index must not be written by another command at the same time, got {str(index)!r}: run this again."
        ) from error


def _among(conditions: Iterable[str], documents: Sequence[Document]) -> Callable[[Document], bool] | None:
    """Return which documents meet all conditions of ``--where``; None without any."""
    wanted: list[tuple[str, str]] = []
    fields = {field for document in documents for field in document.metadata} if conditions else set()
    for condition in conditions:
        field, sign, value = condition.partition("=")
        if not sign or field not in fields:
            named = f"one of the fields {', '.join(sorted(fields))}" if fields else "a field, and there is none"
            raise ValueError(f"--where must be FIELD=VALUE with {named}, got {condition!r}.")
        wanted.append((field, value))
    if not wanted:
        return None

    def meets_all(document: Document) -> bool:
        return all(_as_text(document.metadata.get(field)) == value for field, value in wanted)

    for field, value in wanted:
        values = {_as_text(document.metadata.get(field)) for document in documents}
        there = sorted(text for text in values if text is not None)
        if value not in there:
            more = f" and {len(there) - _FEW_VALUES:,} others" * (len(there) > _FEW_VALUES)
            listed = ", ".join(map(repr, there[:_FEW_VALUES])) + more
            print_line(f"--where {field}={value}: no document has this value, but {listed}.", to_stderr=True)
            return meets_all
    if not any(map(meets_all, documents)):
        print_line("--where: no document meets all conditions.", to_stderr=True)
    return meets_all


def _as_text(value: Scalar | None) -> str | None:
    """Return how a value of metadata is written in a condition and in JSON: true, 7, 2025-01-31."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value is None else str(value)


def _check_made_with(found: HybridSearch, index: Path, passages: int | None, language: str | None) -> None:
    """Refuse passages and a language that an index was not made with; None: those of the index."""
    if passages is not None and (passages or None) != found.passages:
        raise ValueError(
            f"--passages must be {found.passages or 0}, as {str(index)!r} was made with, got {passages}: take a "
            "new file for --index."
        )
    if language not in (None, found.language):
        made_with = "be left out" if found.language is None else f"be {found.language!r}"
        raise ValueError(
            f"--language must {made_with}, as {str(index)!r} was made, got {language!r}: take a new file for --index."
        )


def _follow(
    found: HybridSearch,
    documents: Sequence[Document],
    queries: Sequence[str] | None,
    weight: float | None,
    show_progress_bar: bool,
) -> None:
    """Let the search of an index follow the documents and the weight that was asked for, and say what changed."""
    if queries is not None and found.weight_source == "given":
        print_line(f"The weight {found.bm25_weight:.4g} of an earlier --bm25-weight stays.", to_stderr=True)
        queries = None
    counts = found.update(documents, queries=queries, bm25_weight=weight, show_progress_bar=show_progress_bar)
    if counts.encoded or counts.dropped:
        print_line(str(counts), to_stderr=True)


def _print_bound(found: HybridSearch) -> None:
    """Print above which similarity few unrelated documents lie, if there are enough documents to know."""
    try:
        bound = found.unrelated_similarity()
    except ValueError:  # too few pairs
        return
    print_line(
        f"1 in 1,000 pairs of a query and an unrelated document have a {found.model.similarity_fn_name} above "
        f"{bound:.3f}: a hit below it may be no answer."
    )


def _read_lines() -> Iterator[str]:
    """Yield the queries that stand on stdin, a line each, in UTF-8; on a terminal, ask for each."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if terminal:
        print_line("A query a line; Ctrl-D ends.", to_stderr=True)
    elif isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf8", errors="surrogateescape")  # which valid_text refuses by name
    while sys.stdin is not None:
        if terminal:
            typer.echo("query> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if query := options.valid_text("stdin", line).strip():
            yield query


def _find_each(
    found: HybridSearch, queries: Iterable[str], top_k: int, among: Callable[[Document], bool] | None
) -> Iterator[tuple[str, list[Hit]]]:
    """Yield each query with its hits, best first; queries of a list are encoded together."""
    batches: Iterable[list[str]] = [queries] if isinstance(queries, list) else ([query] for query in queries)
    for batch in batches:
        yield from zip(batch, found.search(batch, top_k, among=among), strict=True)


def _as_json(query: str, hits: Sequence[Hit]) -> dict[str, Any]:
    rows = [
        {
            "rank": rank,
            "id": str(hit["corpus_id"]),
            **{key: round(hit[key], 6) for key in ("score", "dense", "bm25")},
            **{key: hit[key] for key in ("title", "text", "matches")},
            "metadata": {
                field: _as_text(value) if isinstance(value, date) else value for field, value in hit["metadata"].items()
            },
        }
        for rank, hit in enumerate(hits, start=1)
    ]
    return {"query": query, "hits": rows}


def _print_hits(query: str, hits: Sequence[Hit], similarity: str) -> None:
    """Print the documents of a query as a table as wide as the terminal: texts are cut, ids go on on the next line.

    Args:
        query: its title.
        hits: its rows, best first.
        similarity: what the encoder's side of the score is called, "cosine" or "dot".
    """
    console = table_console()
    title = Text(_CONTROL.sub(" ", query))
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, expand=True)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column(similarity, justify="right", no_wrap=True)
    table.add_column("id", overflow="fold", max_width=_LONGEST_ID)
    table.add_column("text", no_wrap=True, ratio=1)
    for rank, hit in enumerate(hits, start=1):
        key = Text(_CONTROL.sub(" ", str(hit["corpus_id"])))
        table.add_row(str(rank), f"{hit['score']:.4f}", f"{hit['dense']:.3f}", key, _marked(hit, console.is_terminal))
    console.print(table)


def _marked(hit: Hit, terminal: bool) -> Text:
    """Return title and passage on one line with the words of the query in bold, in files between asterisks."""
    text = _CONTROL.sub(" ", hit["text"])  # as long as before
    first = min((begin for begin, _ in hit["matches"]), default=0)
    start = first - _LEAD if first > _BEGINNING else len(text) - len(text.lstrip())
    title = _CONTROL.sub(" ", hit["title"])
    shown = Text(f"{title}{' ' if title else ''}{'…' if first > _BEGINNING else ''}")
    for begin, end in hit["matches"]:
        shown.append(text[start:begin])
        shown.append(text[begin:end] if terminal else f"*{text[begin:end]}*", "bold green" if terminal else "")
        start = end
    return shown.append(text[start:])
