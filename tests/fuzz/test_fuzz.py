"""The fuzzer, drawn with a fixed seed: 200 cases in the suite, over 3,000 weekly."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import constructors, files, texts
from tests.fuzz.classify import ACCEPT, CLEAR, HALF, HANG, NAMELESS, REFUSE, REFUSED, RIGHT, SILENT, Case, classify
from tests.fuzz.run import bad, report, run, shown
from tests.fuzz.world import new_folder

_some = settings(max_examples=20, derandomize=True, database=None, deadline=None)


def _check(how_many: str, at_least: int) -> None:
    outcomes = run(0, how_many=how_many)
    kinds = Counter(outcome.kind for _, outcome in outcomes)
    found = ascii(report(outcomes) + shown(bad(outcomes))).replace("\\n", "\n")
    assert len(outcomes) >= at_least
    assert [kind for kind in (SILENT, HANG, HALF, REFUSED) if kinds[kind]] == [], found
    assert kinds[NAMELESS] < 0.01 * len(outcomes), found
    assert kinds[CLEAR] > 0.3 * len(outcomes), found  # something was tried
    assert kinds[RIGHT] > 0.05 * len(outcomes), found


@pytest.mark.slow
def test_two_hundred_cases_are_refused_clearly_or_accepted_rightly():
    _check("fast", 200)


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_thousand_cases_are_refused_clearly_or_accepted_rightly():
    _check("slow", 3000)


def _assert_right(case: Case) -> None:
    outcome = classify(case)
    assert outcome.kind in (CLEAR, RIGHT), ascii((outcome.kind, case.name, outcome.detail))


@_some
@given(st.text(max_size=60))
def test_any_text(sentence):
    for name in ("RakeKeywords", "TfidfKeywords", "keyword_spans", "PhraseMasking", "EDA swap", "FrequencyTable.count"):
        _assert_right(texts._case(name, sentence))


@_some
@given(st.sampled_from(sorted(files.FORMATS)), st.binary(max_size=80), st.booleans())
def test_any_bytes(kind, data, packed):
    _assert_right(files._case(kind, "any bytes", data, packed))


@_some
@given(
    st.sampled_from(["temperature", "cutoff_rate", "noise_steps", "noise_std", "noise_ratio"]),
    st.floats() | st.integers(),
)
def test_any_number(parameter, value):
    target = next(target for target, _ in constructors.targets() if target[0] == "DCLRLoss")
    refused = not math.isfinite(value) or (parameter == "noise_steps" and value != int(value))
    _assert_right(constructors.case(target, parameter, value, refused=refused))


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        (Case("a", lambda: 1), RIGHT),
        (Case("a", lambda: 1, REFUSE), SILENT),
        (Case("a", lambda: 1, verify=lambda result: "wrong"), SILENT),
        (Case("a", lambda: 1, verify=lambda result: result[0]), SILENT),
        (Case("a", lambda: _raise(ValueError("top_k must be 1, got 2.")), REFUSE, ("top_k",), ("2",)), CLEAR),
        (Case("a", lambda: _raise(ValueError("top_k must be 1, got 2.")), REFUSE, ("top_k",), ("3",)), NAMELESS),
        (Case("a", lambda: _raise(ValueError("it must be 1, got 2.")), REFUSE, ("top_k",)), NAMELESS),
        (Case("a", lambda: _raise(TypeError("top_k must be 1, got 2.")), REFUSE, ("top_k",)), NAMELESS),
        (Case("a", lambda: _raise(ValueError("top_k must be 1, got 2.")), ACCEPT, ("top_k",)), REFUSED),
    ],
)
def test_classes(case, kind):
    assert classify(case).kind == kind


def test_a_file_left_behind_and_a_hang_are_noticed(monkeypatch):
    folder = new_folder()

    def half() -> None:
        (folder / "half").write_text("")
        raise ValueError("it failed.")

    assert classify(Case("a", half, untouched=folder)).kind == HALF

    def busy() -> None:
        while True:
            pass

    monkeypatch.setattr("tests.fuzz.classify.SECONDS", 0.05)
    assert classify(Case("a", busy)).kind == HANG
