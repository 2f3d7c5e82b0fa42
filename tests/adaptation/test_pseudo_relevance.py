"""Queries of a search, and rankings compared by BM25's first documents: the equation as a loop, and what is refused."""

import random

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from st_extras.adaptation import pseudo_relevance
from st_extras.adaptation.pseudo_relevance import PseudoRelevanceComparison, sample_queries
from st_extras.adaptation.search import pseudo_relevance_results
from st_extras.adaptation.search_transforms import BOTH_SIDES, Affine, Routes
from st_extras.text.term_weights import BM25
from tests.fixtures import SENTENCES

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


def texts(count: int, words: int, seed: int) -> list[str]:
    drawn, found = random.Random(seed), {}
    while len(found) < count:
        found[" ".join(drawn.choices(WORDS, k=words))] = None
    return list(found)


DOCUMENTS = texts(300, 8, seed=1)
QUERIES = texts(40, 3, seed=2)


def test_queries_are_different_texts_sampled_at_random():
    assert sorted(sample_queries([*QUERIES, *QUERIES, " ", ""], DOCUMENTS, 0)[0]) == sorted(QUERIES)
    many = texts(2500, 4, seed=3)
    drawn, made = sample_queries(many, DOCUMENTS, 0)
    assert (len(drawn), len(set(drawn)), made) == (2000, 2000, False)
    assert drawn != sample_queries(many, DOCUMENTS, 1)[0]


def test_queries_are_made_of_sentences_of_documents():
    documents = [f"{first}. {second}! Yes." for first, second in zip(DOCUMENTS[::2], DOCUMENTS[1::2], strict=True)]
    made, said = sample_queries("documents", documents, 0)
    assert said
    assert len(made) == 150
    assert all(any(text in document for document in documents) and len(text.split()) == 8 for text in made)
    chinese = [f"卡片{number}丢失怎么办。请立即挂失账户{number}！好的！" for number in range(100)]
    assert sorted({text[:2] for text in sample_queries("documents", chinese, 0)[0]}) == ["卡片", "请立"]


@pytest.mark.parametrize(
    ("queries", "documents", "message"),
    [
        ("what", DOCUMENTS, 'queries must be a collection of texts or "documents"'),
        ([1] * 30, DOCUMENTS, "queries, row 0: expected a sentence, got 1"),
        (QUERIES[:19] * 2, DOCUMENTS, "queries must hold at least 20 different ones, got 19."),
        ("documents", DOCUMENTS, "too few documents have two sentences"),
        (DOCUMENTS[:21] + QUERIES[:19], DOCUMENTS, "queries must differ from the documents, but 21 of 40 are"),
        ([*QUERIES, "\ud800"], DOCUMENTS, "queries, row 40: a sentence must be valid text"),
        (QUERIES, DOCUMENTS[:99], "documents must hold at least 100 different documents, got 99."),
    ],
)
def test_queries_that_cannot_be_used(queries, documents, message):
    with pytest.raises(ValueError, match=message):
        sample_queries(queries, documents, 0)


def test_the_comparison_is_that_of_a_loop(monkeypatch):
    monkeypatch.setattr(pseudo_relevance, "_BLOCK", 900)  # three queries at a time
    queries, documents = [*QUERIES[:39], "rare"], [*DOCUMENTS[:299], "rare cat"]
    draw = torch.Generator().manual_seed(0)
    before, after = ((torch.randn(40, 8, generator=draw), torch.randn(300, 8, generator=draw)) for _ in range(2))
    changes = []
    for row, words in enumerate(torch.from_numpy(BM25(documents).scores(queries))):
        wanted = {number for number in words.topk(5).indices.tolist() if words[number] > 0}
        scores = []
        for of_queries, of_documents in (before, after):
            found, precisions = 0, []
            for place, number in enumerate((of_documents @ of_queries[row]).argsort(descending=True).tolist(), start=1):
                if number in wanted:
                    found += 1
                    precisions.append(found / place)
            scores.append(sum(precisions) / len(wanted))
        changes.append(scores[1] - scores[0])
    gain, error = PseudoRelevanceComparison(documents, queries, before).compare(*after)
    assert gain == pytest.approx(np.mean(changes), rel=1e-4)
    assert error == pytest.approx(np.std(changes, ddof=1) / 40**0.5, rel=1e-4)


def test_of_equal_scores_documents_that_are_not_relevant_come_first():
    found = pseudo_relevance.average_precision(torch.zeros(1, 9), torch.tensor([[3, 4, -1]]))
    assert found.tolist() == pytest.approx([(1 / 9 + 2 / 9) / 2])


def hashed(of: list[str]) -> torch.Tensor:
    """Embeddings that know words: the sum of a random vector a word."""
    vectors = torch.randn(len(WORDS), 32, generator=torch.Generator().manual_seed(0))
    return normalize(torch.stack([sum(vectors[WORDS.index(word)] for word in text.split()) for text in of]))  # type: ignore[arg-type]


def test_what_harms_is_refused_and_what_does_not_is_accepted():
    base = hashed(QUERIES), hashed(DOCUMENTS)
    comparison = PseudoRelevanceComparison(DOCUMENTS, QUERIES, base)
    assert comparison.compared == list(range(len(QUERIES)))
    identity = torch.eye(32, dtype=torch.float64)
    turned = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(1)))[0].double()
    routes = [Routes(Affine(matrix, identity[0] * 0)) for matrix in (turned, identity)]
    harmed, kept = pseudo_relevance_results(comparison, BOTH_SIDES[:2], routes, base)
    assert (harmed.name, kept.name) == (BOTH_SIDES[0].name, BOTH_SIDES[1].name)
    assert (harmed.accepted, kept.accepted, kept.reason) == (False, True, "")
    assert harmed.gain < -0.3
    assert kept.gain == 0.0
    gain, error = comparison.compare(normalize(base[0] @ turned.float()), base[1])
    assert (harmed.low, harmed.high) == pytest.approx((gain - 1.96 * error, gain + 1.96 * error))


def test_a_candidate_is_refused_by_more_than_a_standard_error(monkeypatch):
    base = hashed(QUERIES), hashed(DOCUMENTS)
    comparison = PseudoRelevanceComparison(DOCUMENTS, QUERIES, base)
    route = Routes(Affine(torch.eye(32), torch.zeros(32)))
    for gain, accepted in ((-0.011, False), (-0.009, True)):
        monkeypatch.setattr(comparison, "compare", lambda *_, gain=gain: (gain, 0.01))
        assert pseudo_relevance_results(comparison, BOTH_SIDES[:1], [route], base)[0].accepted is accepted


def test_queries_without_a_word_of_the_documents_are_not_compared():
    others = [f"zz{number} qq{number}" for number in range(30)]
    base = hashed(QUERIES[:35]), hashed(DOCUMENTS)
    assert PseudoRelevanceComparison(DOCUMENTS, [*others, *QUERIES[:5]], base).compared == [30, 31, 32, 33, 34]
