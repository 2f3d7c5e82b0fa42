"""Every command's options: of two values of an option that takes one, none is dropped silently."""

from typing import Any

import pytest
import typer

from st_extras.cli.app import app


def commands(group: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name, command in group.commands.items():
        inner = (*words, name)
        found += commands(command, inner) if hasattr(command, "commands") else [(inner, command)]
    return found


COMMANDS = commands(typer.main.get_command(app))
SINGLE = [
    (words, max(option.opts, key=len))
    for words, command in COMMANDS
    for option in command.params
    if option.param_type_name == "option" and not (option.multiple or option.is_flag or option.is_eager)
]


@pytest.mark.parametrize(
    ("words", "option"), SINGLE, ids=lambda part: " ".join(part) if isinstance(part, tuple) else part
)
def test_an_option_given_twice_is_refused(run, words, option):
    code, _, err = run(*words, option, "1", option, "2")
    assert (code, f"{option} must be given once" in err) == (2, True), err


def test_options_of_which_there_may_be_several_are_taken(run):
    assert run("frequencies", "count", "ENC", "TEXT", "-o", "a.json", "--quiet")[0] == 0
    words = ("--add", "a.json", "--add", "a.json", "--quiet", "--quiet")
    code, _, err = run("frequencies", "count", "ENC", "TEXT", "-o", "b.json", *words)
    assert code == 0, err
