"""``st-extras demo``: sample files to try the other commands with."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from st_extras.cli.console import print_json, print_line
from st_extras.cli.options import Json


def demo(
    folder: Annotated[Path, typer.Argument(help="New folder for the files.")] = Path("samples"),
    as_json: Json = False,
) -> None:
    """Write sample files to a new folder: text, graded pairs, labels, a search collection.

    They come with the package, as the encoder "demo" does with the extra demo, so that all works offline.
    """
    from st_extras.samples import write_samples

    written = [str(path) for path in write_samples(folder)]
    if as_json:
        print_json({"files": written})
    else:
        print_line(f"Written: {', '.join(written)}. Try: st-extras adapt demo {quote(written[0])} -o my-encoder")
