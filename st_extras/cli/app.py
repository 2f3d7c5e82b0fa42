"""``st-extras``: all commands. What each of them does also takes a few lines of Python."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import traceback
from typing import Any

import typer

from st_extras.cli.adapt import adapt
from st_extras.cli.adapt_search import adapt_search
from st_extras.cli.console import DEBUG, one_line, print_error, speaks
from st_extras.cli.demo import demo
from st_extras.cli.evaluate import evaluate
from st_extras.cli.options import Command
from st_extras.cli.search import search
from st_extras.cli.train import train

WRONG_REQUEST = 2
FAILED_RUN = 1
INTERRUPTED = 130

_WRONG_LINE: Any = typer.BadParameter.__base__  # click's UsageError, wherever this version of typer has click
_WRONG_PATH = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
_WRONG_NAME = {errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EROFS}

app = typer.Typer(
    name="st-extras",
    help="Better sentence embeddings without labels, for Sentence Transformers: adapt an encoder to your text, search "
    "with it, or train one with any of six papers' losses.",
    epilog="The tab key completes commands and options after: st-extras --install-completion",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which fills the lines of a paragraph
)
for command in (demo, adapt, adapt_search, search, evaluate, train):
    app.command(cls=Command)(command)


def main() -> None:
    """Run the command line. What goes wrong ends in one line on stderr.

    The exit code is then 2 for a wrong request, 1 for a run that failed and 130 for one that was interrupted. With
    ST_EXTRAS_DEBUG=1 in the environment, the traceback comes before the line.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a report must not fail after the work was done
        sys.stdout.reconfigure(errors="backslashreplace")
    _quiet_libraries()
    code, message = 0, ""
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # here, not when Python ends: the disk may be full, or nobody read on
    except BrokenPipeError:
        code = FAILED_RUN
    except KeyboardInterrupt:
        code = INTERRUPTED
    except _WRONG_LINE as error:
        code, message = WRONG_REQUEST, _about_the_line(error)
    except Exception as error:
        code, message = exit_code(error), one_line(error)
        if os.environ.get(DEBUG, "0") != "0":
            traceback.print_exception(error)
    if code == INTERRUPTED:  # also where typer has caught it
        message = "Interrupted."  # a run that can be resumed has logged so
    if message and (code == FAILED_RUN or speaks()):  # a run may fail in one process alone
        print_error(message)
    if code:
        _discard_output()
    sys.exit(code)


def _about_the_line(error: Any) -> str:
    """Return what is wrong with a command line, in one line."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    is_unknown = message.startswith("No such option")
    return f"{message}; put -- before a text that begins with a hyphen." if is_unknown else f"{message}."


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ended in ``error``."""
    if isinstance(error, OSError):
        return WRONG_REQUEST if isinstance(error, _WRONG_PATH) or error.errno in _WRONG_NAME else FAILED_RUN
    if isinstance(error, ValueError):
        training = sys.modules.get("st_extras.training")  # nothing diverged if this was never imported
        return FAILED_RUN if training is not None and isinstance(error, training.DivergenceError) else WRONG_REQUEST
    return WRONG_REQUEST if isinstance(error, ImportError) else FAILED_RUN


def _quiet_libraries() -> None:
    """Hide other libraries' bars and remarks, unless environment variables turn them on.

    The variables are read when the libraries are imported; importing them here would take seconds, even for --help.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    if not speaks() and logging.lastResort is not None:
        logging.lastResort.setLevel(logging.ERROR)  # of several processes, the first alone warns


def _discard_output() -> None:
    """Drop what stdout still holds, so that Python does not complain about it when it ends."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
