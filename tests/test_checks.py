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
    argument_called,
    check_batch_size,
    check_bool,
    check_choice,
    check_count,
    check_finite,
    check_finite_embeddings,
    check_fraction,
    check_instance,
    check_interval,
    check_iterable,
    check_not_negative,
    check_pairs,
    check_positive,
    check_rows,
    check_seed,
    check_strings,
    check_temperature,
    check_text_pairs,
    check_weight,
    counted,
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
        (check_finite, (), [-1e300, 0, np.int8(-3)], float, [], "a finite number"),
        (check_interval, (-0.5, 2), [-0.5, 0, 2, np.float32(1.5)], float, [-0.6, 2.1], "between -0.5 and 2"),
        (check_count, (), [0, 2**70, np.uint8(200)], int, [-1, 0.5, 3.0, np.int8(-3)], "a whole number >= 0"),
        (check_count, (3,), [3, 4], int, [2, 3.5, 3.0, -3], "a whole number >= 3"),
        (check_count, (1, 5), [1, 5], int, [0, 6, 10**30, 1.5, 5.0], "a whole number between 1 and 5"),
        (check_temperature, (), [1e-4, 1e4], float, [0.99e-4, 1.01e4], "between 0.0001 and 10000"),
        (check_weight, (), [0, 1e6], float, [-1e-300, 1.01e6], "between 0 and 1000000"),
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
    assert shown("x" * 78) == "'" + "x" * 78 + "'"
    assert shown("x" * 79) == shown("x" * 900) == "'" + "x" * 76 + "..."
    assert shown(10**5000) in ("a value of type int", "1" + "0" * 76 + "...")


def test_things_are_counted_in_the_singular_and_the_plural():
    assert [counted(number, "text") for number in (0, 1, 2000)] == ["0 texts", "1 text", "2,000 texts"]
    assert [counted(number, "query", "queries") for number in (1, 2)] == ["1 query", "2 queries"]


def test_an_argument_is_named_as_the_caller_has_it():
    for message, expected in {
        "path must be a file.": "--index must be a file.",
        "path, unless it is None, must be 3.": "--index, unless it is None, must be 3.",
        "path, row 3, is a file, must be 3.": "path, row 3, is a file, must be 3.",
        "other must be path must.": "other must be path must.",
        "path is path must be.": "path is path must be.",
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"), argument_called("--index", "path"):
            raise ValueError(message)
    with pytest.raises(KeyError), argument_called("--index", "path"):
        raise KeyError("path must")


def test_choice():
    assert check_choice("option", "mean", ("cls", "mean")) == "mean"
    assert check_choice("option", 2, [1, 2]) == 2
    assert check_choice("option", None, ("max", None)) is None
    for value in ("max", "", "MEAN", None, 1, ["cls"], np.ones(2)):
        refused(check_choice, "one of 'cls', 'mean'", value, ("cls", "mean"))


def test_batch_sizes_seeds_and_objects():
    for value in (1, 2**20, np.int32(8)):
        assert type(check_batch_size(value)) is int
    for value in (0, 2**20 + 1, True, 8.0):
        with pytest.raises(ValueError, match=r"^batch_size must be a whole number between 1 and 1048576, got "):
            check_batch_size(value)
    for seed in (-3, 0, 2**70, np.uint8(200)):
        assert (check_seed("option", seed), type(check_seed("option", seed))) == (int(seed), int)
    for value in (1.0, True, None, "1"):
        refused(check_seed, "a whole number", value)
    assert check_instance("option", "a", str) == "a"
    assert check_instance("option", None, str, or_none=True) is None
    for value in (3, b"a"):
        refused(check_instance, "a str", value, str)
        with pytest.raises(ValueError, match=r"^option must be a str or None, got "):
            check_instance("option", value, str, or_none=True)
    refused(check_instance, "a str", None, str)


# ---- texts, pairs and lists


def test_collections_of_strings():
    for given in (["a", "b"], ("a", "b"), iter("ab"), {"a": 0, "b": 1}.keys(), np.array(["a", "b"])):
        assert check_strings("option", given, at_least=2) == ("a", "b")
    assert check_strings("option", []) == ()
    some = "option must be a collection of strings, got "
    for value, message in {
        "ab": f"{some}the string 'ab'.",
        3: f"{some}3.",
        ("a", "b", 3, 4): f"{some}('a', 'b', 3, 4) with the item 3.",
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            check_strings("option", value)
    for columns, message in (
        ({"id": "x", "text": ["a"]}, "a dict with the keys 'id', 'text': give its column, as in option['text']."),
        ({"q1": "x", "q2": "y"}, "a dict with the keys 'q1', 'q2': give its values."),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(some + message)}$"):
            check_strings("option", columns)
    for empty in (torch.ones(0), np.ones(0)):
        with pytest.raises(ValueError, match=f"^{some}"):
            check_strings("option", empty)
    for few in ([], ["a"]):
        with pytest.raises(ValueError, match=r"^option must be a non-empty collection of strings, got "):
            check_strings("option", few, at_least=2)


PAIRS = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]


def test_graded_pairs():
    for scores in (
        [1, 2.5, 1, 2.5],
        np.array([1, 2.5, 1, 2.5]),
        torch.tensor([1, 2.5, 1, 2.5]),
        iter([1, 2.5, 1, 2.5]),
    ):
        found = check_pairs(map(list, PAIRS), scores, ["x", "x", "y", "y"])
        assert found == (PAIRS, [1.0, 2.5, 1.0, 2.5])
    two = "pairs and scores must be at least two pairs and one score for each, not all equal, got "
    for pairs, scores, groups, message in (
        ([*PAIRS, ("a", 3)], [1, 2, 3, 4, 5], None, "pairs must hold pairs of valid texts, got ('a', 3)."),
        (
            [*PAIRS, ("a", "b", "c")],
            [1, 2, 3, 4, 5],
            None,
            "pairs must hold pairs of valid texts, got ('a', 'b', 'c').",
        ),
        (["ab", *PAIRS], [1, 2, 3, 4, 5], None, "pairs must hold pairs of valid texts, got 'ab'."),
        (PAIRS, [1, 2, 3, math.nan], None, "each number in scores must be a finite number, got nan."),
        (PAIRS, [1, 2, 3], None, f"{two}4 pairs, 3 scores, 3 distinct."),
        (PAIRS, [2, 2, 2, 2], None, f"{two}4 pairs, 4 scores, 1 distinct."),
        (PAIRS[:1], [2], None, f"{two}1 pair, 1 score, 1 distinct."),
        (PAIRS, [1, 2, 3, 4], ["x"] * 3, "groups must be one for each pair, got 3 groups for 4 pairs."),
        (PAIRS, [1, 1, 1, 2], ["y", "z", "y", "z"], "groups must each hold two different scores, but ['y'] do not."),
        (PAIRS, [1, 2, 3, 3], ["b", 1, "x", "x"], "groups must each hold two different scores, but ['1', 'b', 'x'] do"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            check_pairs(pairs, scores, groups)
    assert check_text_pairs("option", iter([])) == []


def test_lists_of_anything():
    for given in ([1], (), {1}, iter("ab"), np.ones(2), torch.ones(2)):
        assert check_iterable("option", given, "a list") is given
    for value in ("ab", b"ab", {"a": 1}, 3, None, np.array(3), torch.tensor(3)):
        with pytest.raises(ValueError, match=rf"^option must be a list, got {re.escape(shown(value))}\.$"):
            check_iterable("option", value, "a list")


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
    for given, options, message in (
        (ROWS, {"dimension": 3}, "(N, 3) with N >= 1, got the shape (100, 16)."),
        (ROWS[:1], {"at_least": 2}, "(N, D) with N >= 2, got the shape (1, 16)."),
        (ROWS[:, :0], {"at_least": 0}, "(N, D), got the shape (100, 0)."),
        (ROWS * 1j, {}, "real numbers, got torch.complex64."),
        ([[1.0], [2.0], [math.inf]], {}, "finite, got NaN or infinity in row 2."),
    ):
        with pytest.raises(ValueError, match=f"^x must be {re.escape(message)}$"):
            check_rows("x", given, **options)
    assert check_rows("x", ROWS[:0], at_least=0).shape == (0, 16)


def test_the_text_of_an_embedding_that_is_not_finite_is_named():
    rows = draw(3, 4)
    check_finite_embeddings(rows, ["a", "b", "c"])
    rows[1:, 2] = math.inf
    with pytest.raises(ValueError, match=r"^the embedding of 'b' is not finite"):
        check_finite_embeddings(rows, ["a", "b", "c"])
