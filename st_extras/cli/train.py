"""``st-extras train``: parses the options, trains, and prints the scores. Losses are made in objectives.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.cli import advice, objectives, options
from st_extras.cli.console import print_json, print_line, print_scores, shows_bars
from st_extras.cli.evaluate import dev_name, sts_scorer
from st_extras.cli.options import AT_LEAST_ONE, POSITIVE
from st_extras.cli.sections import help_sections

if TYPE_CHECKING:
    from st_extras.training import TrainingRun

UNLABELED = "unlabeled"
"""The value of ``--dev`` that chooses the weights by the training sentences only."""
_SECTIONS = {
    "The objective": (
        *("set_", "complementary", "frequencies", "base", "base_set", "warmup_epochs"),
        *("phrases", "top_k", "augment", "language", "processes"),
    ),
    "The encoder": ("pooling", "layers", "max_seq_length", "dropout", "prompt_template", "dtype", "lora"),
    "The text": ("column", "limit", "keep_duplicates"),
    "The optimizer": ("loss_learning_rate", "eval_steps", "patience"),
    "Memory and speed": ("mini_batch_size", "bf16", "gradient_checkpointing", "length_buckets"),
    "Running": ("seed", "resume", "force", "overwrite", "quiet", "as_json", "help"),
}


@help_sections(_SECTIONS, "st-extras train simcse bert-base-uncased texts.txt -o trained --dev unlabeled")
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
    batch_size: Annotated[int, typer.Option(help="Sentences per step.", callback=AT_LEAST_ONE)] = 64,
    mini_batch_size: Annotated[
        int | None,
        typer.Option(
            help="Sentences that the encoder sees at a time, so that a large batch fits into memory; try 64.",
            callback=AT_LEAST_ONE,
        ),
    ] = None,
    learning_rate: Annotated[
        float,
        typer.Option("--learning-rate", "--lr", help="Initial learning rate; decays linearly to 0.", callback=POSITIVE),
    ] = 3e-5,
    loss_learning_rate: Annotated[
        float | None,
        typer.Option(
            "--loss-learning-rate",
            "--loss-lr",
            help="Initial learning rate of the loss's own parameters (decoder, head); default: --lr.",
            callback=POSITIVE,
        ),
    ] = None,
    max_steps: Annotated[
        int, typer.Option("--steps", help="Number of optimizer steps; -1: train for --epochs.", callback=options.STEPS)
    ] = -1,
    epochs: Annotated[float, typer.Option(help="Passes over the text, if --steps is -1.", callback=POSITIVE)] = 1.0,
    eval_steps: Annotated[
        int, typer.Option(help="Steps between evaluations and checkpoints.", callback=AT_LEAST_ONE)
    ] = 125,
    patience: Annotated[
        int | None, typer.Option(help="Stop after N evaluations in a row without improvement.", callback=AT_LEAST_ONE)
    ] = None,
    max_seq_length: options.MaxLength = None,
    pooling: options.Pooling = None,
    layers: options.Layers = None,
    dropout: options.Dropout = None,
    prompt_template: options.PromptTemplate = None,
    dtype: options.Dtype = None,
    length_buckets: options.LengthBuckets = None,
    keep_duplicates: Annotated[
        bool, typer.Option(help="Allow identical sentences in one batch, where they act as false negatives.")
    ] = False,
    set_: options.Setting = None,
    complementary: objectives.Complementary = None,
    frequencies: objectives.Frequencies = None,
    base: objectives.Base = None,
    base_set: objectives.BaseSetting = None,
    warmup_epochs: objectives.WarmupEpochs = None,
    phrases: objectives.Phrases = None,
    top_k: objectives.TopK = None,
    augment: objectives.Augment = None,
    language: objectives.Language = None,
    processes: objectives.Processes = None,
    seed: options.Seed = 42,
    bf16: Annotated[bool, typer.Option(help="Use bfloat16 autocast.")] = False,
    lora: Annotated[
        int | None,
        typer.Option(
            help="Train LoRA adapters of rank N and merge them at the end; try 16. Needs peft.", callback=options.LORA
        ),
    ] = None,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Save memory by computing activations twice.")
    ] = False,
    resume: options.Resume = False,
    force: options.Force = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train an encoder on unlabeled sentences.

    The result is saved as a plain SentenceTransformer.
    """
    from datasets import disable_progress_bars

    from st_extras import evaluation
    from st_extras.encoders import load_encoder, use_length_buckets
    from st_extras.encoders.adapters import lora_config
    from st_extras.text.corpus import stream_sentences
    from st_extras.training import check_output, train_encoder
    from st_extras.training.arguments import rates_of_the_loss
    from st_extras.training.run_folder import last_checkpoint

    if not resume:
        options.refuse_unread(context, "needs --resume; to replace an earlier training, give --overwrite", "force")
    check_output(output, resume=resume, overwrite=overwrite)
    checkpoint = last_checkpoint(output) if resume else None
    if lora is not None:
        lora_config(lora)
    # options named like an argument are passed as that argument: to Objective, load_encoder and train_encoder
    chosen = objectives.Objective(objective, set_ or (), **options.named_like(context, objectives.Objective))
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
    model = load_encoder(encoder, **options.named_like(context, load_encoder))
    masking = objectives.phrase_masking(chosen, model.tokenizer.mask_token, seed) if objective == "paser" else None
    checked = maker.prepare(model)
    if loss_learning_rate is not None:
        rates_of_the_loss(checked, model, loss_learning_rate)
    sentences = list(stream)
    description = advice.described_text(sentences)
    if dev == UNLABELED:
        evaluator = evaluation.UnlabeledSelectionEvaluator(sentences)
    if length_buckets is not None:
        use_length_buckets(model, length_buckets)
    if not shows_bars(quiet, as_json):
        disable_progress_bars()
    rows = sentences if masking is None else objectives.masked_rows(masking, sentences, processes)
    if not as_json:
        if checkpoint is not None:
            print_line(f"Resuming after step {checkpoint.rpartition('-')[2]}, from {checkpoint}.")
        advice.print_before_training(description, sentences, model, chooses=dev is not None)
    before = score(model)
    settings = options.named_like(context, train_encoder)
    settings |= {"output": output, "evaluator": evaluator, "show_progress_bar": shows_bars(quiet, as_json)}
    settings |= {"no_duplicates": objective != "paser" and not keep_duplicates}
    settings |= {"gradient_checkpointing": True} if gradient_checkpointing else {}
    with advice.warnings_repeated():
        run = train_encoder(model, lambda model: maker.make(model, sentences, batch_size), rows, **settings)
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
    print_line(f"{kept} in {run.seconds:.0f} s, saved to {output}. Only --resume needs its folder checkpoints.")
