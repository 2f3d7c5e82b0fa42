"""``st-extras statistics``: what post-processing is fitted on, computed in shards and merged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras.cli.console import print_json, print_line
from st_extras.cli.options import AT_LEAST_ONE, LONGEST_LINE, AnyEncoder, Column, Json, MaxLine, Quiet, Text
from st_extras.cli.postprocess import load_any

statistics_app = typer.Typer(
    help="Mean and covariance of a corpus's embeddings, to fit on: in shards, merged.", no_args_is_help=True
)

EncodeBatch = Annotated[int, typer.Option("--batch-size", help="Sentences per forward pass.", callback=AT_LEAST_ONE)]
Devices = Annotated[
    list[str] | None,
    typer.Option("--device", help="Device to encode on, such as cuda:0; repeatable, one process each."),
]
Prompt = Annotated[
    str | None, typer.Option(help="Text put before every sentence; default: the encoder's own default prompt.")
]
StatisticsFile = Annotated[Path, typer.Option("--output", "-o", help="File to save to, .safetensors.")]
OverwriteFile = Annotated[bool, typer.Option("--overwrite", help="Replace the file --output.")]


def encode_options(devices: list[str] | None, prompt: str | None) -> dict[str, Any]:
    """Return the ``encode_options`` that the options stand for."""
    options: dict[str, Any] = {}
    if devices:
        options["device"] = devices if len(devices) > 1 else devices[0]
    if prompt is not None:
        options["prompt"] = prompt
    return options


def _check_output_file(output: Path, overwrite: bool) -> None:
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise ValueError(f"--output must be a file in an existing folder, got {str(output)!r}.")
    if output.exists() and not overwrite:
        raise ValueError(f"--output must be a new file, got {str(output)!r}: choose another name, or add --overwrite.")


def _save(statistics: Any, output: Path, as_json: bool) -> None:
    try:
        statistics.save(output)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(output)) from error
    if as_json:
        size = statistics.embedding_dimension
        print_json({"sentences": statistics.count, "dimensions": size, "output": str(output)})
    else:
        print_line(f"Statistics of {statistics.count} sentences, saved to {output}")


@statistics_app.command("compute")
def compute(
    encoder: AnyEncoder,
    text: Text,
    output: StatisticsFile,
    shard: Annotated[
        str | None, typer.Option(help='Read part INDEX of COUNT parts of the text, from 0: "3/16".', metavar="TEXT")
    ] = None,
    batch_size: EncodeBatch = 32,
    device: Devices = None,
    prompt: Prompt = None,
    column: Column = None,
    max_line: MaxLine = LONGEST_LINE,
    overwrite: OverwriteFile = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Encode text, in one stream, and save count, mean and scatter of its embeddings.

    Run it on each shard of a corpus, on as many machines as there are, and merge the files.
    """
    from st_extras.modules import CorpusStatistics
    from st_extras.text import corpus

    _check_output_file(output, overwrite)
    part = None if shard is None else corpus.parse_shard(shard)
    sentences = corpus.stream_sentences(text, column=column, max_line=max_line, shard=part)
    statistics = CorpusStatistics.compute(
        load_any(encoder),
        sentences,
        batch_size=batch_size,
        show_progress_bar=not (quiet or as_json),
        encode_options=encode_options(device, prompt),
    )
    _save(statistics, output, as_json)


@statistics_app.command("merge")
def merge(
    files: Annotated[list[Path], typer.Argument(help='Files that "statistics compute" saved, of one encoder.')],
    output: StatisticsFile,
    overwrite: OverwriteFile = False,
    as_json: Json = False,
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
    _save(whole, output, as_json)
