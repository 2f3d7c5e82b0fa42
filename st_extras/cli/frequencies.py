"""``st-extras frequencies``: token counts of a corpus, for SLT-FAI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from st_extras.cli.console import print_json
from st_extras.cli.options import FRACTION, LONGEST_LINE, PROCESSES, Column, Json, MaxLine, Quiet

if TYPE_CHECKING:
    from st_extras.text.frequency import FrequencyTable

frequencies_app = typer.Typer(help="Count the tokens of a corpus, for slt-fai.", no_args_is_help=True)


def load_frequencies(source: str, tokenizer: Any) -> FrequencyTable:
    """Return the table of a file, or of ``wordfreq:LANGUAGE``."""
    from st_extras.text.frequency import FrequencyTable

    if source.startswith("wordfreq:"):
        return FrequencyTable.from_wordfreq(tokenizer, source.removeprefix("wordfreq:"))
    return FrequencyTable.from_file(source, tokenizer)


@frequencies_app.command("count")
def count(
    encoder: Annotated[str, typer.Argument(help="Encoder or tokenizer: folder or hub id.")],
    text: Annotated[
        list[str], typer.Argument(help='Files, folders, data set ids, as for "train"; or "wordfreq:en" alone.')
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to save to; .tsv: token<TAB>count.")],
    column: Column = None,
    max_line: MaxLine = LONGEST_LINE,
    shard: Annotated[
        str | None, typer.Option(help='Read part INDEX of COUNT parts of the text, from 0: "3/16".', metavar="TEXT")
    ] = None,
    processes: Annotated[
        int, typer.Option(help="Worker processes; 1 suits fast tokenizers, which use all cores.", callback=PROCESSES)
    ] = 1,
    add: Annotated[list[Path] | None, typer.Option(help="Table to add to the counts; repeatable.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file --output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Count an encoder's tokens in a corpus, in one stream.

    Run it on each shard of a corpus, on as many machines as there are, and add the tables with --add.
    """
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise ValueError(f"--output must be a file in an existing folder, got {str(output)!r}.")
    if output.exists() and not overwrite:
        raise ValueError(f"--output must be a new file, got {str(output)!r}: choose another name, or add --overwrite.")
    from st_extras.text.frequency import FrequencyTable

    tokenizer = _tokenizer(encoder)
    added = [FrequencyTable.from_file(path, tokenizer) for path in add or []]  # refuses a bad one before counting
    bar = not (quiet or as_json)
    table = sum(added, start=_counted(text, tokenizer, column, max_line, shard, processes, show_progress_bar=bar))
    try:
        table.save(output)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(output)) from error
    _describe(table, str(output), 0.5, as_json)


@frequencies_app.command("info")
def info(
    path: Annotated[Path, typer.Argument(help="Table, token<TAB>count file, or JSON {token: count}.")],
    encoder: Annotated[str | None, typer.Option(help="Check that the table belongs to this encoder.")] = None,
    ratio: Annotated[
        float, typer.Option(help="Share of the types that count as low-frequency (lambda).", callback=FRACTION)
    ] = 0.5,
    as_json: Json = False,
) -> None:
    """Describe a table: its size, and which of its tokens are low-frequency."""
    from st_extras.text.frequency import FrequencyTable

    table = FrequencyTable.from_file(path, None if encoder is None else _tokenizer(encoder))
    _describe(table, str(path), ratio, as_json)


def _counted(
    text: list[str],
    tokenizer: Any,
    column: str | None,
    max_line: int,
    shard: str | None,
    processes: int,
    *,
    show_progress_bar: bool,
) -> FrequencyTable:
    from st_extras.text import corpus
    from st_extras.text.frequency import FrequencyTable

    if any(name.startswith("wordfreq:") for name in text):
        if len(text) > 1:
            raise ValueError(f"wordfreq must be the only text, got {' '.join(text)!r}: add other tables with --add.")
        if shard is not None:
            raise ValueError(f"--shard needs text to read, got {text[0]!r}, a list of words.")
        return load_frequencies(text[0], tokenizer)
    part = None if shard is None else corpus.parse_shard(shard)
    sentences = corpus.stream_sentences(text, column=column, max_line=max_line, shard=part)
    return FrequencyTable.count(sentences, tokenizer, num_processes=processes, show_progress_bar=show_progress_bar)


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise ValueError(
            f"encoder must have a tokenizer that can be loaded, got {name!r} ({type(error).__name__})."
        ) from error


def _describe(table: FrequencyTable, name: str, ratio: float, as_json: bool) -> None:
    low = table.labels(ratio) == 1
    report = {
        "types": len(table),
        "types seen": table.num_seen,
        "tokens": table.total,
        "texts": table.num_texts,
        "low-frequency ratio of types": ratio,
        "low-frequency tokens, %": 100 * int(table.counts[low].sum()) / table.total,
        "highest low-frequency count": int(table.counts[low].max()) if low.any() else 0,
    }
    if as_json:
        print_json(report | {"path": name})
        return
    shown = Table(title=name, title_justify="left", show_header=False)
    for key, value in report.items():
        shown.add_row(key, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    Console().print(shown)
