"""Queries of a search, and rankings compared by BM25's first documents: the equation as a loop, and what is refused."""

import random
import time
from typing import Any

import numpy as np
import pytest
import torch

from st_extras import functional
from st_extras.adaptation import search
from st_extras.adaptation.search import PseudoRelevanceComparison, compare_candidates, search_queries
from st_extras.adaptation.search_transforms import Affine, Routes
from st_extras.text.term_weights import BM25
from tests.adaptation.texts import WORDS
from tests.helpers import draw


def texts(count: int, words: int, seed: int) -> list[str]:
    drawn, found = random.Random(seed), {}
    while len(found) < count:
        found[" ".join(drawn.choices(WORDS, k=words))] = None
    return list(found)


DOCUMENTS = texts(300, 8, seed=1)
QUERIES = texts(40, 3, seed=2)


def test_queries_are_made_of_sentences_of_documents():
    documents = [f"{first}. {second}! Yes." for first, second in zip(DOCUMENTS[::2], DOCUMENTS[1::2], strict=True)]
    found = search_queries(None, documents)
    assert len(found) == 150
    assert all(any(text in document for document in documents) and len(text.split()) == 8 for text in found)
    assert sorted(search_queries([*QUERIES, *QUERIES, " "], DOCUMENTS)) == sorted(QUERIES)


@pytest.mark.parametrize(
    ("queries", "documents", "message"),
    [
        ("documents", DOCUMENTS, "queries must be"),
        ([1] * 30, DOCUMENTS, "queries, row 0"),
        (DOCUMENTS[:21] + QUERIES[:19], DOCUMENTS, "queries must differ from the documents"),
    ],
)
def test_queries_that_cannot_be_used(queries, documents, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        search_queries(queries, documents)


def test_the_comparison_is_that_of_a_loop(monkeypatch):
    monkeypatch.setattr(functional, "_SCORES", 900)  # three queries at a time
    queries, documents = [*QUERIES[:38], "rare", "zz qq"], [*DOCUMENTS[:299], "rare cat"]
    before, after = ((draw(40, 8, seed=k).numpy(), draw(300, 8, seed=k + 1).numpy()) for k in (0, 2))
    changes = []
    for row, words in enumerate(BM25(documents).scores(queries)):
        wanted = {number for number in np.argsort(-words, kind="stable")[:5].tolist() if words[number] > 0}
        if not wanted:
            continue
        scores = []
        for of_queries, of_documents in (before, after):
            found, precisions = 0, []
            for place, number in enumerate((-(of_documents @ of_queries[row])).argsort().tolist(), start=1):
                if number in wanted:
                    found += 1
                    precisions.append(found / place)
            scores.append(sum(precisions) / len(wanted))
        changes.append(scores[1] - scores[0])
    comparison = PseudoRelevanceComparison(BM25(documents), queries, before)
    assert comparison.compared.tolist() == list(range(39))  # not the last one, which shares no word
    gain, error = comparison.compare(*after)
    assert gain == pytest.approx(np.mean(changes), rel=1e-4)
    assert error == pytest.approx(np.std(changes, ddof=1) / 39**0.5, rel=1e-4)


def test_of_equal_scores_documents_that_are_not_relevant_come_first():
    found = search.average_precision_of_targets(np.zeros((1, 9)), np.array([[3, 4, -1]]))
    assert found.tolist() == pytest.approx([(1 / 9 + 2 / 9) / 2])


def test_a_candidate_is_refused_by_more_than_a_standard_error():
    base = draw(40, 8).float().numpy(), draw(300, 8, seed=1).float().numpy()
    route = Routes(Affine(torch.eye(8), torch.ones(8)))
    received = []
    for gain, accepted in ((-0.011, False), (-0.009, True)):
        compare = lambda *given, gain=gain: received.append(given) or (gain, 0.01)  # noqa: E731
        (found,) = compare_candidates(compare, {"one": route}, base)
        assert (found.name, found.accepted) == ("one", accepted)
        assert (found.low, found.high) == pytest.approx((gain - 0.0196, gain + 0.0196))
    assert all(map(np.array_equal, received[0], route.after(base)))


def test_by_judgements_a_candidate_must_be_better(monkeypatch):
    """Each comparison takes a second and a half."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def compare(*_: Any) -> tuple[float, None]:
        clock[0] += 1.5
        return next(gains), None

    base, route = (
        (draw(4, 8).float().numpy(), draw(9, 8, seed=1).float().numpy()),
        Routes(Affine(torch.eye(8), torch.ones(8))),
    )
    gains = iter([0.0, 0.01, -0.01])
    found = compare_candidates(compare, dict.fromkeys("abc", route), base)
    assert [one.seconds for one in found] == [1.5] * 3
    why = "not better than the base model"
    assert [(one.name, one.gain, one.low, one.high, one.why_not_accepted) for one in found] == [
        ("a", 0.0, None, None, why), ("b", 0.01, None, None, None), ("c", -0.01, None, None, why)
    ]  # fmt: skip
