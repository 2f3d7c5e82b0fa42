"""The script of docs/engines.md in Qdrant's local mode: it finds what the search finds."""

import random

import pytest

from st_extras.search import HybridSearch
from tests.adaptation.texts import WORDS
from tests.docs.pages import PAGES, blocks

LONG = [" ".join(random.Random(i).choices(WORDS, k=60)) for i in range(8)]
SHORT = [" ".join(random.Random(100 + i).choices(WORDS, k=2 + i % 9)) for i in range(292)]
QUERIES = [" ".join(random.Random(500 + i).choices(WORDS, k=2 + i % 5)) for i in range(20)] + ["the the cat"]


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_an_index_that_was_moved_to_qdrant_finds_the_same(still_encoder, tmp_path, monkeypatch, similarity):
    """Of more documents than each side suggests, with titles and passages, by a weight at which both sides count."""
    client = pytest.importorskip("qdrant_client")
    monkeypatch.chdir(tmp_path)
    still_encoder.similarity_fn_name = similarity
    still_encoder.save("my-search")
    texts = [*LONG, *SHORT]
    rows = [{"id": i if i % 2 else f"d{i}", "title": "old river" * (i % 3 == 0), "text": texts[i]} for i in range(300)]
    scale = 1 if similarity == "cosine" else 20
    search = HybridSearch(still_encoder, rows, bm25_weight=0.05 * scale, passages=8)
    search.save("my-index.parquet")
    assert len(search.embeddings) > 350
    (script,) = blocks(PAGES["engines.md"], "python")
    assert "http://localhost:6333" in script
    names: dict[str, object] = {"__name__": "move"}
    exec(compile(script.replace("http://localhost:6333", ":memory:"), "engines.md", "exec"), names)
    assert isinstance(names["client"], client.QdrantClient)
    names["move"]()
    among = [row["id"] for row in rows[::7]]
    for query in QUERIES:
        for limits in ({}, {"among": among}):
            expected = search.search(query, 10, **limits)[0]
            found = names["find"](query, 10, **limits)
            assert [hit["score"] for hit in found] == pytest.approx([hit["score"] for hit in expected], abs=1e-4)
            for hit, one in zip(found, expected, strict=True):
                if [row["score"] for row in found].count(hit["score"]) == 1:
                    assert (hit["id"], hit["title"]) == (one["corpus_id"], one["title"])
                    assert hit["text"] == one["text"] or abs(hit["score"] - one["score"]) < 1e-4
