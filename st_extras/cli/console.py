"""What the commands print: a table of scores, one line of text, or one JSON object."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from contextlib import suppress
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

_WIDTH_OF_FILES = 160


def print_scores(title: str, columns: dict[str, dict[str, float]], rows: str = "set") -> None:
    """Print a table with one row per STS set, or what ``rows`` calls them, and one column per state of the encoder."""
    table = Table(title=title, title_justify="left")
    table.add_column(rows)
    for name in columns:
        table.add_column(name, justify="right")
    for row in next(iter(columns.values())):
        table.add_row(row, *(f"{values[row]:.2f}" for values in columns.values()))
    _print(table)


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table of texts; the first column names the rows. In a narrow terminal, it and the last one wrap."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, no_wrap=column not in (columns[0], columns[-1]))
    for row in rows:
        table.add_row(*row)
    _print(table)


def _print(table: Table) -> None:
    """Print a table; in a file or a pipe, where no terminal limits the width, on long lines."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_FILES
    console.print(table)


def print_line(text: str, *, to_stderr: bool = False) -> None:
    """Print ``text`` on one line, however long it is."""
    Console(stderr=to_stderr).print(text, markup=False, highlight=False, soft_wrap=True)


def print_error(message: str) -> None:
    """Print one line on stderr, in red on a terminal."""
    with suppress(BrokenPipeError):
        Console(stderr=True).print("Error:", message, style="red", markup=False, highlight=False, soft_wrap=True)


def print_json(report: dict[str, Any]) -> None:
    """Print one JSON object; numbers that are not finite, which JSON does not have, become null."""
    typer.echo(json.dumps(_finite(report), allow_nan=False))


def escape_output() -> None:
    """Write what stdout cannot encode as an escape, so that a report does not fail after the work was done."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Drop what stdout still holds, so that Python does not complain about it when it ends."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
