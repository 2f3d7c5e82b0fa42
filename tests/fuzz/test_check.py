"""What counts as a fault of a drawn case."""

import pytest

from tests.fuzz.check import ACCEPT, REFUSE, outcome


def refuse():
    raise ValueError("top_k must be 1, got 2.")


def test_what_is_a_fault(tmp_path, monkeypatch):
    assert outcome(refuse, "top_k", expected=REFUSE) == "refused"
    assert outcome(lambda: 1, expected=ACCEPT) == "accepted"

    def half():
        (tmp_path / "half").write_text("")
        refuse()

    for call, names, options, fault in (
        (lambda: 1, (), {"expected": REFUSE}, "accepted"),
        (lambda: 1, (), {"verify": lambda result: "it is wrong"}, "it is wrong"),
        (refuse, ("top_p",), {}, "names nothing"),
        (lambda: 1 + "top_k", ("top_k",), {}, "names nothing"),
        (refuse, ("top_k",), {"expected": ACCEPT}, "although it is right"),
        (half, (), {"untouched": tmp_path}, "left"),
    ):
        with pytest.raises(AssertionError, match=fault):
            outcome(call, *names, **options)
    monkeypatch.setattr("tests.fuzz.check.SECONDS", 0.01)
    with pytest.raises(AssertionError, match="takes over"):
        outcome(lambda: sum(range(10**7)))
