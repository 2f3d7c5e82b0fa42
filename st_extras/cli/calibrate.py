"""``st-extras calibrate``: which cosine a threshold should have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras.cli import options
from st_extras.cli.console import print_json, print_line, print_table
from st_extras.cli.evaluate import load_any

_TEXTS = 2000


def calibrate(
    context: typer.Context,
    encoder: options.AnyEncoder,
    text: options.Text,
    column: options.Column = None,
    max_line: options.MaxLine = options.LONGEST_LINE,
    batch_size: options.EncodeBatch = 32,
    prompt: options.Prompt = None,
    seed: options.DrawSeed = 42,
    before: Annotated[str | None, typer.Option(help="Encoder to compare with, such as the one it was made of.")] = None,
    picture: Annotated[Path | None, typer.Option(help="File of a picture to write, such as cosines.png.")] = None,
    as_json: options.Json = False,
) -> None:
    """Show above which cosine few pairs of unrelated texts lie: where to put a threshold.

    All pairs of 2,000 of the texts, drawn at random, are compared; nearly all of such pairs are unrelated. With
    --before, another encoder stands beside it; --picture draws both.
    """
    from st_extras.adaptation.corpus import sample_texts
    from st_extras.evaluation.geometry import unrelated_cosines
    from st_extras.files import whole_file
    from st_extras.modules.pipeline import check_finite
    from st_extras.plots import plot_unrelated_cosines
    from st_extras.plots.axes import new_axes
    from st_extras.text import corpus

    options.check_column(context, text)
    texts = sample_texts(corpus.stream_sentences(text, column=column, max_line=max_line), _TEXTS, seed).texts
    axes: Any = None if picture is None else new_axes(None)  # what is wrong with it is known before anything is encoded
    if picture is not None:
        _check_picture(picture, axes.figure.canvas.get_supported_filetypes())
    paths = {"after": encoder} if before is None else {"before": before, "after": encoder}
    encoded = {}
    for name, path in paths.items():
        rows = load_any(path).encode(texts, prompt=prompt, batch_size=batch_size, convert_to_tensor=True)
        check_finite(rows, texts)
        encoded[name] = rows[(rows != 0).any(dim=1)]  # a table of words gives 0 to unknown words
        if len(encoded[name]) < 50:  # a thousand pairs
            raise ValueError(f"text must hold at least 50 different texts to compare, got {len(encoded[name])}.")
    found = {name: unrelated_cosines(rows) for name, rows in encoded.items()}
    if picture is not None:
        plot_unrelated_cosines(encoded if before else {encoder: encoded["after"]}, ax=axes)
        with whole_file(picture) as partial:
            axes.figure.savefig(partial, format=picture.suffix[1:] or "png", dpi=150)
    if as_json:
        keys = ("cosine", "low", "high")
        named = {name: {n: dict(zip(keys, ends, strict=True)) for n, ends in of.items()} for name, of in found.items()}
        print_json({"texts": len(encoded["after"]), "cosines": named.pop("after")} | named)
        return
    print_line(f"{len(encoded['after']):,} different texts compared with each other.")
    for name, marks in found.items():
        lines = [[f"1 in {n:,}", f"{value:.3f}", f"{low:.3f} to {high:.3f}"] for n, (value, low, high) in marks.items()]
        print_table(f"Cosines of unrelated texts, {paths[name]}", ["pairs above", "cosine", "95 % interval"], lines)


def _check_picture(picture: Path, kinds: dict[str, str]) -> None:
    if picture.is_dir() or not picture.absolute().parent.is_dir():
        raise ValueError(f"--picture must be a file in an existing folder, got {str(picture)!r}.")
    if (picture.suffix[1:] or "png") not in kinds:
        raise ValueError(f"--picture must end in one of .{', .'.join(kinds)}, got {str(picture)!r}.")
