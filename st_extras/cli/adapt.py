"""``st-extras adapt``: refine an encoder for the text of a domain, or leave it unchanged."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.checks import argument_called
from st_extras.cli import options
from st_extras.cli.console import print_json, print_line, print_table, shows_bars, threshold_line

if TYPE_CHECKING:
    from st_extras.adaptation import Adaptation, DomainDetails, TextSummary


def adapt(
    context: typer.Context,
    encoder: options.Encoder,
    text: options.Text,
    output: options.Output,
    max_general_loss: Annotated[
        float | None,
        typer.Option(
            help="Points that it may lose on pairs of general English, such as 0.5 or inf; default: 2, and inf for a "
            "raw encoder.",
        ),
    ] = None,
    strength: Annotated[
        str | None,
        typer.Option(help="Save the transform of this name, such as medium, whatever the scores say."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="A cosine that is your threshold before: the one that as many pairs exceed now is printed."),
    ] = None,
    labeled: options.Labeled = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = "label",
    dev: Annotated[
        str | None, typer.Option(help='STS source (folder, table, "hub") to choose by; default: the text alone.')
    ] = None,
    dev_set: Annotated[
        str | None,
        typer.Option(help="--dev: name of the set; default: that of a single file, else stsb_dev."),
    ] = None,
    column: options.Column = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Text put before every sentence; default: the encoder's own default prompt.",
            callback=options.check_text,
            rich_help_panel=options.ENCODER,
        ),
    ] = None,
    limit: options.Limit = 12_000,
    minutes: options.Minutes = None,
    batch_size: options.EncodeBatch = 64,
    seed: options.DrawSeed = 42,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Refine an encoder for your text, without labels, or leave it unchanged.

    Linear transforms of several strengths are tried and scored on texts that they are computed without; the gentlest
    one that gains about as much as the best is computed from all texts and saved. The exit code is 0 also if the
    encoder is left unchanged; --json then has "changed": false. To search a collection, use adapt-search.

    Example: st-extras adapt sentence-transformers/all-MiniLM-L6-v2 texts.txt -o adapted
    """
    from st_extras import evaluation
    from st_extras.files import check_output
    from st_extras.text.corpus import stream_sentences

    check_output(output, overwrite=overwrite)
    options.check_column(context, text)
    options.refuse_refined(encoder)
    chooser: Any = None
    if labeled is None:
        options.refuse_unread(context, "needs --labeled", "text_column", "label_column")
    if dev is None:
        options.refuse_unread(context, "needs --dev", "dev_set")
    if labeled is not None:
        options.refuse_unread(context, "does not go with --labeled: choose by one of them", "dev", "dev_set")
        with argument_called("--labeled", "path"):
            chooser = evaluation.load_labeled_texts(labeled, text_column=text_column, label_column=label_column)
    elif dev is not None:
        with argument_called("--dev-set", "name"):
            chooser = evaluation.load_sts(options.dev_name(dev_set, dev), dev)
    texts = stream_sentences(text, column=column)

    from st_extras import adaptation  # below: torch, which takes seconds
    from st_extras.adaptation.domain import check_dev, check_settings
    from st_extras.encoders import load_encoder

    with argument_called("--labeled", "dev.labels"):
        check_dev(chooser)
    check_settings(max_general_loss, strength, threshold)
    named: Any = {} if prompt is None else {"prompts": {"text": prompt}, "default_prompt_name": "text"}
    adapted = adaptation.adapt(
        load_encoder(encoder, **named),
        texts,
        output,
        dev=chooser,
        max_general_loss=max_general_loss,
        strength=strength,
        threshold=threshold,
        options=adaptation.AdaptationOptions(
            minutes=minutes,
            limit=limit,
            batch_size=batch_size,
            seed=seed,
            overwrite=overwrite,
            show_progress_bar=shows_bars(quiet, as_json),
        ),
    )
    if as_json:
        print_json(adapted.as_json() | {"output": str(output)})
        return
    print_choice(adapted, output)
    for line in (*_changes(adapted), _texts_line(adapted)):
        print_line(line)
    if adapted.chosen is not None:
        tried = shlex.join([encoder, str(output)])
        print_line(f"Before and after, to read: {output / 'neighbors.md'}. Whether it is better, your own labels show:")
        print_line(f"st-extras evaluate {tried} --labeled FILE.tsv  # columns label and text")
    print_candidates(adapted)
    if not adapted.candidates:
        return
    given = {"--prompt": prompt, "--column": column}
    more = [word for name, value in given.items() if value is not None for word in (name, value)]
    sources = [word for source in text for word in ("--text", source)]
    _print_cosines(adapted.details, shlex.join(["st-extras", "evaluate", encoder, str(output), *sources, *more]))
    if adapted.details.not_tried is not None:
        print_line(f"Not tried: {adapted.details.not_tried}.")
    print_line("Another one: the same command with --overwrite and --strength NAME, such as medium.")


def print_choice(adapted: Adaptation[Any], output: Path) -> None:
    """Print what was chosen and where it is saved; before it, whether the run was cut short."""
    if adapted.cut_short is not None:
        print_line(adapted.cut_short)
    print_line(f'{adapted.reason} Saved to {output}: SentenceTransformer("{output}")')


def print_candidates(adapted: Adaptation[Any]) -> None:
    """Print the table of the candidates; nothing if none was tried."""
    titles, rows = adapted.table()
    if rows:
        print_line(f"Gain over the base model: {adapted.gain_measure}")
        print_table("", titles, rows)


def _changes(adapted: Adaptation[DomainDetails]) -> list[str]:
    """Return what the chosen candidate changes, a sentence each."""
    chosen, details = adapted.chosen_result, adapted.details
    if chosen is None:
        return []
    changes = []
    if details.expected_points is not None:
        low, high = details.expected_points
        changes.append(
            f"Expected by labels: {low:+.1f} to {high:+.1f} points (mean of 1-NN, V-measure and MAP@R), as in 8 of 10 "
            "cases measured, and 6 of 10 in a domain that the range was not computed from."
        )
    if chosen.general is not None and details.general is not None:
        change = f"{chosen.general - details.general:+.1f}"
        if math.isinf(details.max_general_loss):
            change += ", any loss is allowed"
        changes.append(f"General English: {details.general:.1f} -> {chosen.general:.1f} ({change}).")
    return [*changes, f"{details.changed:.0%} of the texts have another nearest neighbour."]


def _texts_line(adapted: Adaptation[DomainDetails]) -> str:
    """Return texts and base model in a sentence."""
    texts, details = adapted.texts, adapted.details
    described = f"Text: {texts_used(texts)}, {texts.mean_words} words each"
    if texts.scored:
        described += f", {texts.scored:,} of them scored by transforms computed without them"
    if texts.near_duplicates is not None:
        described += f", {texts.near_duplicates:.0%} repeat another nearly word for word"
    if details.mean_cosine is not None:
        described += f". Encoder: mean cosine {details.mean_cosine:.2f}"
    if details.general is not None:
        described += f", {details.general:.1f} on general pairs"
    return f"{described}."


def texts_used(texts: TextSummary) -> str:
    """Return how many texts were read and used, and how many of the encoded ones were left out."""
    if not texts.used:
        return f"{texts.read:,} read, none used"
    unknown = texts.encoded - texts.used
    why = f" ({unknown:,} not, as they have no embedding)" if unknown else ""
    return f"{texts.read:,} read, {texts.used:,} different ones used{why}"


def _print_cosines(details: DomainDetails, compare: str) -> None:
    """Print how cosines change, for whoever has a threshold on them; nothing if the encoder is left unchanged.

    Args:
        details: of the adaptation.
        compare: a command that compares the cosines of both encoders.
    """
    before, after = details.unrelated_before, details.unrelated_after
    if before is None or after is None:
        return
    print_line("Encode stored texts again: old and new embeddings do not mix.")
    print_line("Thresholds on cosines have to change, as all cosines do:")
    rows = [[f"1 in {n:,}", f"{before[n][0]:.2f}", f"{after[n][0]:.2f}"] for n in before]
    print_table("", ["pairs of texts above", "cosine before", "now"], rows)
    moved = details.threshold
    print_line(f"{compare} --threshold 0.8" if moved is None else threshold_line(moved, "before", "now"))
