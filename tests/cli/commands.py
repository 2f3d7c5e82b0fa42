"""Every command with the arguments that it needs, and every option of every command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from st_extras.cli.app import app

COMMANDS: dict[str, tuple[str, ...]] = {
    "demo": ("demo",),
    "train": ("train", "simcse", "ENC", "TEXT", "-o", "out"),
    "adapt": ("adapt", "ENC", "TEXT", "-o", "out"),
    "evaluate": ("evaluate", "ENC"),
    "doctor": ("doctor",),
    "repal fit": ("repal", "fit", "ENC", "TEXT", "-o", "out"),
    "repal tune": ("repal", "tune", "ENC", "--sts", "STS", "-o", "out"),
    "repal evaluate": ("repal", "evaluate", "ENC"),
    "whiten fit": ("whiten", "fit", "ENC", "TEXT", "-o", "out"),
    "center fit": ("center", "fit", "ENC", "TEXT", "-o", "out"),
    "locality fit": ("locality", "fit", "ENC", "TEXT", "-o", "out"),
    "sif fit": ("sif", "fit", "ENC", "TEXT", "-o", "out"),
    "statistics compute": ("statistics", "compute", "ENC", "TEXT", "-o", "out.safetensors"),
    "statistics merge": ("statistics", "merge", "a.safetensors", "-o", "out.safetensors"),
    "frequencies count": ("frequencies", "count", "ENC", "TEXT", "-o", "out.json"),
    "frequencies info": ("frequencies", "info", "table.json"),
}
"""The words of each command, with ENC, TEXT and STS as in ``run_in``."""


@dataclass(frozen=True)
class Parameter:
    """An option or argument of a command.

    Attributes:
        command: the command's words: "repal fit".
        names: all ways to write it ("--output", "-o"), those that switch it off left out; an argument has its name.
        types: the types of its value: {int, NoneType}.
        is_flag: whether it takes no value.
    """

    command: str
    names: tuple[str, ...]
    types: frozenset[Any]
    is_flag: bool

    @property
    def name(self) -> str:
        """The longest way to write it."""
        return max(self.names, key=len)


def parameters() -> Iterator[Parameter]:
    """Every option and argument of every command."""
    groups = [("", app), *((f"{group.name} ", group.typer_instance) for group in app.registered_groups)]
    for prefix, group in groups:
        built: Any = typer.main.get_group(group)  # type: ignore[arg-type]
        for information in group.registered_commands:  # type: ignore[union-attr]
            function: Any = information.callback
            command = information.name or function.__name__
            hints = get_type_hints(function, include_extras=True)
            for parameter in built.commands[command].params:
                kind = hints[parameter.name]
                if get_origin(kind) is Union:  # Python 3.10 puts what has None as its default into an Optional
                    kind = get_args(kind)[0]
                kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
                yield Parameter(
                    f"{prefix}{command}",
                    tuple(parameter.opts),
                    frozenset(get_args(kind) or [kind]),
                    bool in (get_args(kind) or [kind]),
                )
