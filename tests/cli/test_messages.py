"""Messages of the package name arguments of Python; those of the command line name its options."""

import logging

import pytest
import typer

from st_extras.cli.app import app
from st_extras.cli.messages import in_options, logged_in_options, option_names, running_command


def names(*words: str) -> dict[str, str]:
    return option_names(running_command(typer.main.get_command(app), words))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("max_steps must be 1: or set overwrite=True.", "--steps must be 1: or set --overwrite."),
        ("sentences must hold text, got output.", "TEXT must hold text, got output."),
        ("Load it with dtype='float32' and bf16=True.", "Load it with --dtype float32 and --bf16."),
        ("Load it with dropout=0.1, or x=(1, 2).", "Load it with --dropout 0.1, or x=(1, 2)."),
        (
            "Other: max_steps is 4 and was 1; loss.seed is 1 and was 2.",
            "Other: --steps is 4 and was 1; loss.seed is 1 and was 2.",
        ),
        ("temperature must be 1, got text=.", "temperature must be 1, got text=."),
    ],
)
def test_arguments_become_the_options_of_the_command(message, expected):
    assert in_options(message, names("train", "simcse", "encoder")) == expected


def test_each_command_has_its_names():
    assert names("repal", "tune")["sts"] == "--sts"
    assert "sts" not in names("train")


def test_the_packages_log_messages_are_translated_and_no_others(caplog):
    with logged_in_options(lambda: names("train")):
        logging.getLogger("st_extras.losses").warning("Set %s.", "dropout=0.1")
        logging.getLogger("other").warning("Set %s.", "dropout=0.1")
    logging.getLogger("st_extras.losses").warning("Set %s.", "dropout=0.1")
    assert caplog.messages == ["Set --dropout 0.1.", "Set dropout=0.1.", "Set dropout=0.1."]
