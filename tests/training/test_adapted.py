"""Which candidate is chosen, and why."""

from __future__ import annotations

import pytest

from st_extras.training.adapted import picked
from st_extras.training.candidates import Row

FORGETS = "loses 1.00 on general pairs, 0.50 allowed"
SEE = "(see max_general_loss, --max-general-loss)"


def row(name: str, gain: float, why: str = "", low: float | None = 0.01) -> Row:
    return Row(name, gain, low, None if low is None else 1.0, None, not why, why, 0.0)


@pytest.mark.parametrize(
    ("rows", "name", "reason"),
    [
        ([row("a", 0.3), row("b", 0.39), row("c", 0.2)], "a", "a was taken: b gains little more."),
        ([row("a", 0.29), row("b", 0.39), row("c", 0.2)], "b", "b was best."),
        ([row("a", 0.38, FORGETS), row("b", 0.39)], "b", "b was best."),
        (
            [row("a", 0.3), row("b", 0.39, FORGETS)],
            "a",
            f"a was best of what is accepted: b gains more and forgets too much {SEE}.",
        ),
        ([row("a", 0.3), row("b", 0.39, f"not better; {FORGETS}", low=-0.1)], "a", "a was best."),
        ([row("a", 0.38, low=None), row("b", 0.39, low=None)], "b", "b was best."),
        ([], None, "Left as it is: no candidate was better than the start."),
        ([row("a", -0.1, "not better", low=-0.2)], None, "Left as it is: no candidate was better than the start."),
        (
            [row("a", -0.1, "not better", low=-0.2), row("b", 0.1, FORGETS)],
            None,
            f"Left as it is: what was better than the start loses too much on general pairs {SEE}.",
        ),
    ],
)
def test_the_gentlest_of_the_good_ones_is_taken(rows: list[Row], name: str | None, reason: str) -> None:
    found, why = picked(rows)
    assert (None if found is None else found.name, why) == (name, reason)
