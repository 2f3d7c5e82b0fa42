"""``st-extras train``: parses the options, trains, and prints what was kept. Losses are made in objectives.py."""

from __future__ import annotations

import difflib
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from st_extras.checks import argument_called, counted, shown
from st_extras.cli import objectives, options
from st_extras.cli.console import named_step, print_json, print_line, shows_bars, speaks

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_GOOD = 70.0
"""On the packaged pairs, Spearman correlation times 100: training on sentences alone mostly harms such an encoder."""
_TRAIN_ENCODER_SETTINGS = ("loss_learning_rate", "patience", "lora")
"""Settings of ``--trainer`` that ``train_encoder`` has beside those of the trainer."""
_ELSEWHERE = {
    "per_device_train_batch_size": "--batch-size",
    "learning_rate": "--lr",
    "max_steps": "--steps",
    "eval_steps": "--eval-steps",
    "seed": "--seed",
    "output_dir": "--output",
    "resume_from_checkpoint": "--resume",
    "disable_tqdm": "--quiet",
}
"""Settings of the trainer that have an option of their own."""


def train(
    context: typer.Context,
    objective: Annotated[
        str,
        typer.Argument(
            help=f"What to train with: {', '.join(objectives.LOSSES)}, or a loss of your own as module:Class.",
            callback=objectives.check_objective,
        ),
    ],
    encoder: options.Encoder,
    text: options.Text,
    output: options.Output,
    column: options.Column = None,
    limit: Annotated[
        int | None, typer.Option(help="Use only the first N sentences.", min=1, rich_help_panel=options.TEXT)
    ] = None,
    dev: Annotated[
        str | None,
        typer.Option(
            help="Labelled pairs to choose the best weights by: a table with columns score, sentence1, sentence2, a "
            'folder with STS-B dev, or "hub".'
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE: an argument of the loss in Python; repeatable."),
    ] = None,
    trainer: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE: a field of SentenceTransformerTrainingArguments, or loss_learning_rate, patience, lora; "
            "repeatable.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Sentences per step.", min=1)] = 64,
    learning_rate: Annotated[
        float,
        typer.Option("--learning-rate", "--lr", help="Initial learning rate; decays linearly to 0."),
    ] = 3e-5,
    max_steps: Annotated[
        int, typer.Option("--steps", help="Number of optimizer steps; -1: train for one pass over the text.")
    ] = -1,
    eval_steps: Annotated[int, typer.Option(help="Steps between evaluations and checkpoints.", min=1)] = 125,
    max_seq_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            help="Maximum tokens per sentence; default: the encoder's own.",
            rich_help_panel=options.ENCODER,
        ),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(help="Number of layers to keep, from the first.", min=1, rich_help_panel=options.ENCODER),
    ] = None,
    pooling: Annotated[
        Literal["cls", "mean", "weightedmean", "max", "lasttoken", "first-last", "last-two"] | None,
        typer.Option(help="Default: the encoder's own.", rich_help_panel=options.ENCODER),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Random seed for data order, dropout and the loss.",
            min=0,
            max=2**32 - 1,
            rich_help_panel=options.RUNNING,
        ),
    ] = 42,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue an interrupted training from its last checkpoint; the other options must be the same.",
            rich_help_panel=options.RUNNING,
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace an earlier result, edited or not, and discard an interrupted training.",
            rich_help_panel=options.RUNNING,
        ),
    ] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train an encoder on unlabeled sentences.

    The result is saved as a plain SentenceTransformer.

    Example: st-extras train simcse bert-base-uncased texts.txt -o trained --dev pairs.csv

    Recommended for a raw encoder: st-extras train simcse bert-base-uncased texts.txt -o trained
    --set include_positive=False --set augmentations=feature_cutoff+shuffle --lr 1e-4

    --set gives any argument of the loss, such as --set mini_batch_size=64 for large batches in little memory;
    for slt-fai base_loss names another objective; paser also takes top_k (phrases per sentence), language (of RAKE's
    stop words) or kinds=NP+VP (phrases by NLTK's tagger instead).

    Ctrl-C and SIGTERM end a training so that --resume continues it.
    """
    from st_extras.evaluation import load_sts
    from st_extras.files import check_output
    from st_extras.text.corpus import stream_sentences

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    context.call_on_close(lambda: signal.signal(signal.SIGTERM, before))
    if speaks():  # of several processes, the first may begin to write before another one looks
        check_output(output, overwrite=overwrite or resume)
    options.check_column(context, text)
    options.refuse_refined(encoder)
    stream = stream_sentences(text, column=column, limit=limit)
    pairs = None if dev is None else load_sts(options.dev_name(None, dev), dev)

    # What follows imports torch, which takes seconds: a wrong file or column has been named by now.
    from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    from st_extras.encoders import load_encoder
    from st_extras.evaluation import STSEvaluator
    from st_extras.training import train_encoder
    from st_extras.training.checkpoints import check_training_output

    check_training_output(output, resume=resume, overwrite=overwrite)
    settings = objectives.loss_settings(objective, set_ or ())
    arguments = trainer_settings(trainer or ())
    sentences = list(stream)
    # Weights that are trained are loaded in float32, also from a folder that says bfloat16, in which small updates are
    # lost. Those beside LoRA adapters are not trained.
    dtype: Literal["float32"] | None = None if "lora" in arguments else "float32"
    with argument_called("--max-length", "max_seq_length"):
        model = load_encoder(encoder, pooling=pooling, layers=layers, max_seq_length=max_seq_length, dtype=dtype)
    if not (shows_bars(quiet, as_json) or are_progress_bars_disabled()):
        disable_progress_bars()
        context.call_on_close(enable_progress_bars)
    rows = objectives.training_rows(objective, settings, model, sentences, seed)
    if not as_json:
        _print_before(sentences, model, chooses=dev is not None)
    model.model_card_data.train_datasets = [{"name": ", ".join(Path(name).name for name in text)}]
    options_given = [f"--set {pair}" for pair in set_ or ()] + [f"--trainer {pair}" for pair in trainer or ()]
    step = " and ".join([f"training with objective {objective!r}", *options_given])
    with named_step(step), argument_called("--steps", "max_steps"):
        result = train_encoder(
            model,
            lambda model: objectives.make_loss(objective, settings, model, sentences, batch_size),
            rows,
            output,
            evaluator=None if pairs is None else STSEvaluator([pairs]),
            batch_size=batch_size,
            learning_rate=learning_rate,
            max_steps=max_steps,
            eval_steps=eval_steps,
            seed=seed,
            no_duplicates=objective != "paser",
            resume=resume,
            overwrite=overwrite,
            show_progress_bar=shows_bars(quiet, as_json),
            **arguments,
        )
    if as_json:
        report = {"steps": result.steps, "best_step": result.best_step, "curve": result.curve}
        print_json(report | {"output": str(output), "seconds": result.seconds})
        return
    kept = counted(result.steps, "step")
    if result.best is not None:
        kept = f"weights of step {result.best_step} of {result.steps}"
        kept += f" ({result.metric}: {result.curve[0][1]:.4f} before training, {result.best:.4f} at best)"
    print_line(f"{kept} in {result.seconds:.0f} s, saved to {output}.")


def trainer_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Return arguments of ``train_encoder`` from the values of ``--trainer``, each NAME=VALUE, with their types.

    Raises:
        ValueError: if a pair is not NAME=VALUE, its name is unknown, given twice or has an option of its own, or the
            value is of another type.
    """
    from argparse import ArgumentError
    from dataclasses import fields

    from sentence_transformers import SentenceTransformerTrainingArguments
    from transformers import HfArgumentParser

    arguments: Any = SentenceTransformerTrainingArguments
    known = {field.name for field in fields(arguments)} | {*_TRAIN_ENCODER_SETTINGS}
    parser = HfArgumentParser(arguments, exit_on_error=False)
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=3) or _TRAIN_ENCODER_SETTINGS
            raise ValueError(
                "--trainer must be NAME=VALUE with a field of SentenceTransformerTrainingArguments, got "
                f"{shown(pair)}: near it are {', '.join(near)}."
            )
        if name in _ELSEWHERE:
            raise ValueError(f"--trainer must not give {name}, which has an option of its own: use {_ELSEWHERE[name]}.")
        if name in settings:
            raise ValueError(f"--trainer must give each setting once, got {name!r} twice.")
        try:
            if name in _TRAIN_ENCODER_SETTINGS or value.startswith("{"):
                settings[name] = json.loads(value)
            else:
                settings[name] = getattr(parser.parse_args([f"--{name}={value}"]), name)
        except (ArgumentError, ValueError) as error:
            reason = getattr(error, "message", error)
            raise ValueError(f"--trainer {name} must have a value of its type, got {shown(value)}: {reason}.") from None
    return settings


def _print_before(sentences: list[str], model: SentenceTransformer, *, chooses: bool) -> None:
    """Print what the text is, warn of a good encoder, and name what chooses the weights if nothing does."""
    from st_extras.samples import graded_spearman

    print_line(f"Text: {counted(len(sentences), 'sentence')}, such as {shown(sentences[0])}.")
    if (score := graded_spearman(model)) >= _GOOD:
        print_line(
            f"Warning: this encoder has {score:.0f} on the packaged pairs of general English, as encoders tuned for "
            "similarity have. Training on sentences alone mostly harms such an encoder; `st-extras adapt` keeps only "
            "what helps.",
            to_stderr=True,
        )
    if not chooses:
        print_line("No --dev: the last weights will be kept, though contrastive training peaks early.")
