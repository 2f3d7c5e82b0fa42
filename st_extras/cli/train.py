"""``st-extras train``: arguments in, training, scores out. Losses are made in objectives.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.cli import advice, options
from st_extras.cli.console import print_json, print_line, print_scores
from st_extras.cli.objectives import (
    OBJECTIVES,
    DCLROptions,
    Objective,
    PaSeROptions,
    SLTFAIOptions,
    loss_maker,
    training_rows,
)
from st_extras.cli.scoring import dev_name, sts_scorer

if TYPE_CHECKING:
    from st_extras.training import TrainingRun

UNLABELED = "unlabeled"
"""The value of ``--dev`` that chooses the weights by the training sentences alone."""


def train(
    objective: Annotated[str, typer.Argument(help=f"What to train with: {', '.join(OBJECTIVES)}.")],
    encoder: options.Encoder,
    text: options.Text,
    output: options.Output,
    column: options.Column = None,
    limit: options.Limit = None,
    max_line: options.MaxLine = options.LONGEST_LINE,
    dev: options.TrainDev = None,
    dev_set: options.DevSet = None,
    test: options.Test = None,
    batch_size: options.BatchSize = 64,
    mini_batch_size: options.MiniBatchSize = None,
    learning_rate: options.LearningRate = 3e-5,
    loss_learning_rate: options.LossLearningRate = None,
    steps: options.Steps = -1,
    epochs: options.Epochs = 1.0,
    eval_steps: options.EvalSteps = 125,
    patience: options.Patience = None,
    max_length: options.MaxLength = None,
    pooling: options.Pooling = None,
    layers: options.Layers = None,
    dropout: options.Dropout = None,
    prompt_template: options.PromptTemplate = None,
    dtype: options.Dtype = None,
    length_buckets: options.LengthBuckets = None,
    keep_duplicates: options.KeepDuplicates = False,
    set_: options.Setting = None,
    complementary: options.Complementary = None,
    frequencies: options.Frequencies = None,
    base: options.Base = None,
    base_set: options.BaseSetting = None,
    warmup_epochs: options.WarmupEpochs = None,
    phrases: options.Phrases = None,
    top_k: options.TopK = None,
    augment: options.Augment = None,
    language: options.Language = None,
    processes: options.Processes = None,
    seed: options.Seed = 42,
    bf16: options.Bf16 = False,
    lora: options.Lora = None,
    gradient_checkpointing: options.GradientCheckpointing = False,
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

    from st_extras.encoders import load_encoder, use_length_buckets
    from st_extras.encoders.adapters import lora_config
    from st_extras.text.corpus import read_sentences
    from st_extras.training import check_output, train_encoder

    check_output(output, resume=resume, force=force, overwrite=overwrite)
    if lora is not None:
        lora_config(lora)
    chosen = Objective(
        objective,
        set_ or (),
        DCLROptions(complementary),
        SLTFAIOptions(frequencies, base, warmup_epochs, base_set),
        PaSeROptions(phrases, top_k, augment, language, processes),
        mini_batch_size,
    )
    sentences = read_sentences(text, column=column, limit=limit, max_line=max_line)
    said = advice.described_text(sentences)
    make_loss = loss_maker(chosen, sentences, batch_size)
    evaluator = _evaluator(dev, dev_set, sentences)
    score = sts_scorer(test)
    model = load_encoder(
        encoder,
        pooling=pooling,  # type: ignore[arg-type]
        layers=layers,
        max_seq_length=max_length,
        dropout=dropout,
        prompt_template=prompt_template,
        dtype=dtype,  # type: ignore[arg-type]
    )
    if length_buckets is not None:
        use_length_buckets(model, length_buckets)
    if quiet or as_json:
        disable_progress_bars()
    rows = training_rows(chosen, sentences, model.tokenizer.mask_token, seed)
    if not as_json:
        advice.say_before_training(said, sentences, model, chooses=dev is not None)
    before = score(model)
    saving: dict[str, Any] = {"gradient_checkpointing": True} if gradient_checkpointing else {}
    with advice.warnings_repeated():
        run = train_encoder(
            model,
            make_loss,
            rows,
            output,
            evaluator=evaluator,
            batch_size=batch_size,
            learning_rate=learning_rate,
            loss_learning_rate=loss_learning_rate,
            max_steps=steps,
            epochs=epochs,
            eval_steps=eval_steps,
            patience=patience,
            seed=seed,
            bf16=bf16,
            lora=lora,
            no_duplicates=chosen.has_negatives and not keep_duplicates,
            resume=resume,
            force=force,
            overwrite=overwrite,
            show_progress_bar=not (quiet or as_json),
            **saving,
        )
    after = score(model)
    if run.best is not None and dev is not None and dev != UNLABELED:
        name = dev_name(dev_set, dev)
        name += " (dev)" if name in after else ""  # a test file of the same name
        before[name], after[name] = 100 * run.curve[0][1], 100 * run.best
    _report(before, after, run, output, as_json)


def _evaluator(dev: str | None, dev_set: str | None, sentences: list[str]) -> Any:
    """What chooses the weights: a labelled set, the sentences alone, or nothing."""
    from st_extras.evaluation import UnlabeledSelectionEvaluator, sts_evaluator

    if dev is None:
        return None
    if dev == UNLABELED:
        return UnlabeledSelectionEvaluator(sentences)
    return sts_evaluator(dev_name(dev_set, dev), dev)


def _report(before: dict[str, float], after: dict[str, float], run: TrainingRun, output: Path, as_json: bool) -> None:
    if as_json:
        curve = [[step, value] for step, value in run.curve]
        report = {"before": before, "after": after, "steps": run.steps, "best_step": run.best_step, "curve": curve}
        print_json(report | {"output": str(output), "seconds": run.seconds})
        return
    if before:
        print_scores("Spearman x 100", {"before": before, "after": after})
    kept = f"weights of step {run.best_step} of {run.steps}" if run.best is not None else f"{run.steps} steps"
    print_line(f"{kept} in {run.seconds:.0f} s, saved to {output}. Its folder checkpoints serves --resume alone.")
