"""Every command with the arguments that it needs, and every option of every command."""

import functools
import inspect
import shlex
from collections.abc import Iterator
from typing import Any, get_args

import typer

from st_extras.cli.app import app

COMMANDS: dict[str, tuple[str, ...]] = {
    "demo": ("demo",),
    "train": ("train", "simcse", "ENC", "TEXT", "-o", "out"),
    "adapt": ("adapt", "ENC", "TEXT", "-o", "out"),
    "adapt-search": ("adapt-search", "ENC", "TEXT", "-o", "out"),
    "search": ("search", "ENC", "TEXT", "a cat"),
    "evaluate": ("evaluate", "ENC"),
}
"""The words of each command, with ENC, TEXT and STS as in ``run_in``."""


def parameters(name: str) -> list[Any]:
    """The parameters of a command, as click knows them."""
    return list(command(name).params)


@functools.cache
def types(name: str) -> dict[str, set[Any]]:
    """The types of a command's parameters: {int, NoneType}."""
    signature = inspect.signature(command(name).callback, eval_str=True)
    hints = {name: getattr(one.annotation, "__origin__", None) for name, one in signature.parameters.items()}
    return {name: {*get_args(hint)} or {hint} for name, hint in hints.items()}


def parsed(line: str) -> dict[str, Any]:
    """The values that a command line gives, by the name of the parameter."""
    words = shlex.split(line)
    name = next(name for name in COMMANDS if words[: len(name.split())] == name.split())
    context = command(name).make_context(name, words[len(name.split()) :])
    sources = {parameter.name: context.get_parameter_source(parameter.name) for parameter in parameters(name)}
    return {name: value for name, value in context.params.items() if sources[name].name == "COMMANDLINE"}


@functools.cache
def command(name: str) -> Any:
    """A command, as click knows it."""
    found: Any = typer.main.get_command(app)
    for word in name.split():
        found = found.commands[word]
    return found


def options() -> Iterator[tuple[str, Any]]:
    """Every option of every command, with the command's name."""
    assert {name.split()[0] for name in COMMANDS} == {*typer.main.get_command(app).commands}  # type: ignore[attr-defined]
    for name in COMMANDS:
        yield from ((name, parameter) for parameter in parameters(name) if parameter.param_type_name == "option")
