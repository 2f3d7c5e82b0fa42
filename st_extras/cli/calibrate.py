"""``st-extras calibrate``: where to put a threshold on cosines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras.checks import check_interval
from st_extras.cli import options
from st_extras.cli.adapt import threshold_line
from st_extras.cli.console import print_json, print_line, print_table, shows_bars
from st_extras.cli.evaluate import load_any

_TEXTS = 2000


def calibrate(
    context: typer.Context,
    encoder: options.AnyEncoder,
    text: options.Text,
    queries: Annotated[
        list[str] | None,
        typer.Option(help="File of queries to compare with TEXT, the documents; repeatable."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            help="Encoder to compare with, such as the one that ENCODER was made from.", callback=options.find_encoders
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="File of a picture to write, such as cosines.png; needs the extra plot."),
    ] = None,
    threshold: options.Threshold = None,
    column: options.Column = None,
    query_column: options.QueryColumn = None,
    prompt: options.Prompt = None,
    batch_size: options.EncodeBatch = 32,
    seed: options.DrawSeed = 42,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Show above which cosine few pairs of unrelated texts lie: where to put a threshold.

    All pairs of 2,000 of the texts, sampled at random, are compared; nearly all such pairs are unrelated. An encoder
    with routes for queries and documents, as adapt-search saves it, compares queries with documents: those of
    --queries or of a folder in BEIR's layout, otherwise sentences of the documents.

    Example: st-extras calibrate adapted texts.txt --before demo
    """
    from st_extras.adaptation.corpus import sample_texts
    from st_extras.encoders.structure import has_search_routes
    from st_extras.evaluation.unrelated_pairs import encode_pairs
    from st_extras.files import whole_file
    from st_extras.plots import new_axes, plot_unrelated_cosines
    from st_extras.text import corpus

    options.check_column(context, text)
    if not queries:
        options.refuse_unread(context, "needs --queries", "query_column")
    if threshold is not None:
        check_interval("threshold", threshold, -1, 1)
    if before is None:
        options.refuse_unread(context, "needs --before", "threshold")
    texts = sample_texts(corpus.stream_sentences(text, column=column), _TEXTS, seed, "text").texts
    axes: Any = None if picture is None else new_axes()  # what is wrong with it is known before anything is encoded
    if picture is not None:
        _check_picture(picture, axes.figure.canvas.get_supported_filetypes())
    paths = {"after": encoder} if before is None else {"before": before, "after": encoder}
    searched, origin = _queries(queries, query_column, text, texts) if queries else (None, "")
    models = {name: load_any(path) for name, path in paths.items()}
    if searched is None and any(map(has_search_routes, models.values())):
        searched, origin = _queries([], query_column, text, texts)
    if searched is not None:
        options.refuse_unread(context, "is not for queries and documents, which have their own", "prompt")
    bar = shows_bars(quiet, as_json)
    pairs = encode_pairs(models, texts, searched, prompt=prompt, batch_size=batch_size, show_progress_bar=bar)
    found, count = pairs.cosines(), len(pairs.texts["after"])
    moved = None if threshold is None else pairs.moved_threshold(threshold)
    about: dict[str, Any] = {"texts": count}
    compared, what = f"{count:,} different texts compared with each other.", "texts"
    if pairs.queries is not None:
        about = {"documents": count, "queries": len(pairs.queries["after"]), "queries from": origin}
        compared = f"{about['queries']:,} queries ({origin}) compared with {count:,} documents."
        what = "queries and documents"
    if picture is not None:
        drawn, sides = pairs.texts, pairs.queries
        if before is None:
            drawn, sides = {encoder: drawn["after"]}, sides and {encoder: sides["after"]}
        plot_unrelated_cosines(drawn, queries=sides, related=pairs.related, ax=axes)
        with whole_file(picture) as partial:
            axes.figure.savefig(partial, format=picture.suffix[1:] or "png", dpi=150)
    if as_json:
        keys = ("cosine", "low", "high")
        named = {name: {n: dict(zip(keys, ends, strict=True)) for n, ends in of.items()} for name, of in found.items()}
        found_threshold = {} if moved is None else {"threshold": asdict(moved)}
        print_json(about | {"cosines": named.pop("after")} | named | found_threshold)
        return
    print_line(compared)
    for name, marks in found.items():
        lines = [[f"1 in {n:,}", f"{value:.3f}", f"{low:.3f} to {high:.3f}"] for n, (value, low, high) in marks.items()]
        print_table(f"Cosines of pairs of {what}, {paths[name]}", ["pairs above", "cosine", "95 % interval"], lines)
    if moved is not None:
        print_line(threshold_line(moved))


def _queries(
    files: Sequence[str], column: str | None, text: Sequence[str], documents: list[str]
) -> tuple[list[str], str]:
    """Return queries, and where they are from: the files given, a folder in BEIR's layout, or the documents."""
    from st_extras.adaptation.pseudo_relevance import search_queries
    from st_extras.text.documents import read_queries
    from st_extras.text.folders import find_search_folder

    folders = [source for source in text if (folder := find_search_folder(source)) is not None and folder.queries]
    sources = files or folders
    given = [*read_queries(sources, column=column).values()] if sources else None
    return search_queries(given, documents), ", ".join(sources) or "sentences of the documents"


def _check_picture(picture: Path, kinds: dict[str, str]) -> None:
    if picture.exists() or not picture.absolute().parent.is_dir():
        raise ValueError(f"--picture must be a new file in an existing folder, got {str(picture)!r}.")
    if (picture.suffix[1:] or "png") not in kinds:
        raise ValueError(f"--picture must end in one of .{', .'.join(kinds)}, got {str(picture)!r}.")
