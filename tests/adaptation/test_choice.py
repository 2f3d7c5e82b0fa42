"""Which candidates are tried, which may be chosen, and which one is."""

import math

import pytest

from st_extras.adaptation import CandidateResult
from st_extras.adaptation.choice import Choice, choose, choose_harmless, is_tried, objections

FORGETS = "loses 1.00 on general pairs, 0.50 allowed"


def result(name: str, gain: float, reason: str = "", low: float | None = 0.01) -> CandidateResult:
    return CandidateResult(name, gain, low, None if low is None else 1.0, None, not reason, reason, 0.0)


@pytest.mark.parametrize(
    ("results", "index", "reason"),
    [
        ([result("a", 0.3), result("b", 0.39), result("c", 0.2)], 0, "a was chosen: b gains little more."),
        ([result("a", 0.29), result("b", 0.39), result("c", 0.2)], 1, "b was best."),
        ([result("a", 0.38, FORGETS), result("b", 0.39)], 1, "b was best."),
        ([result("a", 0.3), result("b", 0.39, FORGETS)], 0, "a was best of what is accepted: b gains more and forgets"),
        ([result("a", 0.3), result("b", 0.39, "not better", low=-0.1)], 0, "a was best."),
        ([result("a", 0.38, low=None), result("b", 0.39, low=None)], 1, "b was best."),
        ([], None, "no candidate was better than the base model."),
        ([result("a", -0.1, "not better", low=-0.2)], None, "no candidate was better than the base model."),
        (
            [result("a", -0.1, "not better", low=-0.2), result("b", 0.1, FORGETS)],
            None,
            "what was better than the base model loses too much on general pairs",
        ),
    ],
)
def test_the_gentlest_of_the_good_ones_is_chosen(results, index, reason):
    choice = choose(results)
    assert choice.index == index
    assert choice.reason.startswith(reason)


def test_the_first_one_without_harm_is_chosen():
    bad, good, better = result("a", -1.0, "later"), result("b", 0.0), result("c", 0.5)
    assert choose_harmless([bad, good, better]) == Choice(1, "b was chosen: no harm was found.")
    assert choose_harmless([bad]).index is None


def test_whitening_is_tried_where_the_transform_before_it_keeps_general_english():
    """It may cost an eighth of the budget; with labels, or where general pairs show nothing, it is always tried."""
    assert [is_tried(lost, 2.0, by_labels=False) for lost in (-3.0, 0.25, 0.26)] == [True, True, False]
    assert [is_tried(lost, 0.5, by_labels=False) for lost in (0.06, 0.07)] == [True, False]
    assert is_tried(None, 2.0, by_labels=False)
    assert is_tried(9.0, 2.0, by_labels=True)


def test_what_speaks_against_a_candidate():
    assert objections(0.1, 0.01, None, 0.5) == objections(0.1, None, 0.5, 0.5) == ""
    assert objections(0.1, 0.0, None, 0.5).startswith("not better")
    assert objections(0.0, None, None, 0.5).startswith("not better")
    assert objections(0.1, 0.01, 1.0, 0.5) == FORGETS
    assert objections(math.nan, None, math.nan, 0.5) == (
        "not better than the base model; loses nan on general pairs, 0.50 allowed"
    )
