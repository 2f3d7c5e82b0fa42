"""Each setting of a search reaches what it is for, also after an update, and after it was saved and loaded."""

import random
from typing import Any

import pytest

from st_extras.search import HybridSearch
from st_extras.text.term_weights import BM25_SHARE
from tests.adaptation.texts import WORDS
from tests.helpers import Recorder

DOCUMENTS = {f"d{i}": " ".join(random.Random(i).choices(WORDS, k=30)) for i in range(12)}
MORE = DOCUMENTS | {"new": "a new document"}
QUERIES = [" ".join(random.Random(100 + i).choices(WORDS, k=3)) for i in range(7)]


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder(monkeypatch)
    recorder.on(
        "st_extras.encoders.embedding_store:EmbeddingStore.__init__",
        "st_extras.encoders.embedding_store:EmbeddingStore.encode",
        "st_extras.search.hybrid:encode_as",
        "st_extras.search.hybrid:hybrid_weight",
        "st_extras.search.hybrid:cut_documents",
    )
    return recorder


def assert_arrived(recorder: Recorder, search: HybridSearch, bar: bool, **wanted: Any) -> None:
    """Check what was called since the last time."""
    encoded = recorder.one("EmbeddingStore.encode")
    assert (encoded["batch_size"], encoded["show_progress_bar"], encoded["route"]) == (5, bar, "document")
    (asked,) = [call for call in recorder.calls["encode_as"] if call["role"] == "query"]
    assert asked["options"]["batch_size"] == 5
    weighed = recorder.one("hybrid_weight")
    assert (weighed["share"], weighed["passages"] is search._index.passages) == (0.7, True)
    assert recorder.one("EmbeddingStore.__init__")["folder"] == wanted["folder"]
    assert recorder.one("cut_documents")["words"] == search.passages == 8
    recorder.calls.clear()


def test_every_setting_arrives_and_stays(still_encoder, tmp_path, recorder):
    folder = tmp_path / "index"
    settings: dict[str, Any] = {"share": 0.7, "passages": 8, "batch_size": 5, "folder": folder}
    search = HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES, show_progress_bar=True, **settings)
    assert_arrived(recorder, search, True, folder=folder / "parts")
    search.update(MORE, queries=QUERIES, show_progress_bar=True)
    assert_arrived(recorder, search, True, folder=folder / "parts")
    search.save(folder)
    recorder.calls.clear()
    loaded = HybridSearch.load(folder, still_encoder, batch_size=5)
    assert (loaded.bm25_weight, loaded.weight_source, loaded.passages) == (search.bm25_weight, "queries", 8)
    loaded.update(DOCUMENTS | {"other": "another document"}, queries=QUERIES)
    assert_arrived(recorder, loaded, False, folder=None)
    loaded.update(MORE, queries=QUERIES, folder=tmp_path / "elsewhere")
    assert_arrived(recorder, loaded, False, folder=tmp_path / "elsewhere" / "parts")
    loaded.update(DOCUMENTS, queries=QUERIES[:3])
    assert recorder.one("hybrid_weight")["share"] == 0.7 != BM25_SHARE
    assert sorted(recorder.one("hybrid_weight")["queries"]) == sorted(QUERIES[:3])


@pytest.mark.parametrize("source", ["given", "queries", "documents"])
def test_where_the_weight_is_from_is_kept(still_encoder, tmp_path, source):
    given: dict[str, Any] = {"given": {"bm25_weight": 0.3}, "queries": {"queries": QUERIES}, "documents": {}}[source]
    search = HybridSearch(still_encoder, DOCUMENTS, **given)
    search.update(MORE)
    search.save(tmp_path / "index")
    loaded = HybridSearch.load(tmp_path / "index", still_encoder)
    assert search.weight_source == loaded.weight_source == source
    assert search.bm25_weight == loaded.bm25_weight


def test_ids_are_part_of_what_recognizes_documents(still_encoder, tmp_path):
    search = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=0.3)
    search.save(tmp_path / "index")
    renamed = {f"x{key}": text for key, text in DOCUMENTS.items()}
    for found in (search, HybridSearch.load(tmp_path / "index", still_encoder)):
        assert (found.holds(DOCUMENTS), found.holds(renamed), found.holds(MORE)) == (True, False, False)
    with pytest.raises(ValueError, match=r"^documents must be those"):
        HybridSearch.load(tmp_path / "index", still_encoder, documents=renamed)
