"""What the commands print: a table, one line of text, an error in one line, or one JSON object."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from safetensors import SafetensorError

if TYPE_CHECKING:
    from st_extras.evaluation.geometry import MovedThreshold

_WIDTH_OF_FILES = 160
_NOT_OURS = (UnicodeError, json.JSONDecodeError, OverflowError, MemoryError, RuntimeError, SafetensorError)
"""Errors of other libraries, whose messages are unclear without their type."""


def speaks() -> bool:
    """Whether this process prints: the first of those that a launcher started."""
    return os.environ.get("RANK", "0") == "0"


def shows_bars(quiet: bool, as_json: bool) -> bool:
    """Whether this process shows progress bars."""
    return speaks() and not (quiet or as_json)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    justify: Literal["left", "right"] = "left",
) -> None:
    """Print a table, as wide as the terminal, and wide in a file or a pipe; cells that do not fit are folded.

    Args:
        title: of the table; it may be empty.
        columns: their titles.
        rows: a cell for each column.
        justify: side of the cells of all columns but the first.
    """
    if not speaks():
        return
    console = table_console()
    if title:
        console.print(title, markup=False, highlight=False, soft_wrap=True)
    table = Table()
    for number, column in enumerate(columns):
        table.add_column(Text(column), justify=justify if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    console.print(table)


def table_console() -> Console:
    """Return a console for tables: as wide as the terminal, and wide in a file or a pipe."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_FILES
    return console


def print_line(text: str, *, to_stderr: bool = False) -> None:
    """Print ``text`` on one line, however long it is."""
    if speaks():
        Console(stderr=to_stderr).print(text, markup=False, highlight=False, soft_wrap=True)


def print_error(message: str) -> None:
    """Print one line on stderr, in red on a terminal."""
    with suppress(BrokenPipeError):
        Console(stderr=True).print("Error:", message, style="red", markup=False, highlight=False, soft_wrap=True)


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` on one line; for an error of another library with its type."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename!r}: {error.strerror}"
    text = " ".join(text.split())
    if isinstance(error, _NOT_OURS) or not text:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if text.endswith(".") else f"{text}."


def threshold_line(moved: MovedThreshold, before: str, after: str) -> str:
    """Return where a threshold moves, in a sentence; ``before`` and ``after`` say of what it is."""
    old = f"{moved.before:.2f}" if moved.before == round(moved.before, 2) else f"{moved.before:g}"
    if moved.after is None:
        which = "No pair" if not moved.above else "Each pair"
        return f"Threshold: {which} of {moved.pairs:,} lies above {old} {before}."
    new = f"{moved.after:.2f}" if moved.after == round(moved.after, 2) else f"{moved.after:g}"
    return (
        f"Threshold: {old} {before} is {new} {after}: as many pairs lie above it "
        f"({moved.above:,} of the {moved.pairs:,} pairs compared)."
    )


def print_json(report: dict[str, Any]) -> None:
    """Print one JSON object; numbers that are not finite, which JSON does not have, become null."""
    from st_extras.files import finite_json

    if speaks():
        typer.echo(json.dumps(finite_json(report), allow_nan=False))
