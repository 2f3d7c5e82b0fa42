"""Search in Qdrant's local mode: the hits of HybridSearch, the equation as a loop, what is refused, and a server."""

import json
import logging
import math
import random
import socket
import threading
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import grpc
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.search import HybridSearch, QdrantSearch, qdrant
from st_extras.text.term_weights import search_words
from tests.adaptation.texts import WORDS
from tests.helpers import count_rows
from tests.search.test_update import encoded_texts, shown_bars

pytest.importorskip("qdrant_client")
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException

LONG = [" ".join(random.Random(i).choices(WORDS, k=60)) for i in range(4)]
SHORT = [" ".join(random.Random(100 + i).choices(WORDS, k=2 + i % 9)) for i in range(108)]
DOCUMENTS = [
    {"id": i if i % 2 else f"d{i}", "title": "old river" * (i % 3 == 0), "text": text, "year": 2000 + i % 20}
    for i, text in enumerate([*LONG, *SHORT])
]
QUERIES = [" ".join(random.Random(500 + i).choices(WORDS, k=2 + i % 5)) for i in range(5)] + ["the the cat", " "]
QUERIES.insert(4, "")
RECENT = models.Filter(must=[models.FieldCondition(key="year", range=models.Range(gte=2010))])


@pytest.fixture
def client():
    return QdrantClient(":memory:")


def assert_same(found, expected, tolerance=2e-5):
    """The hits are the same but for the order of equal scores."""
    for hits, others in zip(found, expected, strict=True):
        assert [hit["score"] for hit in hits] == pytest.approx([hit["score"] for hit in others], abs=tolerance)
        by_id = {hit["corpus_id"]: hit for hit in others}
        for hit in hits:
            if hit["score"] > hits[-1]["score"] + tolerance:
                other = by_id[hit["corpus_id"]]
                assert (hit["dense"], hit["bm25"]) == pytest.approx((other["dense"], other["bm25"]), abs=tolerance)
                for field in ("title", "passage", "text", "matches", "metadata"):
                    assert hit[field] == other[field]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_it_finds_what_the_search_in_memory_finds(still_encoder, client, similarity):
    """More documents than a side suggests, with titles and passages, by a weight at which both sides count."""
    still_encoder.similarity_fn_name = similarity
    scale = 1 if similarity == "cosine" else 20
    search = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=0.0517 * scale, passages=8)
    assert len(search.embeddings) > len(DOCUMENTS) + 10
    moved = search.to_qdrant(client, "documents")
    for limits, filters in (
        ({}, {}),
        ({"top_k": 3}, {"top_k": 3}),
        ({"top_k": 105}, {"top_k": 105, "exact": True}),
        ({"among": lambda document: document.metadata["year"] >= 2010}, {"where": RECENT}),
    ):
        expected = search.search(QUERIES, **limits)
        assert any(hit["matches"] and hit["bm25"] > 0 for hits in expected for hit in hits)
        assert_same(moved.search(QUERIES, **filters), expected, 2e-5 * scale)
    assert moved.add(DOCUMENTS) == search.add(DOCUMENTS), "all are there"
    assert moved.search(QUERIES[0])[0] == moved.search(QUERIES[:1])[0] == moved.search(QUERIES[:1], 10)[0]
    opened = QdrantSearch(client, "documents", still_encoder)
    assert opened.search(QUERIES) == moved.search(QUERIES)
    assert (opened.bm25_weight, opened.language, opened.passages) == (search.bm25_weight, None, 8)
    assert repr(opened) == f"QdrantSearch('documents', bm25_weight={search.bm25_weight:g})"


def test_changes_are_those_of_the_search_in_memory(still_encoder, client, monkeypatch):
    """Seven documents at a time, encoded as documents, and queries as queries."""
    monkeypatch.setattr(qdrant, "_DOCUMENTS", 7)
    still_encoder.prompts = {"query": "the old ", "document": "a red "}
    search = HybridSearch(still_encoder, DOCUMENTS[20:], bm25_weight=0.05, passages=8)
    moved = search.to_qdrant(client, "documents")
    changed = [{**DOCUMENTS[30], "text": LONG[0]}, {**DOCUMENTS[31], "title": "another"}]
    changed += [{**row, "text": "another text"} for row in DOCUMENTS[60:70]]
    changes = [
        (QdrantSearch.add, HybridSearch.add, DOCUMENTS[:30]),
        (QdrantSearch.add, HybridSearch.add, DOCUMENTS[:30]),
        (QdrantSearch.add, HybridSearch.add, changed),
        (QdrantSearch.add, HybridSearch.add, [{**DOCUMENTS[40], "year": 1900, "kind": "old"}]),
        (QdrantSearch.add, HybridSearch.add, [{"id": DOCUMENTS[41]["id"], "text": " "}, {"id": "new", "text": ""}]),
        (QdrantSearch.add, HybridSearch.add, [{"id": "titled", "title": "An old river", "text": ""}]),
        (QdrantSearch.add, HybridSearch.add, []),
        (QdrantSearch.remove, HybridSearch.remove, []),
        (QdrantSearch.remove, HybridSearch.remove, [DOCUMENTS[i]["id"] for i in range(50, 60)] + ["none"]),
    ]
    for there, here, what in changes:
        assert there(moved, what) == here(search, what)
    anew = search.to_qdrant(client, "anew")
    assert_same(anew.search(QUERIES), search.search(QUERIES))
    dense = {hit["corpus_id"]: hit["dense"] for hit in anew.search(QUERIES[0], 200)[0]}
    found = {hit["corpus_id"]: hit["dense"] for hit in moved.search(QUERIES[0], 200)[0]}
    assert found == pytest.approx(dense, abs=2e-5)
    assert client.count("documents").count == client.count("anew").count == len(search.ids)
    stored, expected = (
        {point.id: point.payload for point in client.scroll(name, limit=1000)[0]} for name in ("documents", "anew")
    )
    assert stored == expected


def test_what_a_change_encodes(still_encoder, client):
    moved = HybridSearch(still_encoder, DOCUMENTS[:20], bm25_weight=0.05, passages=8).to_qdrant(client, "documents")
    with count_rows(still_encoder) as passes:
        moved.add([{**DOCUMENTS[4], "year": 1900}])
        moved.remove([DOCUMENTS[5]["id"]])
        assert passes == []
        moved.add({"new": "a new document"})
        assert passes == [1]
    assert moved.search("new document", 1)[0][0]["corpus_id"] == "new"


def meanwhile(monkeypatch, what):
    """Call a function once, after the next reading of what a collection has of some documents."""
    read = QdrantSearch._documents

    def patched(self, ids):
        found = read(self, ids)
        monkeypatch.setattr(QdrantSearch, "_documents", read)
        what()
        return found

    monkeypatch.setattr(QdrantSearch, "_documents", patched)


def test_new_metadata_leaves_a_text_that_another_wrote_meanwhile(still_encoder, client, monkeypatch):
    """A text that does not belong to its vectors would never be seen: the same text again encodes nothing."""
    moved = HybridSearch(still_encoder, DOCUMENTS[:9], bm25_weight=0.05, passages=8).to_qdrant(client, "documents")
    other = QdrantSearch(client, "documents", still_encoder)
    short = {**DOCUMENTS[1], "text": "the old river", "day": date(2025, 3, 1)}
    long = {**DOCUMENTS[2], "text": LONG[0]}
    relabelled = [{**row, "year": 1900, "kind": "old"} for row in DOCUMENTS[1:3]]
    meanwhile(monkeypatch, lambda: other.add([short, long]))
    assert moved.add(relabelled).encoded == 0
    hits = {hit["corpus_id"]: hit for hit in moved.search("the old river")[0]}
    assert hits[short["id"]]["text"] == short["text"]
    assert (hits[short["id"]]["metadata"]["year"], hits[short["id"]]["metadata"]["kind"]) == (1900, "old")
    assert moved.add(relabelled).encoded == 2
    expected = HybridSearch(still_encoder, [*relabelled, DOCUMENTS[0], *DOCUMENTS[3:9]], bm25_weight=0.05, passages=8)
    assert_same(moved.search(QUERIES), expected.search(QUERIES))


def test_metadata_of_a_document_that_another_removed_meanwhile(still_encoder, client, monkeypatch):
    moved = HybridSearch(still_encoder, DOCUMENTS[:9], bm25_weight=0.05).to_qdrant(client, "documents")
    rows = [{**DOCUMENTS[1], "year": 1900}]
    meanwhile(monkeypatch, lambda: moved.remove([DOCUMENTS[1]["id"]]))
    with pytest.raises(OSError, match="the collection 'documents', got KeyError: '"):
        moved.add(rows)
    assert moved.add(rows).encoded == 1


def test_metadata_becomes_what_was_given(still_encoder, client):
    """Fields that are gone go, whatever their names; kinds that "==" does not tell apart are written."""
    winter, summer = (timezone(timedelta(hours=hours)) for hours in (1, 2))
    moved = HybridSearch(still_encoder, DOCUMENTS[:9], bm25_weight=0.05).to_qdrant(client, "documents")
    steps = [
        {'due "date".x': "y", "a.b": 1, "_own": "z", "day": date(2025, 3, 1), "flag": 1},
        {"day": "2025-03-01", "flag": True},
        {"day": datetime(2025, 3, 1, 12, tzinfo=winter), "flag": False},
        {"day": datetime(2025, 3, 1, 13, tzinfo=summer), "flag": 0},
        {},
    ]
    for metadata in steps:
        assert moved.add({"x": {"text": "a text of its own", **metadata}}).kept == 9 + (metadata != steps[0])
        found = moved.search("a text of its own", 20)[0]
        got = next(hit["metadata"] for hit in found if hit["corpus_id"] == "x")
        assert got == metadata
        assert [*map(repr, got.values())] == [repr(metadata[field]) for field in got]


def test_a_field_that_is_null_is_none(still_encoder, client):
    """Another program may write it, and so does the local mode of clients before 1.20 where a field goes."""
    moved = HybridSearch(still_encoder, DOCUMENTS[:1], bm25_weight=0.05).to_qdrant(client, "documents")
    (point,) = client.scroll("documents", with_vectors=True)[0]
    point.payload["note"] = None
    client.upsert("documents", [models.PointStruct(id=point.id, vector=point.vector, payload=point.payload)])
    assert moved.search("old river")[0][0]["metadata"] == {"year": 2000}


def test_the_equation_after_changes_as_a_loop(still_encoder, client):
    """The mean length stays; all else is of the documents that are there."""
    first, later = DOCUMENTS[:40], DOCUMENTS[40:70]
    moved = HybridSearch(still_encoder, first, bm25_weight=0.05, passages=None).to_qdrant(client, "documents")
    moved.add(later)
    moved.remove([row["id"] for row in DOCUMENTS[10:20]])
    left = DOCUMENTS[:10] + DOCUMENTS[20:70]
    texts = {row["id"]: f"{row['title']} {row['text']}".strip() for row in DOCUMENTS[:70]}
    words = {key: search_words(text) for key, text in texts.items()}
    mean = sum(len(words[row["id"]]) for row in first) / len(first)
    embeddings = dict(zip(texts, still_encoder.encode_document([*texts.values()]), strict=True))
    for query in QUERIES[:3]:
        embedding = torch.as_tensor(still_encoder.encode_query(query))
        hits = moved.search(query, top_k=200)[0]
        assert len(hits) == len(left)
        for hit in hits:
            own, expected = words[hit["corpus_id"]], 0.0
            for word in search_words(query):
                holding = sum(word in words[row["id"]] for row in left)
                idf = math.log(1 + (len(left) - holding + 0.5) / (holding + 0.5))
                count = own.count(word)
                expected += idf * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(own) / mean))
            document = torch.as_tensor(embeddings[hit["corpus_id"]])
            cosine = float(torch.cosine_similarity(embedding, document, dim=0))
            assert hit["bm25"] == pytest.approx(expected, abs=1e-4)
            assert hit["dense"] == pytest.approx(cosine, abs=1e-4)
            assert hit["score"] == pytest.approx(cosine + 0.05 * expected, abs=1e-4)


def test_what_has_nothing_to_compare(encoder, client):
    """A table of words gives the embedding 0 to unknown ones: those documents are found by their words alone."""
    tokenizer = encoder.tokenizer.backend_tokenizer
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
    unknown = tokenizer.token_to_id("[UNK]")
    vectors[unknown] = 0
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu")
    rows = {"known": "the old river", "unknown": "Ω42", "none": "!!", "both": "old Ω42"}
    search = HybridSearch(model, rows, bm25_weight=0.1)
    moved = search.to_qdrant(client, "documents")
    queries = ["Ω42", "river", "!", "?? Ω99", "old Ω42"]
    assert [hit["corpus_id"] for hit in moved.search("Ω42")[0]] == ["unknown", "both"]
    for hits, others in zip(moved.search(queries), search.search(queries), strict=True):
        assert {hit["corpus_id"] for hit in hits} == {hit["corpus_id"] for hit in others}
        # "!!" has no words, and Qdrant does not count it in N
        assert sorted(hit["score"] for hit in hits) == pytest.approx(sorted(hit["score"] for hit in others), abs=0.05)


def test_a_weight_of_0_still_gives_bm25_its_score(still_encoder, client):
    search = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=0)
    assert_same(search.to_qdrant(client, "documents").search(QUERIES), search.search(QUERIES))


def test_a_language_stems_and_marks(still_encoder, client):
    search = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=0.05, language="english")
    moved = search.to_qdrant(client, "documents")
    assert moved.language == "english"
    queries = [f"the {query}s" for query in QUERIES[:5]]
    assert_same(moved.search(queries), search.search(queries))


def test_dates_come_back_and_are_compared_with_their_zones(still_encoder, client):
    zone = timezone(timedelta(hours=2))
    metadata = {
        "day": date(2025, 3, 1),
        "seen": datetime(2025, 3, 1, 0, 30, 5, 250, tzinfo=zone),
        "big": 2**63 - 1,
        "least": -(2**63),
    }
    metadata |= {"flag": True, "share": 0.1, "naive": datetime(2025, 3, 1), "a.b": "dotted"}
    documents = {"one": {"text": "old river", **metadata}, "two": "the cat"}
    moved = HybridSearch(still_encoder, documents, bm25_weight=0.05).to_qdrant(client, "documents")
    moved.add({"three": {"text": "old river bank", **metadata}})
    for hit in moved.search("river")[0]:
        if hit["corpus_id"] != "two":
            assert hit["metadata"] == metadata
            assert [type(value) for value in hit["metadata"].values()] == [*map(type, metadata.values())]

    def found(key, **bounds):
        condition = models.FieldCondition(key=key, range=models.DatetimeRange(**bounds))
        return {hit["corpus_id"] for hit in moved.search("river", where=models.Filter(must=[condition]))[0]}

    assert found("seen", lt=datetime(2025, 2, 28, 22, 31, tzinfo=timezone.utc)) == {"one", "three"}
    assert found("seen", lt=datetime(2025, 2, 28, 22, 30, tzinfo=timezone.utc)) == set()
    assert found("day", gte=date(2025, 3, 1)) == {"one", "three"}
    assert found("nothing", gte=date(2025, 3, 1)) == set()
    dotted = models.Filter(must=[models.FieldCondition(key='"a.b"', match=models.MatchValue(value="dotted"))])
    assert {hit["corpus_id"] for hit in moved.search("river", where=dotted)[0]} == {"one", "three"}
    ids = models.Filter(must=[models.FieldCondition(key="_document.id", match=models.MatchAny(any=["two", "one"]))])
    assert {hit["corpus_id"] for hit in moved.search("river", where=ids)[0]} == {"two", "one"}
    client.set_payload("documents", {"day": "someday", "more": [1, 2]}, points=[qdrant.point_id("one")])
    changed = {hit["corpus_id"]: hit["metadata"] for hit in moved.search("river")[0]}["one"]
    assert changed == {**metadata, "day": "someday", "more": [1, 2]}


def test_a_number_and_a_text_are_two_ids(still_encoder, client):
    moved = HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05).to_qdrant(client, "documents")
    moved.add({7: "old river", "7": "the cat"})
    assert client.count("documents").count == 7
    moved.remove([np.int64(7)])
    assert "7" in {hit["corpus_id"] for hit in moved.search("cat")[0]}
    assert 7 not in {hit["corpus_id"] for hit in moved.search("river", 20)[0]}


def test_a_stopped_call_has_added_some_and_the_next_adds_the_rest(still_encoder, client, monkeypatch):
    monkeypatch.setattr(qdrant, "_DOCUMENTS", 10)
    moved = HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05).to_qdrant(client, "documents")
    add_block, calls = QdrantSearch._add_block, []

    def stopped(*given):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return add_block(*given)

    monkeypatch.setattr(QdrantSearch, "_add_block", stopped)
    with pytest.raises(KeyboardInterrupt):
        moved.add(DOCUMENTS[5:45])
    assert client.count("documents").count == 25
    assert moved.add(DOCUMENTS[5:45]).encoded == 20
    assert client.count("documents").count == 45


def test_a_collection_whose_making_was_stopped_is_refused(still_encoder, client, monkeypatch):
    """It has some documents: whoever opened it would miss the others without knowing."""
    monkeypatch.setattr(qdrant, "_MOST_CHARACTERS", 2000)
    upload, calls = QdrantClient.upload_points, []

    def stopped(*given, **options):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return upload(*given, **options)

    search = HybridSearch(still_encoder, DOCUMENTS[:9], bm25_weight=0.05)
    with monkeypatch.context() as patch:
        patch.setattr(QdrantClient, "upload_points", stopped)
        with pytest.raises(KeyboardInterrupt):
            search.to_qdrant(client, "documents")
    assert 0 < client.count("documents").count < 9
    for call in (
        lambda: QdrantSearch(client, "documents", still_encoder),
        lambda: search.to_qdrant(client, "documents"),
    ):
        with pytest.raises(ValueError, match=r"got 'documents', .* not all documents.*client.delete_collection"):
            call()
    client.delete_collection("documents")
    assert search.to_qdrant(client, "documents").search("cat") == QdrantSearch(
        client, "documents", still_encoder
    ).search("cat")


def test_requests_stay_small(still_encoder, client, monkeypatch):
    sizes, upload = [], QdrantClient.upload_points

    def recorded(self, name, points, **options):
        sizes.append([len(point.model_dump_json()) for point in points])
        return upload(self, name, points, **options)

    monkeypatch.setattr(QdrantClient, "upload_points", recorded)
    monkeypatch.setattr(qdrant, "_MOST_CHARACTERS", 4000)
    search = HybridSearch(still_encoder, DOCUMENTS[:40], bm25_weight=0.05, passages=8)
    search.to_qdrant(client, "documents")
    assert sum(map(len, sizes)) == 40
    assert len(sizes) > 5
    assert any(len(batch) > 1 for batch in sizes)
    assert all(len(batch) == 1 or sum(batch) <= 4000 for batch in sizes)
    assert all(sum(batch) + following[0] > 4000 for batch, following in pairwise(sizes)), "nor smaller than they may be"


def test_requests_of_metadata_stay_small(still_encoder, client, monkeypatch):
    sizes, update, upload = [], QdrantClient.batch_update_points, QdrantClient.upload_points

    def updated(self, name, operations, **options):
        sizes.append(sum(len(operation.model_dump_json()) for operation in operations))
        return update(self, name, operations, **options)

    def uploaded(self, name, points, **options):
        sizes.append(sum(len(json.dumps(point.payload)) for point in points))
        return upload(self, name, points, **options)

    monkeypatch.setattr(QdrantClient, "batch_update_points", updated)
    monkeypatch.setattr(QdrantClient, "upload_points", uploaded)
    monkeypatch.setattr(qdrant, "_MOST_CHARACTERS", 8000)
    rows = [{**row, "notes": "n" * 2000} for row in DOCUMENTS[4:24]]
    moved = HybridSearch(still_encoder, rows, bm25_weight=0.05).to_qdrant(client, "documents")
    made = len(sizes)
    moved.add([{**row, "notes": "m" * 2000} for row in rows])
    assert made > 5
    assert len(sizes) - made > 5
    assert max(sizes) <= 8000
    assert {hit["metadata"]["notes"] for hit in moved.search("cat", 20)[0]} == {"m" * 2000}


def test_documents_that_a_collection_cannot_hold(still_encoder, client, monkeypatch):
    search = HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05, passages=8)
    moved = search.to_qdrant(client, "documents")
    for field, value, message in [
        ("_document", "mine", "must have no metadata named '_document', .* got one in 'x'"),
        ("big", 2**63, "must have numbers in their metadata .* got 9223372036854775808 as 'big' of 'x'"),
        ("small", -(2**63) - 1, "must have numbers in their metadata .* got -9223372036854775809 as 'small' of 'x'"),
    ]:
        row = {"id": "x", "text": "old river", field: value}
        with pytest.raises(ValueError, match=message):
            moved.add([row])
        with pytest.raises(ValueError, match=message):
            HybridSearch(still_encoder, [row], bm25_weight=0).to_qdrant(client, "other")
    monkeypatch.setattr(qdrant, "_MOST_NUMBERS", 5 * 16)
    with pytest.raises(ValueError, match=r"at most 4 passages, .* got 1[0-9] in 'long': give it in parts"):
        moved.add({"long": LONG[0]})
    with pytest.raises(ValueError, match="at most 4 passages"):
        search.to_qdrant(client, "other")
    assert client.count("documents").count == 5
    assert not client.collection_exists("other")


def test_a_collection_that_is_not_ours(still_encoder, make_encoder, client):
    search = HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05)
    moved = search.to_qdrant(client, "documents")
    ours = client.get_collection("documents").config.metadata
    size = models.VectorParams(size=16, distance=models.Distance.DOT)
    client.create_collection("plain", size)
    client.create_collection("copied", {"dense": size}, metadata=ours)
    words = {"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    small = models.VectorParams(size=8, distance=models.Distance.DOT)
    client.create_collection("small", {"dense": small}, sparse_vectors_config=words, metadata=ours)
    for field, value in {
        "similarity": "euclidean",
        "passage_words": 3,
        "language": "klingon",
        "bm25_weight": "much",
        "more": 1,
        "mean_length": -1,
        "encoder": {},
    }.items():
        broken = {"st_extras": {**ours["st_extras"], field: value}}
        client.create_collection(field, {"dense": size}, sparse_vectors_config=words, metadata=broken)
    for name in ("plain", "copied", "small", *ours["st_extras"].keys() - {"word_rules"}, "more"):
        with pytest.raises(ValueError, match=f"name must be a collection that .* made, got '{name}', which another"):
            QdrantSearch(client, name, still_encoder)
    with pytest.raises(ValueError, match="got 'none', which does not exist"):
        QdrantSearch(client, "none", still_encoder)
    with pytest.raises(ValueError, match="name must be a new collection, got 'documents', which exists"):
        search.to_qdrant(client, "documents")
    for use in (lambda *given: QdrantSearch(*given, still_encoder), search.to_qdrant):
        for wrong in (" ", 3):
            with pytest.raises(ValueError, match=f"name must be the name of a collection, got {wrong!r}"):
                use(client, wrong)
        with pytest.raises(ValueError, match="client must be a QdrantClient, got 'http"):
            use("http://localhost:6333", "documents")
    with pytest.raises(ValueError, match="model must be a SentenceTransformer"):
        QdrantSearch(client, "documents", "all-MiniLM-L6-v2")
    with pytest.raises(ValueError, match="batch_size must"):
        QdrantSearch(client, "documents", still_encoder, batch_size=0)
    with pytest.raises(ValueError, match="model must be the encoder that made the search"):
        QdrantSearch(client, "documents", make_encoder(dropout=0.0, seed=1))
    other = make_encoder(dropout=0.0)
    other.similarity_fn_name = "dot"
    with pytest.raises(ValueError, match="similarity_fn_name must be 'cosine'"):
        QdrantSearch(client, "documents", other)
    for options, message in [
        ({"top_k": 0}, "top_k must be"),
        ({"where": {"must": []}}, "where must be a Filter or None"),
        ({"exact": 1}, "exact must be True or False"),
        ({"queries": [3]}, "queries must be"),
        ({"queries": "caf\udce9"}, "queries, row 0: a text must be valid"),
    ]:
        with pytest.raises(ValueError, match=message):
            moved.search(**{"queries": "river", **options})
    with pytest.raises(ValueError, match="show_progress_bar must be True or False, got 1"):
        moved.add({"x": "y"}, show_progress_bar=1)
    with pytest.raises(ValueError, match="each document must have an id"):
        moved.add(["a text"])
    with pytest.raises(ValueError, match="stands twice"):
        moved.add([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}])
    with pytest.raises(ValueError, match="ids must be a list of ids"):
        moved.remove("d0")
    client.upsert("documents", [models.PointStruct(id=1, vector={"dense": [[1.0] * 16]}, payload={"text": "other"})])
    with pytest.raises(
        ValueError, match=r"points that QdrantSearch wrote, got one with the payload \{'text': 'other'\}"
    ):
        moved.search("river", 20)


def test_a_collection_that_is_made_anew_while_open(still_encoder, make_encoder, client):
    """The name stands for what it names now: an alias is switched to another collection."""
    first = HybridSearch(still_encoder, DOCUMENTS[:30], bm25_weight=0.05).to_qdrant(client, "first")

    def point(name):
        return models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=name, alias_name="live"))

    client.update_collection_aliases([point("first")])
    live = QdrantSearch(client, "live", still_encoder)
    assert live.search(QUERIES) == first.search(QUERIES)
    second = HybridSearch(still_encoder, DOCUMENTS[:40], bm25_weight=0.5).to_qdrant(client, "second")
    switch = [models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name="live")), point("second")]
    client.update_collection_aliases(switch)
    assert live.search(QUERIES) == second.search(QUERIES) != first.search(QUERIES)
    assert live.bm25_weight == 0.5
    client.delete_collection("first")
    with pytest.raises(ValueError, match="got 'first', which does not exist"):
        first.search("river")
    smaller = make_encoder(dropout=0.0, hidden_size=8)
    HybridSearch(smaller, DOCUMENTS[:5], bm25_weight=0.7, passages=8).to_qdrant(client, "first")
    for change in (lambda: first.search("river"), lambda: first.add({"x": "y"}), lambda: first.remove([1])):
        with pytest.raises(ValueError, match=r"got another .embeddings of 8 dimensions here and 16 there"):
            change()
    assert client.count("first").count == 5
    assert (first.bm25_weight, first.passages) == (0.05, live.passages)


def test_words_made_by_other_rules_are_warned_of(still_encoder, client, monkeypatch, caplog):
    HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05, language="english").to_qdrant(client, "documents")
    assert not caplog.records
    monkeypatch.setattr(qdrant, "word_rules", lambda language: f"others of {language}")
    with caplog.at_level(logging.WARNING):
        QdrantSearch(client, "documents", still_encoder)
    assert "its words from another version of nltk or st_extras" in caplog.text


def test_words_of_a_collection_that_is_made_anew_while_open(still_encoder, client, monkeypatch, caplog):
    search = HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05)
    moved = search.to_qdrant(client, "documents")
    client.delete_collection("documents")
    with monkeypatch.context() as patch:
        patch.setattr(qdrant, "word_rules", lambda language: "others")
        search.to_qdrant(client, "documents")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        moved.search("cat")
        moved.search("river")
    assert caplog.text.count("its words from another version of nltk or st_extras") == 1


def test_a_local_folder_is_opened_again(still_encoder, tmp_path):
    client = QdrantClient(path=str(tmp_path / "folder"))
    search = HybridSearch(still_encoder, DOCUMENTS[:30], bm25_weight=0.05, passages=8)
    search.to_qdrant(client, "documents").add(DOCUMENTS[30:40])
    expected = QdrantSearch(client, "documents", still_encoder).search(QUERIES)
    client.close()
    again = QdrantClient(path=str(tmp_path / "folder"))
    assert QdrantSearch(again, "documents", still_encoder).search(QUERIES) == expected
    again.close()


class _Server(BaseHTTPRequestHandler):
    """Answers by the path: a server without what Qdrant keeps, one that refuses, one that is too slow."""

    def do_GET(self):
        if "slow" in self.path:
            threading.Event().wait(1.5)
        content = json.dumps({"status": {"error": 'Index required but not found for "year".'}}).encode()
        if self.path.endswith("/exists"):
            content = json.dumps({"result": {"exists": "missing" not in self.path}, "status": "ok", "time": 0}).encode()
        self.send_response(200 if self.path.endswith("/exists") else 404 if "missing" in self.path else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


def test_a_server_that_refuses_or_does_not_answer(still_encoder):
    server = HTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {"port": server.server_port, "host": "127.0.0.1", "timeout": 1, "check_compatibility": False}
    client = QdrantClient(**options)
    try:
        with pytest.raises(ValueError, match="got 'missing', which does not exist"):
            QdrantSearch(client, "missing", still_encoder)
        with pytest.raises(
            OSError, match=r"'bad', got UnexpectedResponse: .*400 .*Index required but not found"
        ) as refused:
            QdrantSearch(client, "bad", still_encoder)
        with pytest.raises(OSError, match="'slow', got ResponseHandlingException: timed out"):
            QdrantSearch(client, "slow", still_encoder)
        assert "\n" not in str(refused.value)
    finally:
        server.shutdown()
        server.server_close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = QdrantClient(**{**options, "port": free.getsockname()[1]})
        with pytest.raises(OSError, match=r"'documents', got ResponseHandlingException: .*refused"):
            QdrantSearch(client, "documents", still_encoder)


@pytest.mark.parametrize(
    ("method", "use"),
    [
        *(("get_collection", use) for use in ("search", "add", "remove", "open")),
        *(("query_batch_points", "search"), ("retrieve", "add"), ("retrieve", "remove"), ("upload_points", "add")),
        *(("batch_update_points", "change"), ("delete", "empty"), ("delete", "remove"), ("count", "remove")),
        *(("count", "add"), ("collection_exists", "make"), ("create_collection", "make"), ("upload_points", "make")),
        *(("update_collection", "make"), ("get_collection", "make")),
    ],
)
def test_whatever_fails_on_the_way_is_one_line_with_the_collection(still_encoder, client, monkeypatch, method, use):
    search = HybridSearch(still_encoder, DOCUMENTS[:3], bm25_weight=0.05)
    moved = search.to_qdrant(client, "documents")
    uses = {
        "search": lambda: moved.search("river"),
        "add": lambda: moved.add({"new": "a cat"}),
        "change": lambda: moved.add([{**DOCUMENTS[1], "year": 1900}]),
        "empty": lambda: moved.add({DOCUMENTS[1]["id"]: " "}),
        "remove": lambda: moved.remove([DOCUMENTS[1]["id"]]),
        "open": lambda: QdrantSearch(client, "documents", still_encoder),
        "make": lambda: search.to_qdrant(client, "other"),
    }

    class Failed(grpc.RpcError):
        pass

    errors = ResponseHandlingException(OSError("gone\naway")), ResourceExhaustedResponse("slow", 3), Failed("gone")
    for error in errors:
        with monkeypatch.context() as patch:
            patch.setattr(QdrantClient, method, lambda *_, error=error, **__: (_ for _ in ()).throw(error))
            with pytest.raises(OSError, match=type(error).__name__) as failed:
                uses[use]()
        name = "other" if use == "make" else "documents"
        assert str(failed.value).startswith(f"Qdrant must do what it is asked for the collection '{name}', got ")
        assert "\n" not in str(failed.value)
        client.delete_collection("other")


def test_words_that_share_a_column_count_together(still_encoder, client, monkeypatch):
    """A sparse vector has each column once."""
    monkeypatch.setattr(qdrant, "_column", lambda word: len(word))
    moved = HybridSearch(still_encoder, DOCUMENTS[:10], bm25_weight=0.05).to_qdrant(client, "documents")
    point = client.retrieve("documents", [qdrant.point_id("d4")], with_vectors=True)[0]
    lengths = Counter(map(len, search_words(DOCUMENTS[4]["text"])))
    assert sorted(point.vector["bm25"].indices) == sorted(lengths)
    assert moved.search(QUERIES[0])[0]


def test_a_single_character_finds_a_chinese_document(still_encoder, client):
    search = HybridSearch(still_encoder, {"a": "我们搜索文档", "b": "the old river"}, bm25_weight=0.5)
    moved = search.to_qdrant(client, "documents")
    assert_same(moved.search(["文", "搜索"]), search.search(["文", "搜索"]))
    assert moved.search("文")[0][0]["bm25"] > 0


def test_exact_is_asked_of_the_server(still_encoder, client, monkeypatch):
    """The local mode has no index, so that only the request shows it."""
    moved = HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05).to_qdrant(client, "documents")
    query, asked = QdrantClient.query_batch_points, []

    def recorded(self, name, requests):
        asked.extend(
            first.params is not None and first.params.exact
            for request in requests
            for outer in request.prefetch
            for first in outer.prefetch or [outer]
        )
        return query(self, name, requests)

    monkeypatch.setattr(QdrantClient, "query_batch_points", recorded)
    for exact in (False, True):
        asked.clear()
        moved.search("old river", exact=exact)
        assert asked
        assert {*asked} == {exact}


def test_changes_are_waited_for_counts_are_exact_and_options_arrive(still_encoder, client, monkeypatch):
    """Of this, the local mode shows nothing, but the requests do."""
    asked = []

    def record(name, option):
        call = getattr(QdrantClient, name)

        def recorded(*given, **named):
            asked.append((name, named[option]))
            return call(*given, **named)

        monkeypatch.setattr(QdrantClient, name, recorded)

    options = {"upload_points": "wait", "batch_update_points": "wait", "delete": "wait", "count": "exact"}
    options["create_collection"] = "on_disk_payload"
    for name, option in options.items():
        record(name, option)
    moved = HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05).to_qdrant(
        client, "documents", on_disk_payload=True
    )
    moved.add([{**DOCUMENTS[0], "year": 1900}, {"id": "new", "text": "a new document"}])
    moved.remove(["new"])
    assert {*asked} == {(name, True) for name in options}


def test_batches_and_progress_arrive(still_encoder, client, monkeypatch):
    encoded, bars = encoded_texts(monkeypatch), shown_bars(monkeypatch, qdrant)
    monkeypatch.setattr(qdrant, "_DOCUMENTS", 7)
    search = HybridSearch(still_encoder, DOCUMENTS[:5], bm25_weight=0.05, batch_size=3)
    moved = search.to_qdrant(client, "documents")
    encoded.clear()
    for size, one in ((3, moved), (2, QdrantSearch(client, "documents", still_encoder, batch_size=2)),
                      (64, QdrantSearch(client, "documents", still_encoder))):  # fmt: skip
        one.search("river")
        one.add({f"new {size}": "a cat"})
        assert [given["batch_size"] for *_, given in encoded if "batch_size" in given][-2:] == [size] * 2
    moved.add(DOCUMENTS[:20], show_progress_bar=True)
    (bar,) = bars
    assert (bar.n, bar.total) == (20, 20)


def test_what_the_encoder_does_not_read_is_warned_of(still_encoder, client, caplog):
    """As by the search in memory: when it is made, and when documents come."""
    search = HybridSearch(still_encoder, {"a": "a cat"}, bm25_weight=0.05, passages=None)
    moved = search.to_qdrant(client, "documents")
    for change in (
        lambda documents: HybridSearch(still_encoder, documents, bm25_weight=0.05, passages=None),
        search.add,
        moved.add,
    ):
        caplog.clear()
        change({f"u{i}": f"Ω{i} cat" for i in range(8)} | {"long": LONG[0]})
        assert caplog.text.count("This encoder hardly reads the texts") == 1
        assert caplog.text.count("1 of 9 documents are longer than the 16 tokens") == 1
