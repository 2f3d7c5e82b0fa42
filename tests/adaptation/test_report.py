"""The typed result: its table, and what is written."""

import json
from typing import Any

from st_extras.adaptation import Adaptation, CandidateResult, DomainDetails, SearchDetails, TextSummary

TEXTS = TextSummary(9, 8, 7, 2, 3.5, 0.1)
model: Any = object()


def found(details: Any, *candidates: CandidateResult) -> Adaptation:
    return Adaptation(model, "b", "b was best.", "points", list(candidates), TEXTS, details, 1.26)


def test_the_table_has_the_base_model_and_no_empty_columns():
    domain = found(
        DomainDetails(2.0, general=80.0),
        CandidateResult("a", -0.1, -0.2, 0.1, 79.0, False, "not better", 1.0),
        CandidateResult("b", 0.25, 0.2, 0.3, 79.5, True, "", 2.0),
    )
    titles, rows = domain.table()
    assert titles == ["candidate", "gain", "95 % interval", "general", "seconds", "accepted"]
    assert rows[0] == ["base model", "", "", "80.00", "", ""]
    assert rows[1] == ["a", "-0.1000", "-0.2000 to +0.1000", "79.00", "1", "no: not better"]
    assert domain.chosen_result == domain.candidates[1]
    assert [line.split("  ")[0] for line in str(domain).splitlines()] == [
        "b was best.",
        "candidate",
        "base model",
        "a",
        "b",
    ]
    search = found(SearchDetails(20, True), CandidateResult("b", 0.25, None, None, None, True, "", 0.0))
    assert search.table()[0] == ["candidate", "gain", "accepted"]
    assert found(SearchDetails(20, True)).table() == ([], [])
    assert str(found(SearchDetails(20, True))) == "b was best."


def test_what_is_written_is_all_but_the_model():
    one = CandidateResult("b", 0.25, 0.2, 0.3, 79.5, True, "", 2.0)
    written = found(DomainDetails(2.0, unrelated_after={100: (0.1, 0.0, 0.2)}), one).written()
    assert json.loads(json.dumps(written))["details"]["unrelated_after"] == {"100": [0.1, 0.0, 0.2]}
    assert written["texts"]["held_out"] == 2
    assert written["candidates"][0]["gain"] == 0.25
    assert (written["changed"], written["chosen"], written["seconds"]) == (True, "b", 1.3)
