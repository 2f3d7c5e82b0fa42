"""``--set NAME=VALUE``: arguments of a loss, or of a module's ``attach``, read by the types that they declare."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from st_extras.checks import shown

_ELSEWHERE = {
    "model": "the argument ENCODER",
    "corpus": "the argument TEXT",
    "statistics": "--statistics",
    "frequency_table": "--frequencies",
    "complementary_model": "--complementary",
    "complementary_table": "--complementary",
    "generator": "--seed",
    "batch_size": "--batch-size",
    "encode_options": "--device or --prompt",
}
"""Arguments that have an option of their own."""


def parse_settings(option: str, pairs: Sequence[str], target: Any) -> dict[str, Any]:
    """Read settings.

    Args:
        option: the option that gave them, for messages.
        pairs: each NAME=VALUE. A bool is true, yes, 1 or false, no, 0; None is none or null, in any case; a list of
            names is joined by + or a JSON list.
        target: the class or function whose arguments they are.

    Returns:
        The values by name, of the types that ``target`` declares.

    Raises:
        ValueError: if a pair is not NAME=VALUE, a name is unknown, given twice or has an option of its own, or a value
            is not of the setting's type.
    """
    function: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    hints = get_type_hints(function)
    kinds = {name: hints[name] for name in inspect.signature(function).parameters if name in hints}
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{option} must be NAME=VALUE, got {shown(pair)}.")
        if name not in kinds:
            names = ", ".join(known for known in kinds if known not in _ELSEWHERE)
            raise ValueError(f"{option} must name a setting of {target.__qualname__} ({names}), got {shown(name)}.")
        if name in settings:
            raise ValueError(f"{option} must give each setting once, got {name!r} twice.")
        settings[name] = _value(option, name, text.strip(), kinds[name], target.__qualname__)
    return settings


def _value(option: str, name: str, text: str, kind: Any, target: str) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    readers = [reader for reader in map(_reader, kinds) if reader is not None]
    if name in _ELSEWHERE or len(readers) < len(kinds):
        python = "--base" if target == "SLTFAILoss" else f"{target} in Python"
        raise ValueError(f"{option} cannot give {name}: use {_ELSEWHERE.get(name, python)} instead.")
    for _, read in readers:
        try:
            return read(text)
        except (ValueError, KeyError, OverflowError, RecursionError):  # noqa: PERF203
            continue
    allowed = " or ".join(words for words, _ in readers)
    raise ValueError(f"{option} {name} must be {allowed}, got {shown(text)}.")


# ------------------------------------------------------------------------------------------- a reader for each type


def _reader(kind: Any) -> tuple[str, Callable[[str], Any]] | None:
    """Return what a type allows, in words, and how it is read; None if it cannot be written as text."""
    if get_origin(kind) is Literal:
        choices = {str(choice): choice for choice in get_args(kind)}
        return " or ".join(choices), choices.__getitem__
    return _READERS.get(kind)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not text.isascii():  # as other options refuse full-width digits
        raise ValueError(text)
    return value


def _int(text: str) -> int:
    value = _float(text)  # 1e3
    if not value.is_integer():
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdecimal() else int(value)


def _names(text: str) -> list[str]:
    names = json.loads(text) if text.startswith("[") else text.split("+")
    if not all(isinstance(name, str) for name in names):
        raise ValueError(text)
    return list(names)


_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    NoneType: ("none", lambda text: {"none": None, "null": None}[text.lower()]),
    bool: ("true or false", lambda text: _BOOLS[text.lower()]),
    int: ("a whole number", _int),
    float: ("a finite number", _float),
    str: ("text", str),
    Any: ("text", str),
    Sequence[str]: ("names joined by + or a JSON list of names", _names),
}
