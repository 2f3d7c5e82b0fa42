"""The judge's quality: against counts by hand."""

import itertools
from typing import Any

from scipy.stats import spearmanr

from benchmarks.tables import judge


def record(domain: str, row: str, gain: float, measures: tuple[float, float, float], low: float) -> dict[str, Any]:
    judged = dict(zip(judge.MEASURES, measures, strict=True)) | {"low": low}
    return {"encoder": "e", "domain": domain, "row": row, "seed": 0, "scores": {"mean": 50 + gain}, "judge": judged}


NOTHING = (0.0, 0.0, 0.0)
FOUND = [
    record("a", "start", 0, NOTHING, 0),
    record("a", "good", 3.0, (0.2, 0.1, 0.1), 0.1),
    record("a", "harmful", -2.0, (-0.2, -0.1, 0.2), -0.1),
    record("a", "small", 0.2, (0.12, 0.0, 0.0), -0.1),
    record("a", "adapt", 3.0, (0.2, 0.1, 0.1), 0.1),
    record("b", "start", 0, NOTHING, 0),
    record("b", "good", 1.0, (0.1, 0.1, 0.1), 0.1),
    record("b", "misleading", -1.0, (0.0, 0.0, 0.5), 0.3),
    {"encoder": "", "domain": "b", "row": "TF-IDF", "seed": 0, "scores": {"mean": 40.0}},
]


def test_regret_is_what_the_best_row_has_more():
    found = judge.changes(FOUND)
    assert judge.regrets(found, (0.5, 0.5, 1.0)) == [0.0, 2.0]
    assert judge.regrets(found, (1.0, 0.0, 0.0)) == [0.0, 0.0]
    assert judge.regrets(found[1:2], (1.0, 0.0, 0.0)) == [0.0]  # none is liked: the start stays
    assert judge.regrets(found[1:2], (0.0, 0.0, 1.0)) == [2.0]


def test_weights_are_chosen_without_the_domain():
    found = judge.changes(FOUND)
    on_b = [one for one in found if one.cell[1] == "b"]
    least = min(sum(judge.regrets(on_b, weights)) for weights in itertools.product((0.0, 0.5, 1.0), repeat=3))
    assert sum(judge.regrets(on_b, judge.best_weights(on_b))) == least == 0


def test_the_tables(monkeypatch):
    monkeypatch.setattr(judge, "records", lambda study: FOUND if study == "domains" else [])
    lines = judge.judge_table().splitlines()
    rank = spearmanr([0.25, 0.05, 0.06], [3.0, -2.0, 0.2]).statistic
    assert lines[2] == f"| all | its own | 5 | {rank:.2f} | 1.00 | 2.00 | +1.00 | -1.00 |"
    assert [line.split(" | ")[0] for line in lines[3:]] == ["| a", "| a", "| b", "| b"]
    assert judge.acceptance_table().splitlines()[2:] == [
        "| lost more than 0.5 | 2 | 1 | 50% |",
        "| between -0.5 and 0.5 | 1 | 0 | 0% |",
        "| gained 0.5 to 2 | 1 | 1 | 100% |",
        "| gained more than 2 | 1 | 1 | 100% |",
    ]
    monkeypatch.setattr(judge, "records", lambda study: [])
    assert judge.judge_table() == ""
