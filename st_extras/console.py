"""What the commands share: options that all have, and what they print with."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars (none with --json either).")]


def show(title: str, columns: dict[str, dict[str, float]]) -> None:
    """A table with one row a metric and one column a state (before, after)."""
    table = Table(title=title, title_justify="left")
    table.add_column("set")
    for name in columns:
        table.add_column(name, justify="right")
    for row in next(iter(columns.values())):
        table.add_row(row, *(f"{values[row]:.2f}" for values in columns.values()))
    Console().print(table)


def percent(metrics: dict[str, float]) -> dict[str, float]:
    """Spearman x 100 by the sets' names."""
    return {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}
