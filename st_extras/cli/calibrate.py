"""``st-extras calibrate``: which cosine a threshold should have."""

from __future__ import annotations

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
    seed: options.DrawSeed = 42,
    as_json: options.Json = False,
) -> None:
    """Show above which cosine few pairs of unrelated texts lie: where to put a threshold.

    All pairs of 2,000 of the texts, drawn at random, are compared; nearly all of such pairs are unrelated.
    """
    from st_extras.adaptation.encode import drawn_texts
    from st_extras.evaluation.geometry import unrelated_cosines
    from st_extras.modules.pipeline import check_finite
    from st_extras.text import corpus

    options.check_column(context, text)
    texts, _ = drawn_texts(corpus.stream_sentences(text, column=column, max_line=max_line), _TEXTS, seed)
    embeddings = load_any(encoder).encode(texts, batch_size=batch_size, convert_to_tensor=True)
    check_finite(embeddings, texts)
    embeddings = embeddings[(embeddings != 0).any(dim=1)]  # a table of words gives 0 to unknown words
    if len(embeddings) < 50:  # a thousand pairs
        raise ValueError(f"text must hold at least 50 different texts to compare, got {len(embeddings)}.")
    found = unrelated_cosines(embeddings)
    if as_json:
        named = {n: dict(zip(("cosine", "low", "high"), values, strict=True)) for n, values in found.items()}
        print_json({"texts": len(embeddings), "cosines": named})
        return
    print_line(f"{len(embeddings):,} different texts compared with each other.")
    rows = [[f"1 in {n:,}", f"{value:.3f}", f"{low:.3f} to {high:.3f}"] for n, (value, low, high) in found.items()]
    print_table("Cosines of unrelated texts", ["pairs above", "cosine", "95 % interval"], rows)
