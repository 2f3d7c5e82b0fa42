"""What a setting may be: the value comes back in its own type, or a ValueError names the argument and the value."""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers.util.quantization import quantize_embeddings

from st_extras.checks import (
    check_bool,
    check_choice,
    check_count,
    check_fraction,
    check_interval,
    check_not_negative,
    check_positive,
    check_rows,
    check_text_pairs,
    shown,
)
from st_extras.encoders import EmbeddingTable
from st_extras.evaluation import label_scores
from st_extras.evaluation.geometry import unrelated_cosines
from st_extras.evaluation.label_free import LabelFreeComparison
from st_extras.modules import CorpusStatistics
from tests.helpers import draw

NOT_NUMBERS = [True, np.True_, math.nan, -math.inf, np.float32("nan"), 10**400, None, "1", [1], 1j, np.ones(1)]
"""Refused by every check of a number; 10**400 is an integer beyond the floats."""


def refused(check: Callable[..., Any], wanted: str, value: Any, *more: Any) -> None:
    with pytest.raises(ValueError, match=rf"^option must be {re.escape(wanted)}, got {re.escape(shown(value))}\.$"):
        check("option", value, *more)


@pytest.mark.parametrize(
    ("check", "arguments", "allowed", "kind", "wrong", "wanted"),
    [
        (
            check_positive,
            (),
            [1, 1e-300, np.float32(0.25), Fraction(1, 4)],
            float,
            [0, -0.0, -1e-300],
            "a finite number > 0",
        ),
        (check_not_negative, (), [0, -0.0, np.int32(0), 1e-300], float, [-1, -1e-300], "a finite number >= 0"),
        (check_fraction, (), [1e-300, math.nextafter(1, 0)], float, [0, 1, 1.5], "between 0 and 1, both excluded"),
        (check_interval, (-0.5, 2), [-0.5, 0, 2, np.float32(1.5)], float, [-0.6, 2.1], "between -0.5 and 2"),
        (check_count, (), [0, 2**70, np.uint8(200)], int, [-1, 0.5, 3.0, np.int8(-3)], "a whole number >= 0"),
        (check_count, (3,), [3, 4], int, [2, 3.5, 3.0, -3], "a whole number >= 3"),
        (check_count, (1, 5), [1, 5], int, [0, 6, 10**30, 1.5, 5.0], "a whole number between 1 and 5"),
        (check_bool, (), [True, False, np.True_], bool, ["False", 0, 1, None, []], "True or False"),
    ],
)
def test_what_is_allowed_and_refused(check, arguments, allowed, kind, wrong, wanted):
    for value in allowed:
        found = check("option", value, *arguments)
        assert found == kind(value)
        assert type(found) is kind
    for value in [*wrong, *NOT_NUMBERS] if kind is not bool else wrong:
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


# ---- embeddings as numbers

ROWS = draw(100, 16).float().numpy()
TAKE_EMBEDDINGS = {
    "cosines": unrelated_cosines,
    "labels": lambda rows: label_scores(rows, ["a", "b"] * 50),
    "a comparison": lambda rows: LabelFreeComparison([f"text {i} of {i % 7}" for i in range(100)], rows),
    "statistics": lambda rows: CorpusStatistics(np.asarray(rows).shape[1]).update(rows),
    "a table": lambda rows: EmbeddingTable([[i] for i in range(100)], rows),
}


@pytest.mark.parametrize("take", TAKE_EMBEDDINGS.values(), ids=TAKE_EMBEDDINGS)
def test_quantised_embeddings_are_refused(take):
    for precision in ("int8", "uint8", "ubinary"):
        quantised = quantize_embeddings(ROWS, precision, calibration_embeddings=ROWS)
        with pytest.raises(ValueError, match="precision='float32'"):
            take(quantised)
    with pytest.raises(ValueError, match="precision='float32'"):
        take(torch.from_numpy(ROWS > 0))
    take(torch.from_numpy(ROWS))


def test_pairs_that_no_tokenizer_takes():
    for text in (None, 1, "a \ud83d"):
        with pytest.raises(ValueError, match=r"^pairs must hold pairs of valid texts, got \('one', "):
            check_text_pairs("pairs", [("one", "two"), ("one", text)])


def test_check_rows():
    for given in (ROWS, ROWS.tolist(), list(torch.from_numpy(ROWS)), pd.DataFrame(ROWS)):
        assert torch.equal(check_rows("x", given), torch.from_numpy(ROWS))
    assert check_rows("x", torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.float32
    assert check_rows("x", ROWS.astype(np.float64)).dtype == torch.float64
    assert check_rows("x", [[1, 2]], dimension=2).tolist() == [[1.0, 2.0]]
    ragged = [[1.0], [1.0, 2.0]]
    for wrong in (ROWS[0], ROWS[:1], ROWS[:, :0], 3.5, None, "rows", [["a"], ["b"]], ragged, ROWS * 1j, ROWS * np.nan):
        with pytest.raises(ValueError, match=r"^x must be"):
            check_rows("x", wrong, at_least=2)
    with pytest.raises(ValueError, match=r"\(N, 3\)"):
        check_rows("x", ROWS, dimension=3)
