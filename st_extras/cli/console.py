"""What the commands print: a table, one line of text, an error in one line, or one JSON object."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from st_extras.evaluation.geometry import MovedThreshold

_WIDTH_OF_FILES = 160
DEBUG = "ST_EXTRAS_DEBUG"
"""The environment variable with which the traceback of an error is shown before its line."""
_EXPLAINED: tuple[type[Exception], ...] = (OSError, ImportError)
"""Errors that name a file or a package, whoever raised them."""


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


class FailedStepError(Exception):
    """What was being done when code raised an error that does not explain itself, with its type and message."""

    def __init__(self, step: str, error: BaseException) -> None:
        super().__init__(f"{step} failed: {with_type(error)}; {DEBUG}=1 shows the traceback.")


@contextmanager
def named_step(step: str) -> Iterator[None]:
    """Let an error in the block say what was being done, unless it explains itself.

    The messages of this package do, and those of the operating system; not what another library or the user's own code
    raises, nor a fault of this package.

    Args:
        step: what is done in the block and with which options: "training with --trainer optim=sgd".

    Raises:
        FailedStepError: for any other error.
    """
    try:
        yield
    except (*_EXPLAINED, FailedStepError, typer.BadParameter.__base__):  # type: ignore[misc]  # click's UsageError
        raise
    except Exception as error:
        if isinstance(error, ValueError) and raised_here(error):
            raise
        raise FailedStepError(step, error) from error


def raised_here(error: BaseException) -> bool:
    """Return whether code of this package raised ``error``, or a function without Python code that it called."""
    module, trace = "", error.__traceback__
    while trace is not None:
        module, trace = str(trace.tb_frame.f_globals.get("__name__")), trace.tb_next
    return module.partition(".")[0] == "st_extras" and not isinstance(error, UnicodeError | json.JSONDecodeError)


def with_type(error: BaseException) -> str:
    """Return the type of ``error`` and its message, on one line and without a period."""
    text = " ".join(str(error).split()).removesuffix(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` on one line; with its type, unless it is this package's or the system's."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename!r}: {error.strerror}"
    elif not raised_here(error) or not text:
        text = with_type(error)
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
