"""``st-extras evaluate``: score encoders on STS sets, on labelled texts, or on tasks of MTEB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from st_extras.cli.console import print_json, print_scores
from st_extras.cli.options import Json, Quiet, Sets, Sts
from st_extras.cli.postprocess import load_any
from st_extras.cli.scoring import chosen_sets, percent

Score = Callable[[Any], dict[str, float]]


def evaluate(
    encoder: Annotated[
        list[str], typer.Argument(help="Folders or hub ids of encoders, plain or refined: a column of the table each.")
    ],
    sts: Sts = "hub",
    sets: Sets = None,
    setting: Annotated[str, typer.Option(help='"all" pairs of a set at once, or "wmean" over its subsets.')] = "all",
    labeled: Annotated[
        str | None,
        typer.Option(
            help="File of texts with a column label (.tsv, .csv, .jsonl, also .gz; .json, .parquet); in place of --sts."
        ),
    ] = None,
    mteb: Annotated[
        list[str] | None,
        typer.Option(help="Name of an MTEB task, such as STS12; repeatable; in place of --sts. Needs the extra mteb."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score encoders on STS sets (Spearman x 100), on labelled texts, or on tasks of MTEB (main score x 100)."""
    bar = not (quiet or as_json)
    if mteb and labeled is not None:
        raise ValueError("--mteb does not go with --labeled: score one after the other.")
    if (mteb or labeled is not None) and (sets or sts != "hub" or setting != "all"):
        option, why = ("--mteb", "its tasks bring their own data") if mteb else ("--labeled", "its file is the data")
        raise ValueError(f"{option} does not go with --sts, --sets or --setting: {why}.")
    if mteb:
        title, rows, score = "MTEB main score x 100", "task", _mteb(mteb, bar)
    elif labeled is not None:
        title, rows, score = "Labelled texts x 100", "metric", _labeled(labeled, bar)
    else:
        from st_extras.evaluation import sts_evaluator

        evaluator = sts_evaluator(chosen_sets(sets, sts), sts, setting=setting, show_progress_bar=bar)  # type: ignore[arg-type]
        title, rows, score = "Spearman x 100", "set", lambda model: percent(evaluator(model))
    columns = {name: score(load_any(name)) for name in encoder}
    if as_json:
        print_json(columns if len(encoder) > 1 else columns[encoder[0]])
    else:
        print_scores(title, columns, rows)


def _mteb(names: list[str], bar: bool) -> Score:
    """Return what finds the main score x 100 of each task."""
    from st_extras.evaluation.mteb import mteb_scores, mteb_tasks

    tasks = mteb_tasks(names)
    return lambda model: {name: 100 * score for name, score in mteb_scores(model, tasks, show_progress_bar=bar).items()}


def _labeled(file: str, bar: bool) -> Score:
    """Return what finds the metrics x 100 of the texts in a file."""
    from st_extras.evaluation import LabeledTextEvaluator, load_labeled_texts

    data = load_labeled_texts(file)
    evaluator = LabeledTextEvaluator(data.texts, data.labels, show_progress_bar=bar)
    return lambda model: {name: 100 * score for name, score in evaluator(model).items()}
