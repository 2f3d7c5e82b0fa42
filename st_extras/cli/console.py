"""What the commands print: a table of scores, one line of text, an error in one line, or one JSON object."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError

_WIDTH_OF_FILES = 160
_NOT_OURS = (UnicodeError, json.JSONDecodeError, OverflowError, MemoryError, RuntimeError, SafetensorError)
"""Errors of other libraries, whose messages are unclear without their type."""


def speaks() -> bool:
    """Whether this process prints: of several that a launcher started, the first."""
    return os.environ.get("RANK", "0") == "0"


def shows_bars(quiet: bool, as_json: bool) -> bool:
    """Whether this process shows progress bars."""
    return speaks() and not (quiet or as_json)


def print_scores(title: str, columns: dict[str, dict[str, float]], rows: str = "set", *, as_json: bool) -> None:
    """Print one row per STS set, or what ``rows`` calls them, and one column per state of the encoder."""
    if as_json:
        print_json(columns)
        return
    names = next(iter(columns.values()))
    cells = [[name, *(f"{values[name]:.2f}" for values in columns.values())] for name in names]
    print_table(title, [rows, *columns], cells, justify="right")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, justify: Literal["left", "right"] = "left"
) -> None:
    """Print a table of texts; the first column names the rows. In a narrow terminal, it and the last one wrap.

    In a file or a pipe, where no terminal limits the width, lines are long.
    """
    if not speaks():
        return
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        last = number == len(columns) - 1
        table.add_column(column, no_wrap=number > 0 and not last, justify=justify if number else "left")
    for row in rows:
        table.add_row(*row)
    table_console().print(table)


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


def print_result(report: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print what a command did: ``report`` as JSON, or ``text`` on one line."""
    if as_json:
        print_json(report)
    else:
        print_line(text)


def print_json(report: dict[str, Any]) -> None:
    """Print one JSON object; numbers that are not finite, which JSON does not have, become null."""
    if speaks():
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
