"""``st-extras``: all commands. What each of them does also takes a few lines of Python."""

from __future__ import annotations

import errno
import logging
import os
import sys

import typer
from safetensors import SafetensorError

from st_extras.cli.adapt import adapt
from st_extras.cli.adapt_search import adapt_search
from st_extras.cli.calibrate import calibrate
from st_extras.cli.console import discard_output, escape_output, one_line, print_error, speaks
from st_extras.cli.demo import demo
from st_extras.cli.doctor import doctor
from st_extras.cli.evaluate import evaluate
from st_extras.cli.messages import in_options, logged_in_options, option_names, running_command
from st_extras.cli.refine import refine, repal_app
from st_extras.cli.search import search
from st_extras.cli.sections import SectionedCommand
from st_extras.cli.train import train

WRONG_REQUEST = 2
FAILED_RUN = 1
INTERRUPTED = 130

FAILURES = (ValueError, ImportError, OSError, OverflowError, MemoryError, RuntimeError, SafetensorError)
"""What a user, their files or their machine can cause; any other exception is a fault of the program."""

_WRONG_PATH = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
_WRONG_NAME = {errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EROFS}

app = typer.Typer(
    name="st-extras",
    help="Adapt, train and refine sentence encoders without labels.",
    epilog="The tab key completes commands and options after: st-extras --install-completion",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich cuts long option names at 80 columns
)


def main() -> None:
    """Run the command line. What goes wrong ends in one line on stderr.

    The exit code is then 2 for a wrong request, 1 for a run that failed and 130 for one that was interrupted.
    """
    escape_output()
    code = 0
    try:
        try:
            _quiet_libraries()
            with logged_in_options(_option_names):
                app()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        if sys.stdout is not None:
            sys.stdout.flush()  # here, not when Python ends: the disk may be full, or nobody read on
    except BrokenPipeError:
        discard_output()
        code = FAILED_RUN
    except KeyboardInterrupt:
        code = INTERRUPTED
    except FAILURES as error:
        code = exit_code(error)
        if code != WRONG_REQUEST or speaks():  # what is wrong is so in every process
            text = one_line(error)
            print_error(in_options(text, _option_names()) if isinstance(error, ValueError) else text)
        discard_output()
    if code == INTERRUPTED and speaks():  # also where typer has caught it
        resumable = sys.argv[1:2] in (["train"], ["adapt"], ["adapt-search"])
        advice = (
            ": continue with the same command and --resume if it has saved anything, or start again with --overwrite."
        )
        print_error("Interrupted" + advice * resumable)
    sys.exit(code)


def _option_names() -> dict[str, str]:
    """Return the names of the options of the command that runs."""
    return option_names(running_command(typer.main.get_command(app), sys.argv[1:]))


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ended in ``error``, one of FAILURES."""
    if isinstance(error, OSError):
        return WRONG_REQUEST if isinstance(error, _WRONG_PATH) or error.errno in _WRONG_NAME else FAILED_RUN
    if isinstance(error, ValueError):
        training = sys.modules.get("st_extras.training")  # nothing diverged if this was never imported
        return FAILED_RUN if training is not None and isinstance(error, training.DivergenceError) else WRONG_REQUEST
    return WRONG_REQUEST if isinstance(error, ImportError | OverflowError) else FAILED_RUN


def _quiet_libraries() -> None:
    """Hide other libraries' bars and remarks, unless environment variables turn them on.

    The variables are read when the libraries are imported; importing them here would take seconds, even for --help.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    if not speaks() and logging.lastResort is not None:
        logging.lastResort.setLevel(logging.ERROR)  # of several processes, the first alone warns


for command in (demo, adapt, adapt_search, search, evaluate, calibrate, train, refine, doctor):
    app.command(cls=SectionedCommand)(command)
app.add_typer(repal_app, name="repal")
