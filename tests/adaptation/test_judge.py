"""How candidates are measured, and which is chosen: with embeddings that are given, without a model."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from st_extras.adaptation import Row
from st_extras.adaptation import judge as module
from st_extras.adaptation.candidates import Candidate, NotTried
from st_extras.adaptation.encode import Encoded
from st_extras.adaptation.judge import Judged, choose, development, general_english, judge
from st_extras.evaluation import LabeledTexts, STSDataset, label_scores
from st_extras.evaluation.label_free import LabelFreeComparison
from st_extras.samples import graded_pairs, sample_sentences
from tests.helpers import draw

FORGETS = "loses 1.00 on general pairs, 0.50 allowed"
SEE = "(see max_general_loss, --max-general-loss)"


def row(name: str, gain: float, why: str = "", low: float | None = 0.01) -> Row:
    return Row(name, gain, low, None if low is None else 1.0, None, not why, why, 0.0)


@pytest.mark.parametrize(
    ("rows", "number", "reason"),
    [
        ([row("a", 0.3), row("b", 0.39), row("c", 0.2)], 0, "a was taken: b gains little more."),
        ([row("a", 0.29), row("b", 0.39), row("c", 0.2)], 1, "b was best."),
        ([row("a", 0.38, FORGETS), row("b", 0.39)], 1, "b was best."),
        (
            [row("a", 0.3), row("b", 0.39, FORGETS)],
            0,
            f"a was best of what is accepted: b gains more and forgets too much {SEE}.",
        ),
        ([row("a", 0.3), row("b", 0.39, f"not better; {FORGETS}", low=-0.1)], 0, "a was best."),
        ([row("a", 0.38, low=None), row("b", 0.39, low=None)], 1, "b was best."),
        ([], None, "Left as it is: no candidate was better than the start."),
        ([row("a", -0.1, "not better", low=-0.2)], None, "Left as it is: no candidate was better than the start."),
        (
            [row("a", -0.1, "not better", low=-0.2), row("b", 0.1, FORGETS)],
            None,
            f"Left as it is: what was better than the start loses too much on general pairs {SEE}.",
        ),
    ],
)
def test_the_gentlest_of_the_good_ones_is_taken(rows, number, reason):
    assert choose(rows) == (number, reason)


# --- measures ---


def test_pairs_are_scored_by_spearman_of_cosine_and_grade():
    embeddings, grades = draw(20, 6), [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]
    first, second = [f"a{k}" for k in range(10)], [f"b{k}" for k in range(10)]
    pairs = development(STSDataset("pairs", first, second, grades, ["x"] * 10))
    assert pairs.texts == [*first, *second]
    cosines = [float(torch.cosine_similarity(embeddings[k], embeddings[10 + k], dim=0)) for k in range(10)]
    assert pairs.score(embeddings) == pytest.approx(100 * spearmanr(cosines, grades).statistic)
    first, second, _ = graded_pairs()
    assert general_english().texts == [*first, *second]


def test_labels_are_scored_by_the_mean_of_three():
    embeddings, labels = draw(12, 4), [str(k % 2) for k in range(12)]
    measure = development(LabeledTexts([f"t{k}" for k in range(12)], labels))
    assert measure.score(embeddings) == pytest.approx(100 * label_scores(embeddings, labels)["mean"])


# --- the judge ---

TEXTS = list(dict.fromkeys(sample_sentences()))[:160]
ENCODED = Encoded(TEXTS[:120], TEXTS[120:], draw(160, 8))
START: Any = SimpleNamespace(name="start")
HALF = (torch.diag(torch.tensor([1.0] * 4 + [0.5] * 4, dtype=torch.float64)), torch.zeros(8, dtype=torch.float64))


def candidate(name: str = "half", model: Any = START, **options: Any) -> Candidate:
    return Candidate(name, model, ENCODED.of_judged, **({"step": HALF} | options))


def judged(candidates: Sequence[Candidate | NotTried], scores: Sequence[float] = (), **options: Any) -> Judged:
    """Judge candidates, with these scores on general pairs: of the start, then of each candidate."""
    given = iter(scores)
    measure = module.Measure(["a"], lambda embeddings: next(given, 60.0))
    encode = options.pop("encode", lambda model, texts: draw(len(texts), 8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "general_english", lambda: measure)
        return judge(START, ENCODED, candidates, encode, **options)


def test_the_verdict_is_that_of_the_judge_on_the_judged_texts_after_the_step():
    found = judged([candidate()], seed=3)
    verdict = LabelFreeComparison(TEXTS[:120], ENCODED.of_judged, seed=3).compare(ENCODED.of_judged @ HALF[0])
    assert (found.rows[0].gain, found.rows[0].low, found.rows[0].high) == (verdict.gain, verdict.low, verdict.high)
    assert found.facts["confirmed_share"] > 0.2
    same = judged([candidate(step=None)]).rows[0]
    assert (same.gain, same.accepted, same.why) == (0, False, "not better than the start, by the 95 % interval")


@pytest.mark.parametrize(
    ("allowed", "start", "lost", "accepted"),
    [
        (1.0, 60.0, 1.5, False),
        (1.0, 60.0, 0.5, True),
        (0, 60.0, 0.1, False),  # nothing may be lost: not the default
        (0, 60.0, -0.1, True),
        (None, 60.0, 1.1, False),  # a fortieth of 40
        (None, 60.0, 0.9, True),
        (None, 29.0, 25.0, True),  # the pairs say nothing of such an encoder
    ],
)
def test_general_use_is_kept(allowed, start, lost, accepted):
    dev = STSDataset("dev", ["a", "b", "c"], ["d", "e", "f"], [1.0, 2.0, 3.0], ["x"] * 3)
    with pytest.MonkeyPatch.context() as patch:
        grown = iter([10.0, 11.0])
        patch.setattr(module, "development", lambda dev: module.Measure(["a"], lambda embeddings: next(grown)))
        found = judged([candidate()], [start, start - lost], dev=dev, max_general_loss=allowed)
    (only,) = found.rows
    assert (only.gain, only.low, only.accepted) == (1.0, None, accepted)
    assert ("on general pairs" in only.why) == (not accepted)
    assert found.facts == {"general": start if start > 30 else None, "dev": 10.0}
    assert only.general == (start - lost if start > 30 else None)


@pytest.mark.parametrize(("general", "with_dev", "tried"), [(69.0, False, 2), (71.0, False, 1), (71.0, True, 2)])
def test_the_strongest_step_is_for_raw_encoders(general, with_dev, tried):
    labeled = LabeledTexts([f"t{k}" for k in range(12)], [str(k % 2) for k in range(12)])
    rows = judged(
        [candidate("mild"), candidate("strong", for_raw=True)], [general] * 3, dev=labeled if with_dev else None
    ).rows
    assert [row.name for row in rows] == ["mild", "strong"][:tried]


def test_each_encoder_is_asked_once_and_what_could_not_be_made_is_told():
    asked: list[str] = []

    def encode(model: Any, texts: list[str]) -> Tensor:
        asked.append(model.name)
        return draw(len(texts), 8)

    other: Any = SimpleNamespace(name="trained")
    tried = [candidate(), candidate("second"), NotTried("x: no"), candidate("third", other), candidate("fourth", other)]
    found = judged([*tried, NotTried("y: no")], encode=encode)
    assert asked == ["start", "trained"]
    assert [row.name for row in found.rows] == ["half", "second", "third", "fourth"]
    assert [one.name for one in found.candidates] == [row.name for row in found.rows]
    assert found.facts["not tried"] == "x: no; y: no"
    assert (found.reason, judged([NotTried("too few texts.")]).reason) == ("", "Left as it is: too few texts.")


def test_without_confirmed_neighbours_nothing_is_asked_for():
    texts = [f"{chr(0x4E00 + k)}" for k in range(120)]  # that share no characters
    strange = Encoded(texts, [], draw(120, 8))
    found = judge(START, strange, iter(()), lambda *_: draw(1, 1))
    assert found.reason.startswith("Left as it is: only 0% of the texts have a neighbour")
    assert not found.rows
