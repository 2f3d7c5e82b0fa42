"""The server of docs/serving.md, as it stands there."""

import json

import pytest

from st_extras.search import HybridSearch
from tests.docs.pages import PAGES, blocks

pytest.importorskip("fastapi")
ROWS = [{"_id": f"doc-{i}", "text": f"a text about the {word}"} for i, word in enumerate(("cat", "rain", "river"))]


def test_it_answers_and_follows_the_documents(encoder, tmp_path, monkeypatch):
    from fastapi.testclient import TestClient

    monkeypatch.chdir(tmp_path)
    encoder.save("my-search")

    def write(rows):
        (tmp_path / "documents.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf8")

    write(ROWS)
    names: dict[str, object] = {}
    server = compile(blocks(PAGES["serving.md"], "python")[0], "serving.md", "exec")
    exec(server, names)
    client = TestClient(names["app"])
    hits = client.get("/search", params={"query": "rain", "top_k": 2}).json()
    assert len(hits) == 2
    assert {hit["id"]: hit["snippet"] for hit in hits}.items() <= {row["_id"]: row["text"] for row in ROWS}.items()
    write([*ROWS[1:], {"_id": "new", "text": "a dog"}])
    assert client.post("/update").json() == {"encoded": 1, "kept": 2, "dropped": 1}
    assert "new" in [hit["id"] for hit in client.get("/search", params={"query": "a dog"}).json()]
    search = HybridSearch.load("my-index", encoder)
    search.update({row["_id"]: row["text"] for row in ROWS}, bm25_weight=0.7)
    search.save("my-index")
    exec(server, names)  # started again, with other documents
    assert (names["search"].bm25_weight, names["search"].ids) == (0.7, ["doc-1", "doc-2", "new"])
