"""The fuzzer, drawn with a fixed seed: 225 cases in the suite, 4,000 weekly."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import constructors, files, texts
from tests.fuzz.classify import ACCEPT, CLEAR, HALF, HANG, NAMELESS, REFUSE, REFUSED, RIGHT, SILENT, Case, classify
from tests.fuzz.families import FAMILIES, draw, report
from tests.fuzz.world import new_folder

_some = settings(max_examples=20, derandomize=True, database=None, deadline=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "share", ["daily", pytest.param("weekly", marks=[pytest.mark.weekly, pytest.mark.timeout(1800)])]
)
def test_cases_are_refused_clearly_or_accepted_rightly(share):
    outcomes = {name: draw(0, name, getattr(family, share)) for name, family in FAMILIES.items()}
    kinds = Counter(outcome.kind for found in outcomes.values() for outcome in found)
    shown = ascii(report(outcomes)).replace("\\n", "\n")
    assert [kind for kind in (SILENT, HANG, HALF, REFUSED, NAMELESS) if kinds[kind]] == [], shown
    assert kinds[CLEAR] > 0.3 * kinds.total(), shown  # something was tried
    assert kinds[RIGHT] > 0.05 * kinds.total(), shown


def _assert_right(case: Case) -> None:
    outcome = classify(case)
    assert outcome.kind in (CLEAR, RIGHT), ascii((outcome.kind, case.name, outcome.detail))


@_some
@given(st.text(max_size=60))
def test_any_text(sentence):
    for name in ("RakeKeywords", "TfidfKeywords", "keyword_spans", "PhraseMasking", "EDA swap", "FrequencyTable.count"):
        _assert_right(texts.case(name, sentence))


@_some
@given(st.sampled_from(sorted(files.FORMATS)), st.binary(max_size=80), st.sampled_from(["", ".gz"]))
def test_any_bytes(kind, data, packed):
    _assert_right(files.case(kind, "any bytes", data, packed))


@_some
@given(st.sampled_from(["temperature", "noise_steps", "noise_std"]), st.floats() | st.integers())
def test_any_number(parameter, value):
    target = next(target for target in constructors.targets() if target.name == "DCLRLoss")
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
        (Case("a", lambda: _raise(ValueError("top_k must be 1, got 2.")), REFUSE, ("top_k",)), CLEAR),
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
