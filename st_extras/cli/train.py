"""``st-extras train``: parses the options, trains, and prints what was kept. Losses are made in objectives.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from st_extras.checks import shown
from st_extras.cli import objectives, options
from st_extras.cli.console import print_line, print_result, shows_bars
from st_extras.cli.evaluate import dev_name

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_GOOD = 70.0
"""On the packaged pairs, Spearman correlation times 100: training on sentences alone mostly harms such an encoder."""
_OPTIMIZER = "Optimizer"
_MEMORY = "Memory and speed"
"""Sections of the help."""


def train(
    context: typer.Context,
    objective: Annotated[str, typer.Argument(help=f"What to train with: {', '.join(objectives.LOSSES)}.")],
    encoder: options.Encoder,
    text: options.Text,
    output: options.Output,
    column: options.Column = None,
    limit: Annotated[
        int | None, typer.Option(help="Use only the first N sentences.", min=1, rich_help_panel=options.TEXT)
    ] = None,
    dev: Annotated[
        str | None,
        typer.Option(help='Labelled pairs to choose the best weights by: STS source (folder, table or "hub").'),
    ] = None,
    dev_set: options.DevSet = None,
    set_: options.Setting = None,
    batch_size: Annotated[int, typer.Option(help="Sentences per step.", min=1)] = 64,
    learning_rate: Annotated[
        float,
        typer.Option("--learning-rate", "--lr", help="Initial learning rate; decays linearly to 0."),
    ] = 3e-5,
    loss_learning_rate: Annotated[
        float | None,
        typer.Option(
            "--loss-learning-rate",
            "--loss-lr",
            help="Initial learning rate of the loss's own parameters (decoder, head); default: --lr.",
            rich_help_panel=_OPTIMIZER,
        ),
    ] = None,
    max_steps: Annotated[int, typer.Option("--steps", help="Number of optimizer steps; -1: train for --epochs.")] = -1,
    epochs: Annotated[float, typer.Option(help="Passes over the text, if --steps is -1.")] = 1.0,
    eval_steps: Annotated[
        int, typer.Option(help="Steps between evaluations and checkpoints.", min=1, rich_help_panel=_OPTIMIZER)
    ] = 125,
    patience: Annotated[
        int | None,
        typer.Option(help="Stop after N evaluations in a row without improvement.", min=1, rich_help_panel=_OPTIMIZER),
    ] = None,
    max_seq_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            help="Maximum tokens per sentence; default: the encoder's own.",
            rich_help_panel=options.ENCODER,
        ),
    ] = None,
    pooling: Annotated[
        Literal["cls", "mean", "weightedmean", "max", "lasttoken", "first-last", "last-two"] | None,
        typer.Option(help="Default: the encoder's own.", rich_help_panel=options.ENCODER),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(help="Number of layers to keep, from the first.", min=1, rich_help_panel=options.ENCODER),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(
            help="Dropout to train with, such as 0.1; default: the encoder's own.", rich_help_panel=options.ENCODER
        ),
    ] = None,
    prompt_template: Annotated[
        str | None,
        typer.Option(
            help="Text around every sentence, with one {} for the sentence; for decoders.",
            callback=options.check_text,
            rich_help_panel=options.ENCODER,
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        typer.Option(
            help="What the weights are loaded as; default: what they were saved as.", rich_help_panel=options.ENCODER
        ),
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
    bf16: Annotated[bool, typer.Option(help="Use bfloat16 autocast.", rich_help_panel=_MEMORY)] = False,
    lora: Annotated[
        int | None,
        typer.Option(
            help="Train LoRA adapters of rank N and merge them at the end; try 16. Needs peft.",
            rich_help_panel=options.ENCODER,
        ),
    ] = None,
    gradient_checkpointing: Annotated[
        bool,
        typer.Option(
            "--gradient-checkpointing",
            help="Save memory by computing activations twice.",
            rich_help_panel=_MEMORY,
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(help="Continue from the last checkpoint in --output.", rich_help_panel=options.RUNNING),
    ] = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train an encoder on unlabeled sentences.

    The result is saved as a plain SentenceTransformer.

    Example: st-extras train simcse bert-base-uncased texts.txt -o trained --dev pairs.csv

    Recommended for a raw encoder: st-extras train dclr bert-base-uncased texts.txt -o trained --set noise_ratio=0
    --set augmentations=feature_cutoff+shuffle --lr 1e-4

    --set gives any argument of the loss, such as --set mini_batch_size=64 for large batches in little memory;
    for slt-fai base_loss names another objective; paser also takes top_k (phrases per sentence), language (of RAKE's
    stop words) or kinds=NP+VP (phrases by NLTK's tagger instead).
    """
    from datasets import disable_progress_bars

    from st_extras import evaluation
    from st_extras.encoders import load_encoder
    from st_extras.text.corpus import stream_sentences
    from st_extras.training import train_encoder
    from st_extras.training.checkpoints import check_places

    check_places(output, resume=resume, overwrite=overwrite)
    settings = objectives.loss_settings(objective, set_ or ())
    if dev is None:
        options.refuse_unread(context, "needs --dev", "dev_set")
    if max_steps != -1:
        options.refuse_unread(context, "does not go with --steps: train for one of them", "epochs")
    options.check_column(context, text)
    options.refuse_refined(encoder)
    stream = stream_sentences(text, column=column, limit=limit)
    evaluator: Any = None
    if dev is not None:
        evaluator = evaluation.sts_evaluator(dev_name(dev_set, dev), dev)
    model = load_encoder(
        encoder,
        pooling=pooling,
        layers=layers,
        max_seq_length=max_seq_length,
        dropout=dropout,
        prompt_template=prompt_template,
        dtype=dtype,
    )
    sentences = list(stream)
    if not shows_bars(quiet, as_json):
        disable_progress_bars()
    rows = objectives.training_rows(objective, settings, model, sentences, seed)
    if not as_json:
        _print_before(sentences, model, chooses=dev is not None)
    memory: dict[str, Any] = {"gradient_checkpointing": True} if gradient_checkpointing else {}
    run = train_encoder(
        model,
        lambda model: objectives.make_loss(objective, settings, model, sentences, batch_size),
        rows,
        output,
        evaluator=evaluator,
        batch_size=batch_size,
        learning_rate=learning_rate,
        loss_learning_rate=loss_learning_rate,
        max_steps=max_steps,
        epochs=epochs,
        eval_steps=eval_steps,
        patience=patience,
        seed=seed,
        bf16=bf16,
        lora=lora,
        no_duplicates=objective != "paser",
        resume=resume,
        overwrite=overwrite,
        show_progress_bar=shows_bars(quiet, as_json),
        **memory,
    )
    report = {"steps": run.steps, "best_step": run.best_step, "curve": [list(point) for point in run.curve]}
    kept = f"{run.steps} steps"
    if run.best is not None:
        kept = f"weights of step {run.best_step} of {run.steps}"
        kept += f" ({run.metric}: {run.curve[0][1]:.4f} before training, {run.best:.4f} at best)"
    line = f"{kept} in {run.seconds:.0f} s, saved to {output}."
    print_result(report | {"output": str(output), "seconds": run.seconds}, line, as_json=as_json)


def _print_before(sentences: list[str], model: SentenceTransformer, *, chooses: bool) -> None:
    """Print what the text is, warn of a good encoder, and name what chooses the weights if nothing does."""
    from st_extras.samples import graded_spearman

    print_line(f"Text: {len(sentences):,} sentences, such as {shown(sentences[0])}.")
    if (score := graded_spearman(model)) >= _GOOD:
        print_line(
            f"Warning: this encoder has {score:.0f} on the packaged pairs of general English, as encoders tuned for "
            "similarity have. Training on sentences alone mostly harms such an encoder; `st-extras adapt` keeps only "
            "what helps.",
            to_stderr=True,
        )
    if not chooses:
        print_line("No --dev: the last weights will be kept, though contrastive training peaks early.")
