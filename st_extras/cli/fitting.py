"""``st-extras whiten``, ``center``, ``locality``, ``sif``: post-processing fitted on text or on its statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras.checks import check_count, check_interval
from st_extras.cli.console import print_json, print_line
from st_extras.cli.options import (
    AT_LEAST_ONE,
    LONGEST_LINE,
    NOT_NEGATIVE,
    SEED,
    AnyEncoder,
    Column,
    Json,
    MaxLine,
    Output,
    Overwrite,
    Text,
    checked,
)
from st_extras.cli.postprocess import MaybeText, Statistics, corpus_or_statistics, load_any, save_result
from st_extras.cli.statistics import Devices, EncodeBatch, Prompt, encode_options

whiten_app = typer.Typer(help="Whiten a finished encoder's embeddings.", no_args_is_help=True)
center_app = typer.Typer(help="Centre a finished encoder's embeddings.", no_args_is_help=True)
locality_app = typer.Typer(help="Keep what a text and its nearest neighbours agree on.", no_args_is_help=True)
sif_app = typer.Typer(help="Pool a finished encoder's tokens by their frequency.", no_args_is_help=True)

_COMPONENTS = checked(lambda name, value: check_count(name, value, 0, 2**16 - 1))
_NEIGHBORS = checked(lambda name, value: check_count(name, value, 1, 1000))
_POWER = checked(lambda name, value: check_interval(name, value, 0, 10))
_RECOLOR = checked(lambda name, value: check_interval(name, value, 0, 1))
_SAMPLE = checked(lambda name, value: check_count(name, value, 50, 2**31 - 1))
_A = checked(lambda name, value: check_interval(name, value, 1e-9, 1))
Stock = Annotated[bool, typer.Option(help="Save as a stock Dense layer, which loads without this package.")]


@whiten_app.command("fit")
def whiten_fit(
    encoder: AnyEncoder,
    output: Output,
    text: MaybeText = None,
    statistics: Statistics = None,
    dimensions: Annotated[
        int | None,
        typer.Option(help="Number of dimensions to keep, from the first; default: all.", callback=AT_LEAST_ONE),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="Softness: 0 whitens fully; try 0.1 on a good encoder.", callback=NOT_NEGATIVE)
    ] = 0.0,
    stock: Stock = False,
    batch_size: EncodeBatch = 32,
    device: Devices = None,
    prompt: Prompt = None,
    column: Column = None,
    max_line: MaxLine = LONGEST_LINE,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Fit whitening, full (BERT-whitening) or soft, on a corpus and attach it."""
    from st_extras.modules import WhiteningPostProcessor
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    given = corpus_or_statistics(text, statistics, column, max_line)
    attached = WhiteningPostProcessor.attach(
        load_any(encoder),
        dimensions=dimensions,
        epsilon=epsilon,
        **given,
        batch_size=batch_size,
        encode_options=encode_options(device, prompt),
    )
    _finish(attached, output, stock, {"dimensions": dimensions, "epsilon": epsilon}, as_json)


@center_app.command("fit")
def center_fit(
    encoder: AnyEncoder,
    output: Output,
    text: MaybeText = None,
    statistics: Statistics = None,
    components: Annotated[
        int, typer.Option(help="Number of top directions to remove too; 0 only centres.", callback=_COMPONENTS)
    ] = 0,
    stock: Stock = False,
    batch_size: EncodeBatch = 32,
    device: Devices = None,
    prompt: Prompt = None,
    column: Column = None,
    max_line: MaxLine = LONGEST_LINE,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Subtract a corpus's mean, and remove its top directions (all-but-the-top)."""
    from st_extras.modules import AllButTheTopPostProcessor
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    given = corpus_or_statistics(text, statistics, column, max_line)
    attached = AllButTheTopPostProcessor.attach(
        load_any(encoder),
        components=components,
        **given,
        batch_size=batch_size,
        encode_options=encode_options(device, prompt),
    )
    _finish(attached, output, stock, {"components": components}, as_json)


@locality_app.command("fit")
def locality_fit(
    encoder: AnyEncoder,
    text: Text,
    output: Output,
    neighbors: Annotated[int, typer.Option(help="Number of nearest texts.", callback=_NEIGHBORS)] = 10,
    power: Annotated[
        float, typer.Option(help="How strongly to shrink what neighbours disagree on; 0: not.", callback=_POWER)
    ] = 1.0,
    recolor: Annotated[
        float,
        typer.Option(help="Variance given back: 1 all, 0 none; try 0 on a raw encoder.", callback=_RECOLOR),
    ] = 0.5,
    epsilon: Annotated[
        float, typer.Option(help="Share of the mean variance added to every direction.", callback=NOT_NEGATIVE)
    ] = 0.1,
    words: Annotated[bool, typer.Option(help="Find neighbours by embeddings and words together.")] = True,
    max_sentences: Annotated[
        int, typer.Option(help="Fit on at most N different sentences, drawn at random.", callback=_SAMPLE)
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="Random seed of what is drawn.", callback=SEED)] = 0,
    stock: Stock = False,
    batch_size: EncodeBatch = 32,
    device: Devices = None,
    prompt: Prompt = None,
    column: Column = None,
    max_line: MaxLine = LONGEST_LINE,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Keep the directions on which a text and its nearest neighbours agree, shrink the others (soft LPP).

    Fit it on some thousand texts of the domain. "st-extras adapt" judges such steps, and saves the best or none.
    """
    from st_extras.modules import LocalityPreservingPostProcessor
    from st_extras.text import corpus
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    sentences = corpus.stream_sentences(text, column=column, max_line=max_line)
    settings = {"neighbors": neighbors, "power": power, "recolor": recolor, "epsilon": epsilon, "words": words}
    attached = LocalityPreservingPostProcessor.attach(
        load_any(encoder),
        **settings,  # type: ignore[arg-type]
        max_sentences=max_sentences,
        seed=seed,
        corpus=sentences,
        batch_size=batch_size,
        encode_options=encode_options(device, prompt),
    )
    _finish(attached, output, stock, settings, as_json)


@sif_app.command("fit")
def sif_fit(
    encoder: AnyEncoder,
    output: Output,
    text: MaybeText = None,
    frequencies: Annotated[
        str | None, typer.Option(help='Token counts, in place of text: a file, or "wordfreq:en".')
    ] = None,
    a: Annotated[
        float, typer.Option("--a", help="Tokens much rarer than this keep their weight of 1.", callback=_A)
    ] = 1e-3,
    column: Column = None,
    max_line: MaxLine = LONGEST_LINE,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Replace an encoder's pooling by SIF pooling, with counts of a corpus."""
    from st_extras.cli.frequencies import load_frequencies
    from st_extras.modules import SIFPooling
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    given = corpus_or_statistics(text, frequencies, column, max_line, "--frequencies", lambda source: source)
    model = load_any(encoder)
    table = load_frequencies(given["statistics"], model.tokenizer) if frequencies else None
    attached = SIFPooling.attach(model, table, a=a, corpus=given["corpus"])
    _finish(attached, output, False, {"a": a}, as_json)


def _finish(model: Any, output: Path, stock: bool, settings: dict[str, Any], as_json: bool) -> None:
    """Save a fitted model, with stock modules if asked for, and report it."""
    from st_extras.encoders.loading import with_modules
    from st_extras.modules import SIFPooling
    from st_extras.modules.linear import LinearPostProcessor

    fitted = next(part for part in reversed(list(model)) if isinstance(part, (LinearPostProcessor, SIFPooling)))
    how = f'st_extras.load("{output}")'
    if stock:
        parts = [part.to_dense() if isinstance(part, LinearPostProcessor) else part for part in model]
        model, how = with_modules(model, parts), f'SentenceTransformer("{output}")'
    save_result(model, output)
    count = fitted.corpus_size
    if as_json:
        print_json({"sentences": count, **settings, "stock": stock, "output": str(output)})
    else:
        print_line(f"Fitted on {count} sentences, saved to {output}: {how}")
