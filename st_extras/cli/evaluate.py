"""``st-extras evaluate``: score an encoder on STS sets, or on tasks of MTEB."""

from __future__ import annotations

from typing import Annotated

import typer

from st_extras.cli.console import print_json, print_scores
from st_extras.cli.options import AnyEncoder, Json, Quiet, Sets, Sts
from st_extras.cli.postprocess import load_any
from st_extras.cli.scoring import percent


def evaluate(
    encoder: AnyEncoder,
    sts: Sts = "hub",
    sets: Sets = None,
    setting: Annotated[str, typer.Option(help='"all" pairs of a set at once, or "wmean" over its subsets.')] = "all",
    mteb: Annotated[
        list[str] | None,
        typer.Option(help="Name of an MTEB task, such as STS12; repeatable; in place of --sts. Needs the extra mteb."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score an encoder on STS sets (Spearman x 100), or on tasks of MTEB (main score x 100)."""
    bar = not (quiet or as_json)
    if mteb:
        if sets or sts != "hub" or setting != "all":
            raise ValueError("--mteb does not go with --sts, --sets or --setting: its tasks bring their own data.")
        from st_extras.evaluation.mteb import mteb_scores, mteb_tasks

        tasks = mteb_tasks(mteb)
        found = mteb_scores(load_any(encoder), tasks, show_progress_bar=bar)
        title, scores = "MTEB main score x 100", {name: 100 * score for name, score in found.items()}
    else:
        from st_extras.evaluation import SEVEN_STS, sts_evaluator

        evaluator = sts_evaluator(sets or SEVEN_STS, sts, setting=setting, show_progress_bar=bar)  # type: ignore[arg-type]
        title, scores = "Spearman x 100", percent(evaluator(load_any(encoder)))
    if as_json:
        print_json(scores)
    else:
        print_scores(title, {encoder: scores})
