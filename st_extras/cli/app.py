"""``st-extras``: the commands put together. Everything they do takes a few lines of Python too."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import typer

from st_extras.cli.adapt import adapt
from st_extras.cli.console import discard_output, escape_output, print_error
from st_extras.cli.demo import demo
from st_extras.cli.doctor import doctor
from st_extras.cli.evaluate import evaluate
from st_extras.cli.failures import FAILED_RUN, FAILURES, INTERRUPTED, exit_code, one_line
from st_extras.cli.fitting import center_app, locality_app, sif_app, whiten_app
from st_extras.cli.frequencies import frequencies_app
from st_extras.cli.postprocess import repal_app
from st_extras.cli.statistics import statistics_app
from st_extras.cli.train import train

app = typer.Typer(
    name="st-extras",
    help="Train and refine sentence encoders without labels.",
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
        print_error(one_line(error))
        discard_output()
    if code == INTERRUPTED:  # also where typer has caught it
        goes_on = "--resume" in _options(sys.argv[1:])
        print_error(
            "Interrupted" + (": the same command with --resume goes on from what it saved, if anything." * goes_on)
        )
    sys.exit(code)


def _options(words: list[str]) -> set[str]:
    """Return the options of the command that these words of a command line name."""
    command: Any = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return {option for parameter in command.params for option in parameter.opts}


def _quiet_libraries() -> None:
    """Hide other libraries' bars and remarks, unless the environment asks for them.

    The variables are read when the libraries are imported; importing them here would take seconds, even for --help.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)


app.command()(demo)
app.command()(train)
app.command()(adapt)
app.command()(evaluate)
app.command()(doctor)
app.add_typer(repal_app, name="repal")
app.add_typer(whiten_app, name="whiten")
app.add_typer(center_app, name="center")
app.add_typer(locality_app, name="locality")
app.add_typer(sif_app, name="sif")
app.add_typer(statistics_app, name="statistics")
app.add_typer(frequencies_app, name="frequencies")
