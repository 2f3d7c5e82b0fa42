"""Every method on every architecture: it works, or it is refused with a remedy, and docs/encoders.md says which.

``python -m tests.architectures`` writes that page.
"""

import logging

import pytest

from st_extras.checks import check_count
from tests.architectures import table
from tests.architectures.encoders import ARCHITECTURES
from tests.architectures.methods import ALWAYS, METHODS, outcomes
from tests.architectures.outcomes import check, outcome_of
from tests.architectures.world import World
from tests.helpers import some_fast

pytestmark = pytest.mark.slow

FAST = ("BERT",)


@pytest.mark.parametrize("name", some_fast(ARCHITECTURES, FAST))
def test_every_method_works_or_is_refused_as_the_docs_say(name, tmp_path):
    found = outcomes(World(name, tmp_path / "model"))
    faults = {method: outcome.note for method, outcome in found.items() if outcome.kind == "fault"}
    assert faults == {}
    assert {method: found[method].kind for method in ALWAYS} == dict.fromkeys(ALWAYS, "yes")
    assert {method: table.cell(found[method]) for method in METHODS} == table.read()[name], (
        "python -m tests.architectures"
    )


def test_the_docs_have_every_encoder_and_every_method():
    rows = table.read()
    assert {*rows} == {*ARCHITECTURES}
    assert len(rows) >= 35
    assert all(list(row) == list(METHODS) for row in rows.values())
    assert not any("FAULT" in row.values() for row in rows.values())


class TestOutcomes:
    """The judge itself: what is silent or obscure must not pass for working or refused."""

    def test_what_raises_nothing_and_warns_of_nothing_works(self):
        assert outcome_of(lambda: None).kind == "yes"

    def test_a_wrong_result_is_a_fault(self):
        assert outcome_of(lambda: check(False, "views are equal")).kind == "fault"

    def test_an_error_of_another_library_is_a_fault(self):
        def method() -> None:
            raise ValueError("Input is wrong: use another.")

        assert outcome_of(method).kind == "fault"

    def test_a_refusal_without_a_remedy_is_a_fault(self):
        assert outcome_of(lambda: check_count("layers", -1, at_least=1)).kind == "fault"  # type: ignore[arg-type, func-returns-value]

    def test_only_a_warning_about_equal_views_is_one(self):
        logger = logging.getLogger("st_extras.losses")
        assert outcome_of(lambda: logger.warning("the same vector twice")).kind == "warned"
        assert outcome_of(lambda: logger.warning("two columns would be better")).kind == "yes"
