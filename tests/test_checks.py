"""What a setting may be: the value comes back in its own type, or a ValueError names the argument and the value."""

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


def refused(check: Callable[..., Any], wanted: str, value: Any, *more: Any) -> None:
    with pytest.raises(ValueError, match=rf"^option must be {re.escape(wanted)}, got {re.escape(shown(value))}\.$"):
        check("option", value, *more)


@pytest.mark.parametrize(
    ("check", "arguments", "values", "kind"),
    [
        (check_positive, (), [1, 0.5, 1e-300, 1e300, np.float32(0.25), np.int64(3), Fraction(1, 4)], float),
        (check_not_negative, (), [0, -0.0, np.int32(0), 1e-300, 2], float),
        (check_fraction, (), [0.5, 1e-300, math.nextafter(1, 0), np.float32(0.25), Fraction(1, 3)], float),
        (check_interval, (-0.5, 2), [-0.5, 0, 2, np.float32(1.5), Fraction(1, 3)], float),
        (check_count, (), [0, 7, 3.0, 2**70, np.int64(3), np.uint8(200), np.float32(4)], int),
        (check_count, (3,), [3, 4, 3.0], int),
        (check_count, (1, 5), [1, 5, 5.0], int),
        (check_bool, (), [True, False, np.True_, np.False_], bool),
    ],
)
def test_what_is_allowed(check, arguments, values, kind):
    for value in values:
        found = check("option", value, *arguments)
        assert found == kind(value)
        assert type(found) is kind


@pytest.mark.parametrize(
    ("check", "arguments", "values", "wanted"),
    [
        (check_positive, (), [*NOT_NUMBERS, 0, -0.0, -1, -1e-300, np.float32(-2)], "a finite number > 0"),
        (check_not_negative, (), [*NOT_NUMBERS, -1, -1e-300, np.float64(-0.5)], "a finite number >= 0"),
        (check_fraction, (), [*NOT_NUMBERS, 0, 1, 1.0, -0.2, 1.5, np.float32(1)], "between 0 and 1, both excluded"),
        (check_interval, (-0.5, 2), [*NOT_NUMBERS, -0.6, 2.1, 1e300], "between -0.5 and 2"),
        (check_count, (), [*NOT_NUMBERS, -1, 0.5, -0.5, 1.5, np.int8(-3), Fraction(1, 2)], "a whole number >= 0"),
        (check_count, (3,), [*NOT_NUMBERS, 2, 2.5, 3.5, -3], "a whole number >= 3"),
        (check_count, (1, 5), [*NOT_NUMBERS, 0, 6, 10**30, 1.5], "a whole number between 1 and 5"),
        (check_bool, (), ["False", "", 0, 1, 0.0, None, [], np.ones(1), np.int8(1)], "True or False"),
    ],
)
def test_what_is_refused(check, arguments, values, wanted):
    for value in values:
        refused(check, wanted, value, *arguments)


def test_ends_of_an_interval():
    assert check_interval("option", 2, 0, 2, low_included=False) == 2
    assert check_interval("option", 0, 0, 2, high_included=False) == 0
    with pytest.raises(ValueError, match=r"^option must be between 0 and 2, 0 excluded, got 0\.$"):
        check_interval("option", 0, 0, 2, low_included=False)
    with pytest.raises(ValueError, match=r"^option must be between 0 and 2, 2 excluded, got 2\.$"):
        check_interval("option", 2, 0, 2, high_included=False)


def test_shown_values_are_one_short_line():
    assert shown("x") == "'x'"
    assert shown(np.ones((2, 2))) == "array([[1., 1.], [1., 1.]])"
    assert shown("x" * 900) == "'" + "x" * 76 + "..."
    assert shown(10**5000) in ("a value of type int", "1" + "0" * 76 + "...")


def test_choice():
    assert check_choice("option", "mean", ("cls", "mean")) == "mean"
    assert check_choice("option", 2, [1, 2]) == 2
    assert check_choice("option", None, ("max", None)) is None
    for value in ("max", "", "MEAN", None, 1, ["cls"], np.ones(2)):
        refused(check_choice, "one of 'cls', 'mean'", value, ("cls", "mean"))
