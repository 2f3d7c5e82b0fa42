"""``st-extras evaluate``: score an encoder on STS sets, on labelled texts, or on tasks of MTEB."""

from __future__ import annotations

from typing import Annotated

import typer

from st_extras.cli.console import print_json, print_scores
from st_extras.cli.options import AnyEncoder, Json, Quiet, Sets, Sts
from st_extras.cli.postprocess import load_any
from st_extras.cli.scoring import chosen_sets, percent


def evaluate(
    encoder: AnyEncoder,
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
    """Score an encoder on STS sets (Spearman x 100), on labelled texts, or on tasks of MTEB (main score x 100)."""
    bar = not (quiet or as_json)
    if mteb and labeled is not None:
        raise ValueError("--mteb does not go with --labeled: score one after the other.")
    if (mteb or labeled is not None) and (sets or sts != "hub" or setting != "all"):
        option, why = ("--mteb", "its tasks bring their own data") if mteb else ("--labeled", "its file is the data")
        raise ValueError(f"{option} does not go with --sts, --sets or --setting: {why}.")
    if mteb:
        title, rows, scores = "MTEB main score x 100", "task", _mteb(encoder, mteb, bar)
    elif labeled is not None:
        title, rows, scores = "Labelled texts x 100", "metric", _labeled(encoder, labeled, bar)
    else:
        from st_extras.evaluation import sts_evaluator

        evaluator = sts_evaluator(chosen_sets(sets, sts), sts, setting=setting, show_progress_bar=bar)  # type: ignore[arg-type]
        title, rows, scores = "Spearman x 100", "set", percent(evaluator(load_any(encoder)))
    if as_json:
        print_json(scores)
    else:
        print_scores(title, {encoder: scores}, rows)


def _mteb(encoder: str, names: list[str], bar: bool) -> dict[str, float]:
    """Return the main score x 100 of each task."""
    from st_extras.evaluation.mteb import mteb_scores, mteb_tasks

    tasks = mteb_tasks(names)
    found = mteb_scores(load_any(encoder), tasks, show_progress_bar=bar)
    return {name: 100 * score for name, score in found.items()}


def _labeled(encoder: str, file: str, bar: bool) -> dict[str, float]:
    """Return the metrics x 100 of the texts in a file."""
    from st_extras.evaluation import LabeledTextEvaluator, load_labeled_texts

    data = load_labeled_texts(file)
    evaluator = LabeledTextEvaluator(data.texts, data.labels, show_progress_bar=bar)
    return {name: 100 * score for name, score in evaluator(load_any(encoder)).items()}
