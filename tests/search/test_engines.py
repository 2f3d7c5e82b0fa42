"""The formula of docs/search.md in engines that run here: SQLite's FTS5, and Qdrant's local mode."""

import json
import re
import sqlite3
import unicodedata

import numpy as np
import pytest

from st_extras.search import bm25_weight
from tests.docs.pages import PAGES

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGES["search.md"], flags=re.DOTALL)


def block(language: str, word: str) -> str:
    (found,) = (text for kind, text in BLOCKS if kind == language and word in text)
    return found


def test_sqlite_ranks_by_the_sum(encoder, sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = {"model": encoder, "sentences": sentences}
    exec(compile(block("python", "fts5"), "search.md", "exec"), run)
    queries, dense = run["queries"], encoder.encode_query(run["queries"], normalize_embeddings=True) @ run["vectors"].T
    bm25 = np.zeros(dense.shape)
    for row, query in enumerate(queries):
        words = " OR ".join(f'"{word}"' for word in query.split())
        for number, score in run["store"].execute(run["BM25"], [words]):
            bm25[row, number] = score
    assert (bm25 > 0).any(axis=1).all(), "FTS5's own scores are negative"
    assert (bm25 == 0).any()
    assert run["weight"] == pytest.approx(bm25_weight(dense, bm25))
    for row, query in enumerate(queries):
        found = run["find"](query)
        expected = dense[row] + run["weight"] * bm25[row]
        assert [number for number, _ in found] == np.argsort(-expected, kind="stable").tolist()[:10]
        assert [score for _, score in found] == pytest.approx(sorted(expected, reverse=True)[:10], abs=1e-5)


def test_what_the_page_says_of_the_tokenizer_of_sqlite(encoder, sentences):
    """Each word of a query as a user writes it, composed or not, in any script."""
    run = {"model": encoder, "sentences": sentences}
    exec(compile(block("python", "fts5"), "search.md", "exec"), run)
    store = sqlite3.connect(":memory:")
    store.execute("CREATE VIRTUAL TABLE documents USING fts5(text)")
    texts = [
        "my résumé",
        unicodedata.normalize("NFD", "a résumé"),
        "हिन्दी भाषा",
        "die straße",
        "東京都に住む",
        "東京 都",
    ]
    store.executemany("INSERT INTO documents(rowid, text) VALUES (?, ?)", enumerate(texts))
    expected = {"résumé": {0, 1}, unicodedata.normalize("NFD", "résumé"): {0, 1}, "resume": {0, 1}, "हिन्दी": {2}}
    expected |= {"straße": {3}, "strasse": set(), "東京": {5}, '"quoted" AND': set(), "!?": set(), "": set()}
    for query, numbers in expected.items():
        assert {number for number, _ in store.execute(run["BM25"], [run["any_word"](query)])} == numbers, query


@pytest.mark.slow
def test_the_formula_of_qdrant_is_the_sum():
    """Of few candidates each, so that some are found by one side alone."""
    models = pytest.importorskip("qdrant_client").models
    body = json.loads(block("json", "$score[0]"))
    draw = np.random.default_rng(0)
    dense, words = draw.normal(size=(50, 4)), np.maximum(0, draw.normal(size=(50, 6))) * 9
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    store = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    store.create_collection(
        "documents",
        vectors_config={"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)},
        sparse_vectors_config={"bm25": models.SparseVectorParams()},
    )
    sparse = [models.SparseVector(indices=np.flatnonzero(row).tolist(), values=row[row > 0].tolist()) for row in words]
    points = [models.PointStruct(id=i, vector={"dense": dense[i].tolist(), "bm25": sparse[i]}) for i in range(50)]
    store.upsert("documents", points)
    query, terms = dense[3] + dense[7], [1, 4]
    given = [query.tolist(), models.SparseVector(indices=terms, values=[1.0, 1.0])]
    fetched = zip(body["prefetch"], given, strict=True)
    prefetch = [models.Prefetch(**{**fetch, "query": one, "limit": 8}) for fetch, one in fetched]
    found = store.query_points("documents", prefetch=prefetch, query=models.FormulaQuery(**body["query"]), limit=50)
    sides = dense @ query / np.linalg.norm(query), words[:, terms].sum(axis=1)
    first = [{*np.argsort(-side)[:8].tolist()} for side in sides]
    total = {i: (i in first[0]) * sides[0][i] + 0.02 * (i in first[1]) * sides[1][i] for i in first[0] | first[1]}
    expected = sorted(total, key=lambda i: -total[i])
    assert [point.id for point in found.points] == expected
    assert [point.score for point in found.points] == pytest.approx([total[i] for i in expected], abs=1e-5)
