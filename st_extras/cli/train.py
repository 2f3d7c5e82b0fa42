"""``st-extras train``: parses the options, trains, and prints the scores. Losses are made in objectives.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.cli import advice, objectives, options
from st_extras.cli.console import print_json, print_line, print_scores, shows_bars
from st_extras.cli.evaluate import dev_name, sts_scorer

if TYPE_CHECKING:
    from st_extras.training import TrainingRun

UNLABELED = "unlabeled"
"""The value of ``--dev`` that chooses the weights by the training sentences only."""


def train(
    context: typer.Context,
    objective: Annotated[str, typer.Argument(help=f"What to train with: {', '.join(objectives.LOSSES)}.")],
    encoder: options.Encoder,
    text: options.Text,
    output: options.Output,
    column: options.Column = None,
    limit: options.Limit = None,
    dev: options.TrainDev = None,
    dev_set: options.DevSet = None,
    test: options.Test = None,
    batch_size: Annotated[int, typer.Option(help="Sentences per step.", min=1)] = 64,
    mini_batch_size: objectives.MiniBatchSize = None,
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
            rich_help_panel="Optimizer",
        ),
    ] = None,
    max_steps: Annotated[int, typer.Option("--steps", help="Number of optimizer steps; -1: train for --epochs.")] = -1,
    epochs: Annotated[float, typer.Option(help="Passes over the text, if --steps is -1.")] = 1.0,
    eval_steps: Annotated[
        int, typer.Option(help="Steps between evaluations and checkpoints.", min=1, rich_help_panel="Optimizer")
    ] = 125,
    patience: Annotated[
        int | None,
        typer.Option(help="Stop after N evaluations in a row without improvement.", min=1, rich_help_panel="Optimizer"),
    ] = None,
    max_seq_length: options.MaxLength = None,
    pooling: options.Pooling = None,
    layers: options.Layers = None,
    dropout: options.Dropout = None,
    prompt_template: options.PromptTemplate = None,
    dtype: options.Dtype = None,
    set_: options.Setting = None,
    base: objectives.Base = None,
    phrases: objectives.Phrases = None,
    top_k: objectives.TopK = None,
    language: objectives.Language = None,
    seed: options.Seed = 42,
    bf16: Annotated[bool, typer.Option(help="Use bfloat16 autocast.", rich_help_panel="Memory and speed")] = False,
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
            rich_help_panel="Memory and speed",
        ),
    ] = False,
    resume: options.Resume = False,
    force: options.Force = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train an encoder on unlabeled sentences.

    The result is saved as a plain SentenceTransformer.

    Example: st-extras train simcse bert-base-uncased texts.txt -o trained --dev unlabeled

    Recommended for a raw encoder: st-extras train dclr bert-base-uncased texts.txt -o trained --set noise_ratio=0
    --set augmentations=feature_cutoff+shuffle --lr 1e-4
    """
    from datasets import disable_progress_bars

    from st_extras import evaluation
    from st_extras.encoders import load_encoder
    from st_extras.encoders.adapters import lora_config
    from st_extras.text.corpus import stream_sentences
    from st_extras.training import check_output, train_encoder
    from st_extras.training.arguments import rates_of_the_loss

    if not resume:
        options.refuse_unread(context, "needs --resume; to replace an earlier training, give --overwrite", "force")
    check_output(output, job="train_encoder", resume=resume, overwrite=overwrite)
    if lora is not None:
        lora_config(lora)
    chosen = objectives.Objective(
        objective,
        set_ or (),
        mini_batch_size=mini_batch_size,
        base=base,
        phrases=phrases,
        top_k=top_k,
        language=language,
    )
    objectives.check_objective(context, chosen)
    maker = objectives.LossMaker(chosen)
    if dev is None or dev == UNLABELED:
        options.refuse_unread(context, "needs --dev with labelled pairs", "dev_set")
    if dev is None:
        options.refuse_unread(context, "needs --dev", "patience")
    if max_steps != -1:
        options.refuse_unread(context, "does not go with --steps: train for one of them", "epochs")
    options.check_column(context, text)
    options.refuse_refined(encoder)
    stream = stream_sentences(text, column=column, limit=limit)
    evaluator: Any = None
    if dev is not None and dev != UNLABELED:
        evaluator = evaluation.sts_evaluator(dev_name(dev_set, dev), dev)
    score = (lambda model: {}) if test is None else sts_scorer(test)
    model = load_encoder(
        encoder,
        pooling=pooling,
        layers=layers,
        max_seq_length=max_seq_length,
        dropout=dropout,
        prompt_template=prompt_template,
        dtype=dtype,
    )
    masking = objectives.phrase_masking(chosen, model.tokenizer.mask_token, seed) if objective == "paser" else None
    checked = maker.check(model)
    if loss_learning_rate is not None:
        rates_of_the_loss(checked, model, loss_learning_rate)
    sentences = list(stream)
    description = advice.described_text(sentences)
    if dev == UNLABELED:
        evaluator = evaluation.UnlabeledSelectionEvaluator(sentences)
    if not shows_bars(quiet, as_json):
        disable_progress_bars()
    rows = sentences if masking is None else objectives.masked_rows(masking, sentences)
    if not as_json:
        advice.print_before_training(description, sentences, model, chooses=dev is not None)
    before = score(model)
    memory: dict[str, Any] = {"gradient_checkpointing": True} if gradient_checkpointing else {}
    with advice.warnings_repeated():
        run = train_encoder(
            model,
            lambda model: maker.make(model, sentences, batch_size),
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
            force=force,
            overwrite=overwrite,
            show_progress_bar=shows_bars(quiet, as_json),
            **memory,
        )
    after = score(model)
    if run.best is not None and dev is not None and dev != UNLABELED:
        name = str(run.metric).removesuffix("_spearman_cosine")
        name += " (dev)" if name in after else ""  # a test file of the same name
        before[name], after[name] = 100 * run.curve[0][1], 100 * run.best
    _report(before, after, run, output, as_json)


def _report(before: dict[str, float], after: dict[str, float], run: TrainingRun, output: Path, as_json: bool) -> None:
    if as_json:
        curve = [[step, value] for step, value in run.curve]
        report = {"before": before, "after": after, "steps": run.steps, "best_step": run.best_step, "curve": curve}
        print_json(report | {"output": str(output), "seconds": run.seconds})
        return
    if before:
        print_scores("Spearman x 100", {"before": before, "after": after}, as_json=False)
    kept = f"weights of step {run.best_step} of {run.steps}" if run.best is not None else f"{run.steps} steps"
    if run.best_step == 0:
        kept = f"no step of {run.steps} was better than the base model, which is kept:"
    print_line(f"{kept} in {run.seconds:.0f} s, saved to {output}.")
