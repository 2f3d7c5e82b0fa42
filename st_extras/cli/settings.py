"""``--set NAME=VALUE``: settings of a loss, read by the types that its constructor declares."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from st_extras.checks import shown

_ELSEWHERE = {
    "model": "the argument ENCODER",
    "frequency_table": "--frequencies",
    "complementary_model": "--complementary",
    "complementary_table": "--complementary",
    "generator": "--seed",
}
"""Settings that have an option of their own."""


class _Reader(NamedTuple):
    """How a type is read: what is allowed, in words, and a function from text that raises ValueError."""

    allowed: str
    read: Callable[[str], Any]


def parse_settings(option: str, pairs: Sequence[str], loss: type) -> dict[str, Any]:
    """Read settings of a loss.

    Args:
        option: the option that gave them, for messages.
        pairs: each NAME=VALUE. A bool is true, yes, 1 or false, no, 0; None is none or null, in any case; a list of
            names is joined by + or a JSON list.
        loss: the class of the loss.

    Returns:
        The values by name, of the types that the constructor declares.

    Raises:
        ValueError: if a pair is not NAME=VALUE, a name is unknown, given twice or has an option of its own, or a value
            is not of the setting's type.
    """
    kinds = _declared(loss)
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{option} must be NAME=VALUE, got {shown(pair)}.")
        if name not in kinds:
            names = ", ".join(known for known in kinds if known != "model")
            raise ValueError(f"{option} must name a setting of {loss.__name__} ({names}), got {shown(name)}.")
        if name in settings:
            raise ValueError(f"{option} must give each setting once, got {name!r} twice.")
        settings[name] = _value(option, name, text.strip(), kinds[name], loss)
    return settings


def _declared(loss: type) -> dict[str, Any]:
    """The types of the constructor's arguments by name."""
    constructor: Any = loss.__init__  # type: ignore[misc]
    hints = get_type_hints(constructor)
    return {name: hints[name] for name in inspect.signature(constructor).parameters if name in hints}


def _value(option: str, name: str, text: str, kind: Any, loss: type) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    readers = [_reader(kind) for kind in kinds]
    if name in _ELSEWHERE or None in readers:
        python = "--base" if loss.__name__ == "SLTFAILoss" else f"{loss.__name__} in Python"
        raise ValueError(f"{option} cannot give {name}: use {_ELSEWHERE.get(name, python)} instead.")
    for reader in filter(None, readers):
        if found := _attempt(reader, text):
            return found[0]
    allowed = " or ".join(reader.allowed for reader in filter(None, readers))
    raise ValueError(f"{option} {name} must be {allowed}, got {shown(text)}.")


def _attempt(reader: _Reader, text: str) -> tuple[Any] | None:
    """Return the value in a tuple; None if it is not of the reader's type."""
    try:
        return (reader.read(text),)
    except (ValueError, OverflowError, RecursionError):
        return None


# ------------------------------------------------------------------------------------------- a reader for each type


def _reader(kind: Any) -> _Reader | None:
    """Return how a type is read; None if it cannot be written as text."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if get_origin(kind) is Literal:
        choices = {str(choice): choice for choice in get_args(kind)}
        return _Reader(" or ".join(choices), lambda text: _chosen(text, choices))
    if get_origin(kind) is Sequence and get_args(kind) == (str,):
        return _Reader("names joined by + or a JSON list of names", _names)
    return None


def _chosen(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        raise ValueError(text)
    return choices[text]


def _none(text: str) -> None:
    _chosen(text.lower(), {"none": None, "null": None})


def _bool(text: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return bool(_chosen(text.lower(), words))


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        value = _float(text)  # 1e3
        if not value.is_integer():
            raise
        return int(value)


def _names(text: str) -> list[str]:
    if not text.startswith("["):
        return text.split("+")
    names = json.loads(text)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(text)
    return list(names)


_SIMPLE: dict[Any, _Reader] = {
    NoneType: _Reader("none", _none),
    bool: _Reader("true or false", _bool),
    int: _Reader("a whole number", _int),
    float: _Reader("a finite number", _float),
    str: _Reader("text", str),
}
