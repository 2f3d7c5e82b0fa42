"""What a setting may be: the value comes back in its own type, or a ValueError names the argument and the value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from st_extras.checks import (
    check_bool,
    check_choice,
    check_count,
    check_fraction,
    check_interval,
    check_not_negative,
    check_positive,
    shown,
)

NOT_NUMBERS = [
    True,
    False,
    np.True_,
    math.nan,
    math.inf,
    -math.inf,
    np.float32("nan"),
    np.float64("inf"),
    10**400,
    -(10**400),
    None,
    "1",
    [1],
    1j,
    np.ones(1),
]
"""Refused by every check of a number; 10**400 is an integer beyond the floats."""


def shortly(value: Any) -> str:
    return repr(value)[:20]


def refused(check: Callable[..., Any], wanted: str, value: Any, *more: Any) -> None:
    with pytest.raises(ValueError, match=rf"^option must be {re.escape(wanted)}, got {re.escape(shown(value))}\.$"):
        check("option", value, *more)


@pytest.mark.parametrize(
    "value", [1, 0.5, 1e-300, 1e300, np.float32(0.25), np.float64(2), np.int64(3), Fraction(1, 4)], ids=shortly
)
def test_positive(value: Any) -> None:
    for check in (check_positive, check_not_negative):
        assert check("option", value) == value
        assert type(check("option", value)) is float


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, -0.0, -1, -1e-300, np.float32(-2)], ids=shortly)
def test_not_positive(value: Any) -> None:
    refused(check_positive, "a finite number > 0", value)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, np.int32(0)], ids=shortly)
def test_zero_is_not_negative(value: Any) -> None:
    assert check_not_negative("option", value) == 0
    assert type(check_not_negative("option", value)) is float


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -1, -1e-300, np.float64(-0.5)], ids=shortly)
def test_negative(value: Any) -> None:
    refused(check_not_negative, "a finite number >= 0", value)


@pytest.mark.parametrize("value", [0.5, 1e-300, math.nextafter(1, 0), np.float32(0.25), Fraction(1, 3)], ids=shortly)
def test_fraction(value: Any) -> None:
    assert check_fraction("option", value) == float(value)
    assert type(check_fraction("option", value)) is float


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, 1, 0.0, 1.0, -0.2, 1.5, np.float32(1)], ids=shortly)
def test_not_a_fraction(value: Any) -> None:
    refused(check_fraction, "between 0 and 1, both excluded", value)


@pytest.mark.parametrize("value", [0, 7, 3.0, 0.0, 2**70, np.int64(3), np.uint8(200), np.float32(4)], ids=shortly)
def test_count(value: Any) -> None:
    assert check_count("option", value) == value
    assert type(check_count("option", value)) is int


@pytest.mark.parametrize(
    "value", [*NOT_NUMBERS, -1, 0.5, -0.5, 1.5, np.float64(2.5), np.int8(-3), Fraction(1, 2)], ids=shortly
)
def test_not_a_count(value: Any) -> None:
    refused(check_count, "a whole number >= 0", value)


@pytest.mark.parametrize("at_least", [1, 3])
def test_count_from_a_lowest_number(at_least: int) -> None:
    for value in (at_least, at_least + 1, float(at_least)):
        assert check_count("option", value, at_least) == value
        assert check_count("option", value, at_least=at_least) == value
    for value in (*NOT_NUMBERS, at_least - 1, at_least - 0.5, at_least + 0.5, -at_least):
        refused(check_count, f"a whole number >= {at_least}", value, at_least)


def test_count_up_to_a_highest_number() -> None:
    assert check_count("option", 5, at_least=1, at_most=5) == check_count("option", 5.0, 1, 5) == 5
    for value in (*NOT_NUMBERS, 0, 6, 10**30, 1.5, np.int64(6)):
        refused(check_count, "a whole number between 1 and 5", value, 1, 5)


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_], ids=shortly)
def test_bool(value: Any) -> None:
    assert check_bool("option", value) is bool(value)


@pytest.mark.parametrize("value", ["False", "", "true", 0, 1, 0.0, None, [], np.ones(1), np.int8(1)], ids=shortly)
def test_not_a_bool(value: Any) -> None:
    refused(check_bool, "True or False", value)


@pytest.mark.parametrize("value", [-0.5, 0, 2, np.float32(1.5), Fraction(1, 3)], ids=shortly)
def test_interval(value: Any) -> None:
    assert check_interval("option", value, -0.5, 2) == float(value)
    assert type(check_interval("option", value, -0.5, 2)) is float


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -0.6, 2.1, 1e300], ids=shortly)
def test_outside_an_interval(value: Any) -> None:
    refused(check_interval, "between -0.5 and 2", value, -0.5, 2)


def test_ends_of_an_interval() -> None:
    assert check_interval("option", 2, 0, 2, low_included=False) == 2
    assert check_interval("option", 0, 0, 2, high_included=False) == 0
    with pytest.raises(ValueError, match=r"^option must be between 0 and 2, 0 excluded, got 0\.$"):
        check_interval("option", 0, 0, 2, low_included=False)
    with pytest.raises(ValueError, match=r"^option must be between 0 and 2, 2 excluded, got 2\.$"):
        check_interval("option", 2, 0, 2, high_included=False)


def test_shown_values_are_one_short_line() -> None:
    assert shown("x") == "'x'"
    assert shown(np.ones((2, 2))) == "array([[1., 1.], [1., 1.]])"
    assert shown("x" * 900) == "'" + "x" * 76 + "..."
    assert shown(10**5000) in ("a value of type int", "1" + "0" * 76 + "...")


def test_choice() -> None:
    assert check_choice("option", "mean", ("cls", "mean")) == "mean"
    assert check_choice("option", 2, [1, 2]) == 2
    assert check_choice("option", None, ("max", None)) is None
    for value in ("max", "", "MEAN", None, 1, ["cls"], np.ones(2)):
        refused(check_choice, "one of 'cls', 'mean'", value, ("cls", "mean"))


@pytest.mark.parametrize("check", [check_positive, check_not_negative, check_fraction, check_count])
def test_the_message_names_the_argument(check: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"^noise_steps must be .*, got -3\.$"):
        check("noise_steps", -3)
