"""What the commands print: a table of scores, one line of text, an error in one line, or one JSON object."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from safetensors import SafetensorError

_WIDTH_OF_FILES = 160
_LONGEST_NAME = 24  # of an encoder in a table
_NOT_OURS = (UnicodeError, json.JSONDecodeError, OverflowError, MemoryError, RuntimeError, SafetensorError)
"""Errors of other libraries, whose messages are unclear without their type."""


def speaks() -> bool:
    """Whether this process prints: the first of those that a launcher started."""
    return os.environ.get("RANK", "0") == "0"


def shows_bars(quiet: bool, as_json: bool) -> bool:
    """Whether this process shows progress bars."""
    return speaks() and not (quiet or as_json)


def print_scores(title: str, columns: dict[str, dict[str, float]], rows: str = "set", *, as_json: bool) -> None:
    """Print one row per STS set, or what ``rows`` calls them, and one column per encoder or state of one."""
    if as_json:
        print_json(columns)
        return
    short = short_names(list(columns))
    cells = [[name, *(f"{values[name]:.2f}" for values in columns.values())] for name in next(iter(columns.values()))]
    print_table(title, [rows, *short.values()], cells, justify="right")
    print_legend(short)


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return a name of at most 24 characters for each path or hub id: its last part, numbered where two are equal."""
    names: dict[str, str] = {}
    for path in paths:
        name = path if len(path) <= _LONGEST_NAME else PurePath(path).name
        name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        others = (f"{name[: _LONGEST_NAME - 4]} ({number})" for number in itertools.count(2))
        names[path] = next(one for one in itertools.chain([name], others) if one not in names.values())
    return names


def print_legend(names: Mapping[str, str]) -> None:
    """Print what the names stand for that are not the paths themselves."""
    for path, name in names.items():
        if name != path:
            print_line(f"{name}: {path}")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, justify: Literal["left", "right"] = "left"
) -> None:
    """Print a table of texts; the first column names the rows. Nothing is left out in a narrow terminal.

    Columns that do not fit follow in another table below, with the first column again; the first column, and one that
    is too wide alone, are wrapped. In a file or a pipe, lines are long.
    """
    if not speaks():
        return
    console = table_console()
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    widths[0] = min(widths[0], max(console.width // 3, console.width - sum(widths[1:]) - 3 * len(widths) - 1))
    left = console.width - widths[0] - 4  # beside the first column and the border
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    for part in _fitting([min(width, left - 3) for width in widths[1:]], left):
        table = Table()
        for number in (0, *part):
            width = widths[0] if number == 0 else min(widths[number], left - 3)
            side = justify if number else "left"
            table.add_column(columns[number], justify=side, overflow="fold", width=max(1, width))
        for row in rows:
            table.add_row(*(Text(row[number]) for number in (0, *part)))
        console.print(table)


def _fitting(widths: Sequence[int], space: int) -> list[list[int]]:
    """Return the numbers of the columns, from 1, in groups that fit beside each other, with 3 signs for the border."""
    groups: list[list[int]] = [[]]
    used = 0
    for number, width in enumerate(widths, start=1):
        if groups[-1] and used + width + 3 > space:
            groups.append([])
            used = 0
        groups[-1].append(number)
        used += width + 3
    return groups


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
    """Print one line on stderr, in red on a terminal, below a progress bar that is still open."""
    bars: Any = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    with suppress(BrokenPipeError):
        for bar in list(getattr(bars, "_instances", ())):
            bar.close()  # which ends its line
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
