"""``st-extras search``: search documents by an encoder and BM25 together."""

from __future__ import annotations

import io
import itertools
import sys
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from unicodedata import category

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from st_extras.checks import counted
from st_extras.cli import options
from st_extras.cli.console import print_json, print_line, shows_bars, table_console

if TYPE_CHECKING:
    from st_extras.search import Hit, HybridSearch
    from st_extras.text.documents import Document

_FEWEST_QUERIES = 20  # of a file, to find the weight from
_SNIPPET = 300  # characters of a document that JSON shows
_SHOWN = 20_000  # characters of a document in which matching words are looked for
_LEAD = 10  # characters shown before the first matching word, where a text is cut at its beginning
_LONGEST_ID = 24  # characters of an id on a line
_REORDERING = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))  # Unicode's explicit directions
_BETWEEN = 13  # columns of the terminal beside the cells of a table


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
    queries: Annotated[str | None, typer.Option(help="File of queries, in place of QUERY.")] = None,
    top_k: Annotated[int, typer.Option(help="How many documents to show for a query.", min=1)] = 10,
    index: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps what was encoded, such as my-index.sqlite: then only new and changed documents are "
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
    query_prompt: options.QueryPrompt = None,
    document_prompt: options.DocumentPrompt = None,
    column: options.Column = None,
    query_column: options.QueryColumn = None,
    batch_size: options.EncodeBatch = 64,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Search documents by an encoder and BM25 together: score = encoder + weight x BM25.

    A title is read with its text. Of a long document, its best passage counts, and is shown. Words that match are
    marked, but for "the" and its like. --language needs the extra "search".

    Example: st-extras search my-encoder documents.jsonl "how do I block a card" --index my-index.sqlite
    """
    from st_extras.text.corpus import is_blank
    from st_extras.text.documents import read_documents, read_queries

    if query and queries is not None:
        raise ValueError("--queries does not go with QUERY: give one of them.")
    if queries is None:
        options.refuse_unread(context, "needs --queries", "query_column")
    options.check_index(index)
    given = list(query or ()) if queries is None else [*read_queries(queries, column=query_column).values()]
    read = read_documents(documents, column=column)
    enough = queries is not None and len(set(given)) >= _FEWEST_QUERIES
    unlabelled = given if enough and bm25_weight is None else None  # from which the weight is found

    from st_extras.modules import load  # below: torch, which takes seconds
    from st_extras.search import HybridSearch
    from st_extras.search.index import check_index_path

    if index is not None:
        check_index_path(index)
    model = load(encoder)
    options.set_prompts(model, query_prompt, document_prompt)
    show_progress_bar = shows_bars(quiet, as_json)
    if index is not None and index.exists() and index.stat().st_size:
        found = HybridSearch.open(index, model, batch_size=batch_size)
        _check_made_with(found, index, passages, language)
        _follow(found, read, unlabelled, bm25_weight, show_progress_bar)
    else:
        if unlabelled is None and bm25_weight is None:
            unlabelled = options.read_given_queries(None, [documents])
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
            found.save(index)
    if as_json and given:
        searches = [_as_json(query, hits, found.language) for query, hits in _find_each(found, given, top_k)]
        print_json({"documents": len(found.ids), "bm25_weight": found.bm25_weight, "searches": searches})
        return
    if not as_json:
        print_line(
            f"{counted(len(found.ids), 'document')}. Score: {found.model.similarity_fn_name} + "
            f"{found.bm25_weight:.4g} x BM25."
        )
    for text, hits in _find_each(found, given or _read_lines(), top_k):
        if as_json:
            print_json(_as_json(text, hits, found.language))
        elif is_blank(text):
            print_line("A query without text finds nothing.")
        else:
            _print_hits(text, hits, found.language)


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
    same = {document.id: document for document in found.documents} == {document.id: document for document in documents}
    if same and queries is None and weight in (None, found.bm25_weight):
        return  # without a change, a file that is write-protected will do
    counts = found.update(documents, queries=queries, bm25_weight=weight, show_progress_bar=show_progress_bar)
    if not same:
        print_line(str(counts), to_stderr=True)


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


def _find_each(found: HybridSearch, queries: Iterable[str], top_k: int) -> Iterator[tuple[str, list[Hit]]]:
    """Yield each query with its hits, best first; queries of a list are encoded together."""
    batches: Iterable[list[str]] = [queries] if isinstance(queries, list) else ([query] for query in queries)
    for batch in batches:
        yield from zip(batch, found.search(batch, top_k), strict=True)


def _as_json(query: str, hits: Sequence[Hit], language: str | None) -> dict[str, Any]:
    rows = [
        {
            "rank": rank,
            "score": round(hit["score"], 6),
            "id": str(hit["corpus_id"]),
            "title": hit["title"],
            "snippet": _snippet(hit["text"], query, language),
        }
        for rank, hit in enumerate(hits, start=1)
    ]
    return {"query": query, "hits": rows}


def _print_hits(query: str, hits: Sequence[Hit], language: str | None) -> None:
    """Print the documents of a query as a table as wide as the terminal: texts are cut, ids go on on the next line."""
    console = table_console()
    cells = [
        (str(rank), f"{hit['score']:.4f}", str(hit["corpus_id"]), f"{hit['title']} {hit['text'].strip()}".strip())
        for rank, hit in enumerate(hits, start=1)
    ]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(("#", "score", "id"))]
    widths[2] = min(widths[2], _LONGEST_ID)
    width = max(1, console.width - sum(widths) - _BETWEEN)
    table = Table(title=Text(_without_controls(query)), title_justify="left", box=box.SIMPLE_HEAD, expand=True)
    table.add_column("#", justify="right", width=widths[0])
    table.add_column("score", justify="right", width=widths[1])
    table.add_column("id", overflow="fold", width=widths[2])
    table.add_column("text", no_wrap=True, ratio=1)
    for rank, score, key, text in cells:
        shown = _marked(text, query, width, console.is_terminal, language)
        table.add_row(rank, score, Text(_without_controls(key)), shown)
    console.print(table)


def _marked(text: str, query: str, width: int, terminal: bool, language: str | None = None) -> Text:
    """Return the text on one line with the words of the query in bold, in files between asterisks."""
    line = _without_controls(text[:_SHOWN])
    start, spans = _best_window(line, query, width, language)
    shown = Text("…" if start else "")
    for first, last in spans:
        shown.append(line[start:first])
        shown.append(line[first:last] if terminal else f"*{line[first:last]}*", "bold green" if terminal else "")
        start = last
    return shown.append(line[start:])


def _snippet(text: str, query: str, language: str | None) -> str:
    """Return the part of a text on one line where most different words of the query stand."""
    line = _without_controls(text[:_SHOWN])
    start, _ = _best_window(line, query, _SNIPPET, language)
    end = start + _SNIPPET
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _best_window(line: str, query: str, width: int, language: str | None) -> tuple[int, list[tuple[int, int]]]:
    """Return where most different words of the query stand within ``width``, and the words from there on.

    They are those that BM25 matches; English stop words do not count if the query has other words.
    """
    from st_extras.text.term_weights import matching_spans, search_words
    from st_extras.text.words import english_stop_words

    words = {*search_words(query, language)}
    spans = matching_spans(line, words - english_stop_words() or words, language)

    def words_from(start: int) -> int:
        inside = itertools.takewhile(lambda span: span[1] <= start + width, spans[bisect(spans, (start, 0)) :])
        return len({line[first:last].casefold() for first, last in inside})

    lead = min(_LEAD, width // 4)
    start = max([0, *(max(0, first - lead) for first, _ in spans)], key=words_from)  # of equal ones, the first
    return start, [span for span in spans if span[0] >= start]


def _without_controls(text: str) -> str:
    """Return the text without line breaks and other control codes, nor those that reorder what follows them."""
    return " ".join(
        "".join(" " if category(sign) in ("Cc", "Cs") else sign for sign in text.translate(_REORDERING)).split()
    )
