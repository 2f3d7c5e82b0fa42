"""What the commands print with."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


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
