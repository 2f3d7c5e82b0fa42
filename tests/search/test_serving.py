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
    rows = [{"id": key, "title": "A title", "text": text} for key, text in TEXTS.items()]
    HybridSearch(encoder, rows, bm25_weight=0.7).save("my-index.sqlite")
    names: dict[str, object] = {}
    exec(compile(blocks(PAGES["serving.md"], "python")[0], "serving.md", "exec"), names)
    client = TestClient(names["app"])
    hits = client.get("/search", params={"query": "rain", "top_k": 2}).json()
    assert len(hits) == 2
    for hit in hits:
        assert hit["snippet"] in TEXTS[hit["id"]]
        assert hit["title"] == "A title"
    for wrong in (0, -1, 1000, "x"):
        assert client.get("/search", params={"query": "rain", "top_k": wrong}).status_code == 422
    assert client.post("/documents", json={"new": "a dog", "doc-0": "another text"}).json() == {
        "encoded": 2, "kept": 2, "dropped": 1,
    }  # fmt: skip
    assert "new" in [hit["id"] for hit in client.get("/search", params={"query": "a dog"}).json()]
    assert client.delete("/documents/doc-1").json() == {"encoded": 0, "kept": 3, "dropped": 1}
    opened = HybridSearch.open("my-index.sqlite", encoder)
    assert (opened.ids, opened.bm25_weight) == (["doc-2", "new", "doc-0"], 0.7)
