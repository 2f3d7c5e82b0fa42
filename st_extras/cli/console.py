"""What the commands share: options that all have, and what they print with."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars but the model card's (as with --json).")]


def show(title: str, columns: dict[str, dict[str, float]]) -> None:
    """A table with one row a metric and one column a state (before, after)."""
    table = Table(title=title, title_justify="left")
    table.add_column("set")
    for name in columns:
        table.add_column(name, justify="right")
    for row in next(iter(columns.values())):
        table.add_row(row, *(f"{values[row]:.2f}" for values in columns.values()))
    Console().print(table)


def print_json(report: dict[str, Any]) -> None:
    """One JSON object; numbers that are not finite, which JSON does not know, are null."""
    typer.echo(json.dumps(_finite(report), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def percent(metrics: dict[str, float]) -> dict[str, float]:
    """Spearman x 100 by the sets' names."""
    return {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}
