"""``st-extras recipe``: the combination that did best here, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from st_extras.cli_train import (
    BatchSize,
    Bf16,
    Column,
    DevSet,
    Encoder,
    Layers,
    LearningRate,
    Limit,
    MaxLength,
    Pooling,
    Text,
)
from st_extras.console import Json, Quiet, percent, print_json, show


def recipe(
    encoder: Encoder,
    text: Text,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the trained and the refined model.")],
    column: Column = None,
    dev: Annotated[
        str | None, typer.Option(help='STS source (folder, .tsv, "hub") that chooses; default: the sentences alone do.')
    ] = None,
    dev_set: DevSet = "stsb_dev",
    test: Annotated[str | None, typer.Option(help="STS source of the seven sets, scored at every stage.")] = None,
    augmentations: Annotated[
        str, typer.Option(help='How the two views are made; "dropout+dropout" where the encoder cannot do these.')
    ] = "feature_cutoff+shuffle",
    whiten: Annotated[
        bool | None, typer.Option(help="Whiten before RepAL; default: where --dev is better for it, else not.")
    ] = None,
    batch_size: BatchSize = 64,
    learning_rate: LearningRate = 1e-4,
    steps: Annotated[int, typer.Option(help="Optimizer steps.")] = 400,
    eval_steps: Annotated[int, typer.Option(help="Steps between evaluations.")] = 25,
    max_length: MaxLength = None,
    pooling: Pooling = None,
    layers: Layers = None,
    seed: Annotated[int, typer.Option(help="Of data order, dropout and noise.")] = 42,
    bf16: Bf16 = False,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier run in --output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train with DCLR on ConSERT's views, whiten where it helps, refine with RepAL's sentence term: what did best in
    the benchmarks.
    """
    from st_extras.evaluation import SEVEN_STS, load_sts, sts_evaluator
    from st_extras.modules.loading import load_encoder
    from st_extras.recipes import LAMBDA_1, train_and_refine
    from st_extras.runs import check_output
    from st_extras.text.corpus import read_sentences

    check_output(output, overwrite=overwrite)
    sentences = read_sentences(text, column=column, limit=limit)
    pairs = None if dev is None else load_sts(dev_set, dev)
    tester = None if test is None else sts_evaluator(SEVEN_STS, test, write_csv=False)
    model = load_encoder(encoder, pooling=pooling, layers=layers, max_seq_length=max_length)  # type: ignore[arg-type]
    columns: dict[str, dict[str, float]] = {"before": percent(tester(model)) if tester else {}}
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
        overwrite=overwrite,
        show_progress_bar=not (quiet or as_json),
    )
    for name, stage in (("trained", model), ("refined", made.model)):
        columns[name] = percent(tester(stage)) if tester else {}
    if made.tuning is not None:
        scores = (made.run.curve[0][1], made.run.best or 0.0, made.tuning.spearman)
        for figures, score in zip(columns.values(), scores, strict=True):
            figures[dev_set] = 100 * score
    weight = LAMBDA_1 if made.tuning is None else made.tuning.lambda_1
    report: dict[str, Any] = {"best_step": made.run.best_step, "whitened": made.whitened, "lambda_1": weight}
    report["output"] = str(output)
    if as_json:
        print_json(columns | report)
        return
    if columns["before"]:
        show("Spearman x 100", columns)
    whitened = "whitened" if made.whitened else "not whitened"
    found = f"weights of step {made.run.best_step} of {made.run.steps}, {whitened}, lambda_1 {weight:g}"
    saved = f'saved to {output}: SentenceTransformer("{output}/encoder"), st_extras.load("{output}/refined")'
    Console().print(f"{found}, {saved}", highlight=False, soft_wrap=True)
