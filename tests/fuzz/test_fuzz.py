"""Bad input of every kind, drawn with a fixed seed: some 160 cases in the suite, 4,000 weekly."""

from typing import Any

import pytest

from tests.fuzz import command_line
from tests.fuzz.__main__ import FAMILIES, draw
from tests.fuzz.check import ACCEPT, REFUSE, Case, Fault, UsageError, check
from tests.fuzz.world import new_folder


@pytest.mark.slow
@pytest.mark.parametrize("weekly", [False, pytest.param(True, marks=[pytest.mark.weekly, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize("name", FAMILIES)
def test_cases_are_refused_clearly_or_accepted_rightly(name, weekly):
    count = FAMILIES[name][1 if weekly else 2]
    outcomes, faults = draw(0, name, count)
    assert faults == []
    assert outcomes.total() > count / 2
    assert outcomes.keys() == {"refused", "accepted"} or not weekly


@pytest.mark.slow
def test_a_set_without_a_name_is_refused():
    """It was found by a drawn case: its metric had another name than the evaluator looked for."""
    words = [command_line.filled(word, new_folder()) for word in ["evaluate", "{encoder}", "--sts", "{sts}", "--sets"]]
    with pytest.raises(UsageError, match="name must"):
        command_line.call([*words, ""])


def _raise(error: Exception) -> Any:
    raise error


WRONG = ValueError("top_k must be 1, got 2.")


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        (Case("a", lambda: 1), None),
        (Case("a", lambda: _raise(WRONG), REFUSE, ("top_k",)), None),
        (Case("a", lambda: 1, REFUSE), "accepted"),
        (Case("a", lambda: 1, verify=lambda result: "it is wrong"), "it is wrong"),
        (Case("a", lambda: _raise(WRONG), REFUSE, ("top_p",)), "names nothing"),
        (Case("a", lambda: _raise(TypeError("top_k must be 1.")), REFUSE, ("top_k",)), "names nothing"),
        (Case("a", lambda: _raise(WRONG), ACCEPT, ("top_k",)), "although it is right"),
    ],
)
def test_what_is_a_fault(case, fault):
    if fault is None:
        assert check(case) in ("accepted", "refused")
    else:
        with pytest.raises(Fault, match=fault):
            check(case)


def test_a_file_left_behind_and_a_hang_are_faults(monkeypatch):
    folder = new_folder()

    def half() -> None:
        (folder / "half").write_text("")
        raise WRONG

    with pytest.raises(Fault, match="left"):
        check(Case("a", half, untouched=folder))

    def busy() -> None:
        while True:
            pass

    monkeypatch.setattr("tests.fuzz.check.SECONDS", 0.05)
    with pytest.raises(Fault, match="hangs"):
        check(Case("a", busy))
