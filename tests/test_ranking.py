"""What search, adaptation and evaluation share: each part as a loop, and one weight of BM25 for all three."""

import itertools
import random

import numpy as np
import pytest
import torch

from st_extras import functional, ranking
from st_extras.adaptation import adapt_search
from st_extras.encoders.passages import Passages
from st_extras.evaluation import RetrievalTask, compare_retrieval, retrieval
from st_extras.ranking import (
    EmbeddingBlocks,
    check_product,
    comparable,
    first_documents,
    highest,
    hybrid_weight,
    queries_from_documents,
    sample_queries,
    score_blocks,
    search_queries,
)
from st_extras.search import HybridSearch, bm25_weight
from st_extras.text.term_weights import BM25
from tests.adaptation.test_search_comparison import DOCUMENTS, QUERIES
from tests.adaptation.texts import quiet
from tests.helpers import draw


def test_the_highest_come_first_and_of_equal_ones_the_lower_number():
    scores = np.array([[0.0, 2, 1, 2, 0], [0, 0, 0, 0, 0], [-np.inf, 3, -np.inf, 1, 2]])
    assert highest(scores, 3).tolist() == [[1, 3, 2], [0, 1, 2], [1, 4, 3]]
    assert highest(scores, 9).tolist() == [[1, 3, 2, 0, 4], [0, 1, 2, 3, 4], [1, 4, 3, 0, 2]]
    rows = np.random.default_rng(0).integers(0, 6, (20, 50)).astype(np.float32)
    loop = [sorted(range(50), key=lambda number, row=row: (-row[number], number)) for row in rows]
    for count in (7, 45):  # of more than 16, numpy's usual sort mixes equal ones
        assert highest(rows, count).tolist() == [order[:count] for order in loop]


@pytest.mark.parametrize("block", [1, 3, 40])
def test_equal_documents_have_equal_scores_and_the_first_comes_first(monkeypatch, block):
    """A matrix product rounds equal rows otherwise at the edge of its blocks."""
    queries = draw(40, 48, seed=1).float().numpy()
    documents = draw(3, 48).float().numpy()[np.arange(61) % 3]
    monkeypatch.setattr(functional, "_SCORES", 61 * block)
    for _, scores in score_blocks(queries, EmbeddingBlocks.of(documents)):
        for first in range(3):
            assert (scores[:, first::3] == scores[:, [first]]).all()
    assert (np.diff(first_documents(queries, documents, 20)) == 3).all()


@pytest.mark.parametrize("dimension", [1, 7, 8])
@pytest.mark.parametrize("binary", [True, False])
def test_equal_documents_are_found_and_no_others(monkeypatch, dimension, binary):
    """In blocks, and after a change; most hashes of signs alone, as binary embeddings have, are equal."""
    monkeypatch.setattr(ranking, "_BLOCK", 16)
    drawn = draw(400, dimension).float().numpy().round(1) + 0  # no -0
    documents = np.where(drawn < 0, -1, 1).astype(np.float32) if binary else drawn
    documents[::90] = 0
    documents[150::2] = documents[:125]
    queries = draw(5, dimension, seed=1).round().float().numpy()
    stays = draw(300, 1, seed=2)[:, 0].numpy() < 0
    changed = EmbeddingBlocks.of(documents[:100], documents[100:300]).changed(stays, documents[300:])
    for blocks, rows in (
        (EmbeddingBlocks.of(documents), documents),
        (changed, np.concatenate([documents[:300][stays], documents[300:]])),
    ):
        assert len(np.unique(blocks.hashes)) < len(np.unique(rows, axis=0)) or not binary
        np.testing.assert_allclose(blocks.scores(queries), queries @ rows.T, rtol=1e-5, atol=1e-5)
        firsts = [next(i for i, other in enumerate(rows) if (other == row).all()) for row in rows]
        expected = [(number, first) for number, first in enumerate(firsts) if first < number]
        assert [*zip(*map(np.ndarray.tolist, blocks.repeated), strict=True)] == expected


def test_blocks_hold_the_rows_in_their_order_and_a_change_copies_only_what_it_touches(monkeypatch):
    monkeypatch.setattr(ranking, "_BLOCK", 16)
    rows = draw(70, 6).float().numpy()
    rows[[3, 40, 65]] = 0
    blocks = EmbeddingBlocks.of(rows[:50], rows[50:])
    assert (len(blocks), blocks.dimension, blocks.first.tolist()) == (70, 6, [0, 16, 32, 48, 50, 66, 70])
    assert blocks.known.tolist() == rows.any(axis=1).tolist()
    stays = np.ones(70, dtype=bool)
    stays[[20, 21, 69]] = False
    more = draw(3, 6, seed=1).float().numpy()
    more[1] = 0
    changed, expected = blocks.changed(stays, more), np.concatenate([rows[stays], more])
    for found, whole in ((blocks, rows), (changed, expected)):
        np.testing.assert_array_equal(found.whole(), whole)
        for numbers in ([], [0], [15, 16, 49, 50], [*range(5, 60, 7)], [*range(len(whole))]):
            np.testing.assert_array_equal(found.rows(np.array(numbers, dtype=np.int64)), whole[numbers])
    assert (len(changed), changed.known.tolist()) == (70, expected.any(axis=1).tolist())
    kept = [any(np.shares_memory(one, block) for one in changed.blocks) for block in blocks.blocks]
    assert kept == [True, False, True, True, True, False]
    assert changed.first.tolist() == [0, 16, 30, 46, 48, 64, 70], "small neighbours are joined"
    empty = changed.changed(np.zeros(70, dtype=bool), more[:0])
    assert (len(empty), empty.whole().shape) == (0, (0, 6))


def test_blocks_change_nothing(monkeypatch):
    queries, documents = draw(40, 8).float().numpy(), draw(30, 8, seed=1).float().numpy()
    whole = first_documents(queries, documents, 4)
    assert [rows for rows, _ in score_blocks(queries, EmbeddingBlocks.of(documents))] == [slice(0, 40)]
    monkeypatch.setattr(functional, "_SCORES", 100)
    blocks = score_blocks(queries, EmbeddingBlocks.of(documents))
    assert [(rows.start, rows.stop) for rows, _ in blocks][-2:] == [(36, 39), (39, 40)]
    assert first_documents(queries, documents, 4).tolist() == whole.tolist()
    assert first_documents(queries[:0], documents, 4).shape == (0, 4)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_inner_products_of_comparable_rows_are_the_similarities(still_encoder, similarity):
    still_encoder.similarity_fn_name = similarity
    x, y = 3 * draw(5, 16).float(), draw(7, 16, seed=1).float()
    found = comparable(still_encoder, x) @ comparable(still_encoder, y).T
    np.testing.assert_allclose(found, still_encoder.similarity(x, y), rtol=1e-5, atol=1e-6)
    halves = comparable(still_encoder, x.bfloat16())
    np.testing.assert_array_equal(halves, comparable(still_encoder, x.bfloat16().float()))
    still_encoder.similarity_fn_name = "manhattan"
    with pytest.raises(ValueError, match=r"^model\.similarity_fn_name must be one of 'cosine', 'dot', got 'manhattan'"):
        check_product(still_encoder)


def test_queries_are_different_texts_in_whatever_order(monkeypatch):
    assert sorted(sample_queries([*QUERIES, f" {QUERIES[0]} ", " ", "\u200b"])) == sorted(QUERIES)
    monkeypatch.setattr(ranking, "MOST_QUERIES", 7)
    drawn = sample_queries(QUERIES)
    assert len({*drawn} & {*QUERIES}) == 7
    assert sample_queries(QUERIES[::-1] * 2) == drawn
    with pytest.raises(ValueError, match=r"^queries, row 1"):
        sample_queries(["a", 3])


def test_half_of_the_queries_may_be_documents():
    assert sorted(search_queries([*DOCUMENTS[:4], *QUERIES[:4], QUERIES[0]], DOCUMENTS)) == sorted(
        [*DOCUMENTS[:4], *QUERIES[:4]]
    )
    with pytest.raises(ValueError, match=r"^queries must differ from the documents, but 5 of 9 are documents\.$"):
        search_queries([*DOCUMENTS[:5], *QUERIES[:4]], DOCUMENTS)
    assert search_queries(None, DOCUMENTS[:9]) == queries_from_documents(DOCUMENTS[:9])
    assert search_queries([], DOCUMENTS) == []


def test_a_query_is_a_sentence_of_a_document(monkeypatch):
    several = "One cat sat here. No. Two dogs ran far away!\nA third line stands here"
    allowed = {"One cat sat here.", "Two dogs ran far away!", "A third line stands here"}
    made = [queries_from_documents([f"{several} {number}"])[0] for number in range(20)]
    assert {query.rstrip(" 0123456789") for query in made} <= allowed
    numbered = queries_from_documents([f"{number}. {several}" for number in range(50)])
    assert sorted(numbered) == sorted(allowed), "each once, whichever documents have it"
    assert queries_from_documents(["One cat sat here. Two dogs ran."])[0] in ("One cat sat here.", "Two dogs ran.")
    long = " ".join(f"w{i}" for i in range(30))
    assert queries_from_documents([long, "\u200b", ""]) == [" ".join(f"w{i}" for i in range(12))]
    assert queries_from_documents(["我们搜索所有的文档和所有的书"]) == ["我们搜索所有的文档和所有"]
    many = [f"text number {i}" for i in range(300)]
    drawn = queries_from_documents(many)
    assert len({*drawn} & {*many}) == 200
    assert queries_from_documents(random.Random(1).sample(many, 300) * 2) == drawn


# --- one weight of BM25 ---


def test_the_weight_is_that_of_the_equation(monkeypatch):
    """In blocks; what has no embedding is no query and no document of it."""
    monkeypatch.setattr(functional, "_SCORES", 1000)
    queries, documents = draw(40, 8).float().numpy(), draw(300, 8, seed=1).float().numpy()
    index = BM25(DOCUMENTS)
    bm25 = index.scores(QUERIES)
    expected = bm25_weight(queries @ documents.T, bm25, 0.3)
    assert hybrid_weight(index, QUERIES, queries, EmbeddingBlocks.of(documents), 0.3) == pytest.approx(
        expected, rel=1e-5
    )
    queries[3], documents[5] = 0, 0
    rows, columns = np.delete(np.arange(40), 3), np.delete(np.arange(300), 5)
    expected = bm25_weight(queries[rows] @ documents[columns].T, bm25[rows][:, columns], 0.2)
    assert hybrid_weight(index, QUERIES, queries, EmbeddingBlocks.of(documents)) == pytest.approx(expected, rel=1e-5)


def test_documents_count_by_their_best_passage(monkeypatch):
    """In what comes first and in the weight; a document without an embedding is none of it."""
    monkeypatch.setattr(functional, "_SCORES", 1000)
    first = np.array([0, 1, 4, 6, 7, 10, *range(11, 306)])  # 300 documents of 305 passages
    passages = Passages(first, np.zeros((305, 2), dtype=np.int32))
    queries, rows = draw(40, 8).float().numpy(), draw(305, 8, seed=1).float().numpy()
    rows[[4, 5, 8]] = 0  # all of the third document, one passage of another
    scores = np.stack([(queries @ rows.T)[:, a:b].max(axis=1) for a, b in itertools.pairwise(first)], axis=1)
    assert first_documents(queries, rows, 7, passages).tolist() == np.argsort(-scores, axis=1)[:, :7].tolist()
    assert first_documents(queries[:0], rows, 400, passages).shape == (0, 300)
    index, left = BM25(DOCUMENTS), np.delete(np.arange(300), 2)
    expected = bm25_weight(scores[:, left], index.scores(QUERIES)[:, left], 0.2)
    found = hybrid_weight(index, QUERIES, queries, EmbeddingBlocks.of(rows), passages=passages)
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_weight_of_0_is_warned_of(caplog):
    rows = draw(300, 8).float().numpy()
    assert hybrid_weight(BM25(DOCUMENTS), ["zzz", "qqq"], rows[:2], EmbeddingBlocks.of(rows)) == 0
    assert "BM25 has the weight 0" in caplog.text


SENTENCES = [f"{first}. {second}!" for first, second in zip(DOCUMENTS[::2], DOCUMENTS[1::2], strict=True)]


@pytest.mark.parametrize(
    ("similarity", "queries"),
    [
        pytest.param("cosine", QUERIES, marks=pytest.mark.slow),
        ("dot", QUERIES),
        ("cosine", None),
        pytest.param("dot", None, marks=pytest.mark.slow),
    ],
)
def test_search_adaptation_and_evaluation_find_one_weight(still_encoder, tmp_path, monkeypatch, similarity, queries):
    """For the same model, documents and queries, in whatever order, of more queries than are used; some are cut."""
    monkeypatch.setattr(ranking, "MOST_QUERIES", 30)
    still_encoder.similarity_fn_name = similarity
    found = adapt_search(still_encoder, SENTENCES, tmp_path, queries=queries, **quiet())
    given = queries and queries[::-1]
    search = HybridSearch(found.model, SENTENCES, queries=given)
    assert found.details.bm25_weight == pytest.approx(search.bm25_weight, rel=1e-5)
    weights: list[float] = []
    spy = lambda *given, **more: weights.append(hybrid_weight(*given, **more)) or weights[-1]  # noqa: E731
    monkeypatch.setattr(retrieval, "hybrid_weight", spy)
    scored = queries_from_documents(SENTENCES) if given is None else given
    task = RetrievalTask(
        {str(number): query for number, query in enumerate(scored)},
        {str(number): text for number, text in enumerate(SENTENCES)},
        {str(number): {"0": 1.0} for number in range(len(scored))},
    )
    monkeypatch.setattr(ranking, "MOST_QUERIES", 30 if given else 1000)
    compare_retrieval(task, [("one", found.model)])
    assert weights == [pytest.approx(search.bm25_weight, rel=1e-5)]
    assert torch.is_tensor(found.model.encode("a", convert_to_tensor=True))


@pytest.mark.parametrize("side", ["queries", "documents"])
def test_bm25_alone_ranks_where_the_encoder_knows_no_text(side, caplog):
    embedded = {"queries": draw(2, 8).float().numpy(), "documents": draw(3, 8, seed=1).float().numpy()}
    embedded[side][:] = 0
    documents = EmbeddingBlocks.of(embedded["documents"])
    found = hybrid_weight(BM25(["a red car", "a blue boat", "tea"]), ["red", "tea"], embedded["queries"], documents)
    assert found == 1.0
    assert "BM25 alone ranks" in caplog.text
