"""Messages of the package name arguments of Python; here they get the names of the running command's options.

This is the one place that translates: everything below the command line names an argument first ("output must be ..."),
with a value ("set overwrite=True") or with two ("seed is 1 and was 2"), and no form may be used for anything else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

OTHER_NAMES = {
    "model": "encoder",
    "data": "text",
    "sentences": "text",
    "corpus": "text",
    "folder": "index",
    "evaluator": "dev",
    "complementary_model": "complementary",
    "complementary_table": "complementary",
    "frequency_table": "frequencies",
}
"""Arguments in Python whose value comes from a parameter of another name, if the command has none of their own name."""

_FIRST = re.compile(r"^([a-z]\w*)(?= (?:must|needs|cannot) )")
_COMPARED = re.compile(r"(?<![.\w])([a-z]\w*)(?= is \S+ and was )")
_WITH_VALUE = re.compile(r"\b([a-z]\w*)=('[^']*'|\"[^\"]*\"|[\w.+-]*\w)")


def option_names(command: Any) -> dict[str, str]:
    """Return how the command line writes each argument: an option's longest name, or TEXT for a positional one."""
    names = {
        parameter.name: max(parameter.opts, key=len)
        if parameter.param_type_name == "option"
        else parameter.name.upper()
        for parameter in command.params
    }
    return {other: names[name] for other, name in OTHER_NAMES.items() if name in names} | names


def running_command(app: Any, words: Sequence[str]) -> Any:
    """Return the command that a command line runs, such as "repal tune"; the last group if it names none."""
    for word in words:
        if word in getattr(app, "commands", {}):
            app = app.commands[word]
    return app


def in_options(message: str, names: dict[str, str]) -> str:
    """Return a message with the names of options in the places of arguments that the command has.

    Args:
        message: such as "output must be a new folder, got 'a': choose another one, or set overwrite=True."
        names: of the command's arguments, see :func:`option_names`.
    """

    def with_value(match: re.Match[str]) -> str:
        name, value = match[1], match[2].strip("'\"")
        if name not in names:
            return match[0]
        return names[name] if value == "True" else f"{names[name]} {value}"

    for written in (_FIRST, _COMPARED):
        message = written.sub(lambda match: names.get(match[1], match[1]), message)
    return _WITH_VALUE.sub(with_value, message)


@contextmanager
def logged_in_options(names: Callable[[], dict[str, str]]) -> Iterator[None]:
    """Translate the package's log messages, too; ``names`` is called at the first one."""
    factory = logging.getLogRecordFactory()

    def translated(*given: Any, **named: Any) -> logging.LogRecord:
        record = factory(*given, **named)
        if record.name.split(".")[0] == "st_extras":
            record.msg, record.args = in_options(record.getMessage(), names()), None
        return record

    logging.setLogRecordFactory(translated)
    try:
        yield
    finally:
        logging.setLogRecordFactory(factory)
