"""``st-extras statistics``, ``frequencies``: what is computed from a corpus in shards and added up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.cli import options
from st_extras.cli.console import print_json, print_result, print_table, shows_bars
from st_extras.cli.evaluate import load_any
from st_extras.cli.options import FRACTION, PROCESSES
from st_extras.cli.sections import SectionedCommand

if TYPE_CHECKING:
    from st_extras.text.frequency import FrequencyTable

statistics_app = typer.Typer(help="Save and merge a corpus's mean and covariance.", no_args_is_help=True)
frequencies_app = typer.Typer(help="Count the tokens of a corpus, for slt-fai and sif.", no_args_is_help=True)

OverwriteFile = Annotated[bool, typer.Option("--overwrite", help="Replace the file --output.")]
Shard = Annotated[
    str | None, typer.Option(help='Read part INDEX of COUNT parts of the text, from 0: "3/16".', metavar="TEXT")
]
StatisticsFile = Annotated[Path, typer.Option("--output", "-o", help="File to save to, .safetensors.")]


def _check_output_file(output: Path, overwrite: bool) -> None:
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise ValueError(f"--output must be a file in an existing folder, got {str(output)!r}.")
    if output.exists() and not overwrite:
        raise ValueError(f"--output must be a new file, got {str(output)!r}: choose another name, or add --overwrite.")


def _sentences(text: list[str], column: str | None, max_line: int, shard: str | None) -> Iterator[str]:
    from st_extras.text import corpus

    part = None if shard is None else corpus.parse_shard(shard)
    return corpus.stream_sentences(text, column=column, max_line=max_line, shard=part)


# ------------------------------------------------------------------------------------------- statistics


@statistics_app.command("compute", cls=SectionedCommand)
def compute_statistics(
    context: typer.Context,
    encoder: options.AnyEncoder,
    text: options.Text,
    output: StatisticsFile,
    shard: Shard = None,
    batch_size: options.EncodeBatch = 32,
    device: options.Devices = None,
    prompt: options.Prompt = None,
    column: options.Column = None,
    max_line: options.MaxLine = options.LONGEST_LINE,
    overwrite: OverwriteFile = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Encode text, in one stream, and save count, mean and scatter of its embeddings.

    Run it on each shard of a corpus, on as many machines as there are, and merge the files.
    """
    from st_extras.modules import CorpusStatistics

    _check_output_file(output, overwrite)
    options.check_column(context, text)
    sentences, bar = _sentences(text, column, max_line, shard), shows_bars(quiet, as_json)
    encoding = options.encoding(batch_size, device, prompt)
    statistics = CorpusStatistics.compute(load_any(encoder), sentences, show_progress_bar=bar, **encoding)
    _save_statistics(statistics, output, as_json)


@statistics_app.command("merge", cls=SectionedCommand)
def merge_statistics(
    files: Annotated[list[Path], typer.Argument(help='Files that "statistics compute" saved, of one encoder.')],
    output: StatisticsFile,
    overwrite: OverwriteFile = False,
    as_json: options.Json = False,
) -> None:
    """Add statistics of shards: those of the whole corpus."""
    from st_extras.modules import CorpusStatistics

    _check_output_file(output, overwrite)
    paths = {path.resolve() for path in files}
    if len(paths) < len(files):
        raise ValueError(f"files must each be given once, got {len(files)} names of {len(paths)} files.")
    first, *others = files
    whole = CorpusStatistics.load(first)
    for path in others:
        part = CorpusStatistics.load(path)
        try:
            whole = whole + part
        except ValueError as error:
            raise ValueError(f"{path} does not fit {first}: {error}") from None
    _save_statistics(whole, output, as_json)


def _save_statistics(statistics: Any, output: Path, as_json: bool) -> None:
    statistics.save(output)
    count, size = statistics.count, statistics.embedding_dimension
    report = {"sentences": count, "dimensions": size, "output": str(output)}
    print_result(report, f"Statistics of {count} sentences, saved to {output}", as_json=as_json)


# ------------------------------------------------------------------------------------------- frequencies


def load_frequencies(source: str, tokenizer: Any) -> FrequencyTable:
    """Return the table of a file, or of ``wordfreq:LANGUAGE``."""
    from st_extras.text.frequency import FrequencyTable

    if source.startswith("wordfreq:"):
        return FrequencyTable.from_wordfreq(tokenizer, source.removeprefix("wordfreq:"))
    return FrequencyTable.from_file(source, tokenizer)


@frequencies_app.command("count", cls=SectionedCommand)
def count_frequencies(
    context: typer.Context,
    encoder: Annotated[str, typer.Argument(help="Encoder or tokenizer: folder or hub id.")],
    text: Annotated[
        list[str],
        typer.Argument(
            help='Files, folders, data set ids, as for "train"; or "wordfreq:en" alone.', callback=options.TEXTS
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to save to; .tsv: token<TAB>count.")],
    column: options.Column = None,
    max_line: options.MaxLine = options.LONGEST_LINE,
    shard: Shard = None,
    processes: Annotated[
        int,
        typer.Option(help="Worker processes; 1 suits a fast tokenizer, which uses all cores.", callback=PROCESSES),
    ] = 1,
    add: Annotated[list[Path] | None, typer.Option(help="Table to add to the counts; repeatable.")] = None,
    overwrite: OverwriteFile = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Count an encoder's tokens in a corpus, in one stream.

    Run it on each shard of a corpus, on as many machines as there are, and add the tables with --add.
    """
    from st_extras.text.frequency import FrequencyTable
    from st_extras.text.frequency_files import table_format
    from st_extras.text.vocabularies import vocabulary

    _check_output_file(output, overwrite)
    is_list = any(name.startswith("wordfreq:") for name in text)
    if is_list:
        if len(text) > 1:
            raise ValueError(f"wordfreq must be the only text, got {' '.join(text)!r}: add other tables with --add.")
        reason = f"needs text to read, got {text[0]!r}, a list of words"
        options.refuse_unread(context, reason, "shard", "column", "max_line", "processes")
    options.check_column(context, text)
    tokenizer = _tokenizer(encoder)
    table_format(output, vocabulary(tokenizer))  # before counting, which can take hours
    added = [FrequencyTable.from_file(path, tokenizer) for path in add or []]  # refuses a bad one before counting
    if is_list:
        counted = load_frequencies(text[0], tokenizer)
    else:
        sentences, bar = _sentences(text, column, max_line, shard), shows_bars(quiet, as_json)
        counted = FrequencyTable.count(sentences, tokenizer, num_processes=processes, show_progress_bar=bar)
    table = sum(added, start=counted)
    table.save(output)
    _describe(table, str(output), 0.5, as_json)


@frequencies_app.command("info", cls=SectionedCommand)
def describe_frequencies(
    path: Annotated[Path, typer.Argument(help="Table, token<TAB>count file, or JSON {token: count}.")],
    encoder: Annotated[str | None, typer.Option(help="Check that the table belongs to this encoder.")] = None,
    ratio: Annotated[
        float, typer.Option(help="Share of the types that count as low-frequency (lambda).", callback=FRACTION)
    ] = 0.5,
    as_json: options.Json = False,
) -> None:
    """Describe a table: its size, and which of its tokens are low-frequency."""
    from st_extras.text.frequency import FrequencyTable

    table = FrequencyTable.from_file(path, None if encoder is None else _tokenizer(encoder))
    _describe(table, str(path), ratio, as_json)


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
    cells = [[key, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"] for key, value in report.items()]
    print_table(name, ["count", ""], cells)
