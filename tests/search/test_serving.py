"""The server of docs/serving.md, as it stands there."""

import pytest

from st_extras.search import HybridSearch
from tests.docs.pages import PAGES, blocks

pytest.importorskip("fastapi")
TEXTS = {f"doc-{i}": f"a text about the {word}" for i, word in enumerate(("cat", "rain", "river"))}


def test_it_answers_from_its_index_and_changes_it(encoder, tmp_path, monkeypatch):
    from fastapi.testclient import TestClient

    monkeypatch.chdir(tmp_path)
    encoder.save("my-search")
    rows = [{"id": key, "title": "A title", "text": text, "product": "card"} for key, text in TEXTS.items()]
    HybridSearch(encoder, rows, bm25_weight=0.7).save("my-index.parquet")
    names: dict[str, object] = {}
    exec(compile(blocks(PAGES["serving.md"], "python")[0], "serving.md", "exec"), names)
    client = TestClient(names["app"])

    def find(query, **parameters):
        return client.get("/search", params={"query": query, **parameters}).json()

    hits = find("rain", top_k=2)
    assert len(hits) == 2
    for hit in hits:
        assert hit["text"] in TEXTS[hit["corpus_id"]]
        assert (hit["title"], hit["metadata"]) == ("A title", {"product": "card"})
    marked = {hit["text"][first:last] for hit in find("a text rain") for first, last in hit["matches"]}
    assert {"text"} <= marked <= {"text", "rain"}
    for wrong in (0, -1, 1000, "x"):
        assert client.get("/search", params={"query": "rain", "top_k": wrong}).status_code == 422
    new = {
        "id": "new",
        "title": "Dogs",
        "text": "a dog",
        "metadata": {"product": "loan", "date": "2025-01-31", "open": True},
    }
    changed = {"id": "doc-0", "title": "A title", "text": "another text"}
    counts = {"encoded": 2, "kept": 2, "dropped": 1}
    assert client.post("/documents", json=[new, changed]).json() == counts
    (hit,) = find("a dog", product="loan")
    assert (hit["corpus_id"], hit["title"], hit["metadata"]) == ("new", "Dogs", new["metadata"])
    for wrong in ({**new, "text": " "}, {"id": "new"}, {**new, "id": ""}, {**new, "metadata": {"tags": ["a"]}}):
        assert client.post("/documents", json=[wrong]).status_code == 422
    twice = client.post("/documents", json=[new, {**new, "text": "another"}])
    assert (twice.status_code, "'new'" in twice.json()["detail"]) == (400, True)
    assert len(find("a", top_k=100)) == 4
    assert client.delete("/documents/doc-1").json() == {"encoded": 0, "kept": 3, "dropped": 1}
    assert client.post("/documents", json=[{"id": "help/a b.md", "text": "a page"}]).json()["encoded"] == 1
    assert client.delete("/documents/help/a%20b.md").json() == {"encoded": 0, "kept": 3, "dropped": 1}
    assert client.post("/reload").json() == {"changed": False}
    opened = HybridSearch.open("my-index.parquet", encoder)
    assert (opened.ids, opened.bm25_weight) == (["doc-2", "new", "doc-0"], 0.7)
    assert opened.documents[1].metadata == new["metadata"]
    opened.remove(["new"])
    opened.save("my-index.parquet")  # as another process may
    assert client.post("/reload").json() == {"changed": True}
    assert find("a dog", product="loan") == []
    opened.add({"later": "a later text"})
    opened.save("my-index.parquet")
    assert client.post("/documents", json=[{**new, "id": "last"}]).json() == {"encoded": 1, "kept": 3, "dropped": 0}
    opened.reload()
    opened.add({"latest": "the latest text"})
    opened.save("my-index.parquet")
    assert client.delete("/documents/last").json() == {"encoded": 0, "kept": 4, "dropped": 1}
    assert opened.reload()
    assert opened.ids == ["doc-2", "doc-0", "later", "latest"]
