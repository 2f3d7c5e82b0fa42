"""``st-extras recipe``: training and refinement in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from st_extras.cli import options
from st_extras.cli.console import print_json, print_line, print_scores
from st_extras.cli.scoring import sts_scorer

if TYPE_CHECKING:
    from st_extras.training import Refined


def recipe(
    encoder: options.Encoder,
    text: options.Text,
    output: options.Output,
    column: options.Column = None,
    limit: options.Limit = None,
    max_line: options.MaxLine = options.LONGEST_LINE,
    dev: options.RecipeDev = None,
    dev_set: options.DevSet = "stsb_dev",
    test: options.Test = None,
    augmentations: options.Augmentations = "feature_cutoff+shuffle",
    whiten: options.Whiten = None,
    batch_size: options.BatchSize = 64,
    learning_rate: options.LearningRate = 1e-4,
    steps: Annotated[
        int, typer.Option(help="Number of optimizer steps; -1: one pass over the text.", callback=options.STEPS)
    ] = 400,
    eval_steps: options.EvalSteps = 25,
    max_length: options.MaxLength = None,
    pooling: options.Pooling = None,
    layers: options.Layers = None,
    dropout: options.Dropout = None,
    prompt_template: options.PromptTemplate = None,
    dtype: options.Dtype = None,
    seed: options.Seed = 42,
    bf16: options.Bf16 = False,
    lora: options.Lora = None,
    gradient_checkpointing: options.GradientCheckpointing = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train with DCLR, then refine with RepAL.

    Trains on ConSERT's views, then whitens if that helps and applies RepAL's sentence term. See the results in the
    documentation.
    """
    from st_extras.encoders import load_encoder
    from st_extras.encoders.adapters import lora_config
    from st_extras.evaluation import load_sts
    from st_extras.text.corpus import read_sentences
    from st_extras.training import check_output, train_and_refine

    check_output(output, overwrite=overwrite)
    if lora is not None:
        lora_config(lora)
    sentences = read_sentences(text, column=column, limit=limit, max_line=max_line)
    pairs = None if dev is None else load_sts(dev_set, dev)
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
    before = score(model)
    made = train_and_refine(
        model,
        sentences,
        output,
        dev=pairs,
        augmentations=augmentations.split("+"),
        whiten=whiten,
        learning_rate=learning_rate,
        max_steps=steps,
        eval_steps=eval_steps,
        batch_size=batch_size,
        seed=seed,
        bf16=bf16,
        lora=lora,
        overwrite=overwrite,
        show_progress_bar=not (quiet or as_json),
        **({"gradient_checkpointing": True} if gradient_checkpointing else {}),
    )
    scores = {"before": before, "trained": score(model), "refined": score(made.model)}
    if made.tuning is not None:
        dev_scores = (made.run.curve[0][1], made.run.best or 0.0, made.tuning.spearman)
        for stage, value in zip(scores.values(), dev_scores, strict=True):
            stage[dev_set] = 100 * value
    _report(scores, made, output, as_json)


def _report(scores: dict[str, dict[str, float]], made: Refined, output: Path, as_json: bool) -> None:
    from st_extras.training.recipe import UNTUNED_LAMBDA_1

    run = made.run
    lambda_1 = UNTUNED_LAMBDA_1 if made.tuning is None else made.tuning.lambda_1
    if as_json:
        summary = {"best_step": run.best_step, "whitened": made.whitened, "lambda_1": lambda_1, "output": str(output)}
        print_json(scores | summary)
        return
    if scores["before"]:
        print_scores("Spearman x 100", scores)
    whitened = "whitened" if made.whitened else "not whitened"
    found = f"weights of step {run.best_step} of {run.steps}, {whitened}, lambda_1 {lambda_1:g}"
    how = f'SentenceTransformer("{output}/encoder"), st_extras.load("{output}/refined")'
    print_line(f"{found}, saved to {output}: {how}")
