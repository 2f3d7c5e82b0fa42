"""Checks of a setting: each returns the value, or raises a ValueError that names the argument."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any


def _is_number(value: Any) -> bool:
    """Whether ``value`` is a finite real number; booleans are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the floats
        return False


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite number > 0.

    Raises:
        ValueError: if it is not.
    """
    if not _is_number(value) or value <= 0:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}.")
    return float(value)


def check_not_negative(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite number >= 0.

    Raises:
        ValueError: if it is not.
    """
    if not _is_number(value) or value < 0:
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}.")
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """Return ``value`` if it lies strictly between 0 and 1.

    Raises:
        ValueError: if it does not.
    """
    if not _is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, both excluded, got {value!r}.")
    return float(value)


def check_count(name: str, value: Any, at_least: int = 0) -> int:
    """Return ``value`` as an int if it is a whole number >= ``at_least``.

    Raises:
        ValueError: if it is not.
    """
    if not _is_number(value) or value < at_least or int(value) != value:
        raise ValueError(f"{name} must be a whole number >= {at_least}, got {value!r}.")
    return int(value)


def check_choice(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return ``value`` if it is one of ``allowed``.

    Raises:
        ValueError: if it is not.
    """
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
    return value
