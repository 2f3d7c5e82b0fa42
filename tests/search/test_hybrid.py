"""Hybrid search against plain loops, its blocks, its weight, its files, and how it uses the encoder."""

import copy
import functools
import itertools
import pickle
import random
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router

from st_extras import functional
from st_extras.encoders.fingerprint import PROBES
from st_extras.ranking import EmbeddingBlocks, queries_from_documents
from st_extras.search import HybridSearch, bm25_weight, hybrid
from st_extras.text.term_weights import BM25
from tests.adaptation.texts import WORDS
from tests.helpers import count_rows, draw

DOCUMENTS = [" ".join(random.Random(i).choices(WORDS, k=2 + i % 9)) for i in range(58)]
DOCUMENTS += DOCUMENTS[3:5]  # equal documents
QUERIES = [" ".join(random.Random(100 + i).choices(WORDS, k=3)) for i in range(7)]
Scores = tuple[np.ndarray, np.ndarray]


def scores_of(model: SentenceTransformer, queries: list[str]) -> Scores:
    """The (Q, N) scores of the encoder and of BM25."""
    dense = model.similarity(model.encode_query(queries), model.encode_document(DOCUMENTS)).numpy()
    return dense, BM25(DOCUMENTS).scores(queries)


def loop(scores: Scores, weight: float, top_k: int, candidates: int = 100) -> list[list[tuple[int, float]]]:
    """The first documents of each query by the sum, of those that a side puts among its first candidates."""
    found = []
    for dense, bm25 in zip(scores[0].tolist(), scores[1].tolist(), strict=True):
        by_encoder = sorted(range(len(dense)), key=lambda i: (-dense[i], i))[:candidates]
        by_words = sorted((i for i in range(len(dense)) if bm25[i] > 0), key=lambda i: (-bm25[i], i))[:candidates]
        total = {i: dense[i] + weight * bm25[i] for i in {*by_encoder, *by_words}}
        found.append(sorted(total.items(), key=lambda hit: (-hit[1], hit[0]))[:top_k])
    return found


def assert_hits(found, expected):
    for hits, pairs in zip(found, expected, strict=True):
        assert [hit["score"] for hit in hits] == pytest.approx([score for _, score in pairs], abs=1e-5)
        for hit, (number, _) in zip(hits, pairs, strict=True):
            assert DOCUMENTS[hit["corpus_id"]] == DOCUMENTS[number]  # equal ones differ by rounding


def test_equal_documents_come_in_the_order_in_which_they_were_added(still_encoder):
    """A product with a query rounds the last rows otherwise."""
    search = HybridSearch(still_encoder, dict.fromkeys(range(63), DOCUMENTS[0]), bm25_weight=0.1)
    queries = [*QUERIES, *DOCUMENTS[:30]]
    for hits in search.search(queries, 63):
        assert [hit["corpus_id"] for hit in hits] == [*range(63)]
    for query in queries:
        dense, _ = search.scores([query])
        assert (dense == dense[0, 0]).all()


OTHERS = [f"{text} {number}" for number, text in enumerate(DOCUMENTS * 3)]
MANY = [*random.Random(0).sample([DOCUMENTS[0]] * 297 + OTHERS, 477), *DOCUMENTS[:1] * 3]  # the last ones are equal
EQUAL = [place for place, text in enumerate(MANY) if text == DOCUMENTS[0]]
UNSHARED = [text for text in OTHERS if not {*text.split()} & {*DOCUMENTS[0].split()}]  # BM25 finds none of them


@pytest.fixture
def wide_encoder(make_encoder):
    """With 48 dimensions, of which a product with one query rounds the last rows otherwise."""
    return make_encoder(dropout=0.0, hidden_size=48)


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("length", [478, 479, 480])
def test_of_many_equal_documents_the_first_ones_are_found(wide_encoder, size, length):
    """More than a side suggests, in batches and among as many queries as there may be."""
    search = HybridSearch(wide_encoder, MANY[:length], bm25_weight=1e-6, batch_size=size)
    equal = [place for place in EQUAL if place < length]
    found = 0
    for first in range(0, len(UNSHARED), size):
        queries = UNSHARED[first : first + size]
        dense, bm25 = search.scores(queries)
        assert (dense[:, equal] == dense[:, equal[:1]]).all()
        for hits, sums in zip(search.search(queries, 150), dense + 1e-6 * bm25, strict=True):
            of_equal = [hit for hit in hits if hit["corpus_id"] in equal]
            assert [hit["corpus_id"] for hit in of_equal] == equal[: len(of_equal)]
            assert len({hit["corpus_id"] for hit in hits}) == 150
            assert len({hit["score"] for hit in of_equal}) <= 1
            assert [hit["score"] for hit in hits] == pytest.approx(sums[[hit["corpus_id"] for hit in hits]], abs=1e-5)
            found += bool(of_equal)
    assert 0 < found < len(UNSHARED)


def test_equal_documents_stay_equal_through_changes(wide_encoder):
    """Whatever blocks their embeddings stand in, and whichever of them is removed."""
    texts = [*dict.fromkeys(MANY)]
    rows = dict(zip(texts, wide_encoder.encode_document(texts), strict=True))
    search = HybridSearch(wide_encoder, {"x": MANY[0]}, bm25_weight=1e-6, embeddings=[rows[MANY[0]]])
    for first in range(0, len(MANY), 40):
        part = dict(enumerate(MANY[first : first + 40], start=first))
        search.add(part, embeddings=[rows[text] for text in part.values()])
        search.search(QUERIES)
    search.remove(["x", EQUAL[0], *range(1, len(MANY), 3)])
    equal = [place for place in EQUAL[1:] if place % 3 != 1]
    for query in UNSHARED:
        hits = [hit["corpus_id"] for hit in search.search(query, 150)[0] if hit["corpus_id"] in equal]
        assert hits == equal[: len(hits)]
        dense, _ = search.scores([query])
        assert len(set(dense[0, [search.ids.index(place) for place in equal]].tolist())) == 1


def set_embeddings(search: HybridSearch, embeddings: np.ndarray) -> None:
    search._state = replace(search._state, embeddings=EmbeddingBlocks.of(embeddings))


@pytest.fixture
def search(still_encoder):
    return HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(("top_k", "candidates"), [(3, 4), (9, 4), (500, 100)])
def test_the_sum_ranks_the_first_documents_of_both_sides(still_encoder, monkeypatch, similarity, top_k, candidates):
    monkeypatch.setattr(hybrid, "FEWEST_CANDIDATES", candidates)
    still_encoder.similarity_fn_name = similarity
    scores = scores_of(still_encoder, QUERIES)
    weight = float(scores[0].std(axis=1).mean() / scores[1].std(axis=1).mean())  # so that both sides matter
    search = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=weight)
    assert search.bm25_weight == weight
    expected = loop(scores, weight, top_k, max(candidates, top_k))
    assert_hits(search.search(QUERIES, top_k), expected)
    everywhere = loop(scores, weight, top_k)
    assert (expected != everywhere) == (candidates == 4), "few candidates do not find all"


def test_blocks_hold_few_scores_and_change_nothing(search, monkeypatch):
    scores = scores_of(search.model, QUERIES)
    counts, by_words = [], BM25.scores
    monkeypatch.setattr(BM25, "scores", lambda index, asked: counts.append(len(asked)) or by_words(index, asked))
    monkeypatch.setattr(functional, "_SCORES", 3 * len(DOCUMENTS) + 1)
    assert_hits(search.search(QUERIES, 5), loop(scores, search.bm25_weight, 5))
    again = HybridSearch(search.model, DOCUMENTS, queries=QUERIES)
    assert again.bm25_weight == pytest.approx(search.bm25_weight)
    dense, bm25 = search.scores(QUERIES)
    np.testing.assert_allclose(dense, scores[0], atol=1e-5)
    np.testing.assert_allclose(bm25, scores[1], atol=1e-5)
    assert counts == [*([3, 3, 1] * 2), 7]


def test_of_equal_documents_the_first_comes_first(still_encoder, monkeypatch):
    monkeypatch.setattr(hybrid, "FEWEST_CANDIDATES", 3)
    documents = ["a cat", "the dog", "a cat", "a cat", "a cat", "he reads"]
    search = HybridSearch(still_encoder, documents, bm25_weight=1.0)
    set_embeddings(search, np.broadcast_to(search.embeddings[0], search.embeddings.shape))  # equal to the last digit
    assert [hit["corpus_id"] for hit in search.search("cat", 3)[0]] == [0, 2, 3]
    assert [hit["corpus_id"] for hit in search.search("zzz", 3)[0]] == [0, 1, 2]


def test_queries_without_text_or_known_words(search, monkeypatch):
    assert [len(hits) for hits in search.search(["", "zzz", " \u200b", "cat"], 4)] == [0, 4, 0, 4]
    assert search.search("cat") == search.search(["cat"]) == search.search("cat", 10)
    assert_hits(search.search("zzz", 4), loop(scores_of(search.model, ["zzz"]), 0, 4))
    alone = [search.search(query)[0] for query in QUERIES]
    for blocks in (1, 3):
        monkeypatch.setattr(functional, "_SCORES", 1000 // blocks)
        assert search.search(["", *QUERIES[:2], " ", *QUERIES[2:], ""]) == [[], *alone[:2], [], *alone[2:], []]


def test_without_text_or_embedding_a_document_is_found_by_words_alone(still_encoder, monkeypatch):
    """An empty text is near to all that an encoder does not know, a zero is above every negative score."""
    texts = [*DOCUMENTS, "", " \u200b", "zzz"]
    search, plain = (HybridSearch(still_encoder, of, queries=QUERIES) for of in (texts, texts[:-3]))
    assert search.ids == [*range(60), 62], "blank ones are left out, and shift nothing"
    set_embeddings(search, np.vstack([search.embeddings[:60], np.zeros((1, 16), dtype=np.float32)]))
    with monkeypatch.context() as patch:
        patch.setattr(still_encoder, "encode", lambda inputs, **_: torch.zeros(len(inputs), 16))
        search.add({63: "yyy"})
    assert sorted(hit["corpus_id"] for hit in search.search("he", 100)[0]) == list(range(60))
    assert {62, 63} < {hit["corpus_id"] for hit in search.search("zzz yyy", 100)[0]}
    assert search.bm25_weight == pytest.approx(plain.bm25_weight, rel=0.1)
    monkeypatch.setattr(still_encoder, "encode", lambda inputs, **_: torch.zeros(len(inputs), 16))
    assert [hit["corpus_id"] for hit in search.search("zzz yyy", 5)[0]] == [62, 63]


# --- the weight ---


def test_the_weight_is_found_from_queries(still_encoder, monkeypatch):
    found = HybridSearch(still_encoder, DOCUMENTS, queries=[*QUERIES, "", QUERIES[0]], share=0.5)
    assert found.bm25_weight == pytest.approx(bm25_weight(*scores_of(still_encoder, QUERIES), share=0.5))
    asked: list[list[str]] = []
    monkeypatch.setattr(hybrid, "queries_from_documents", lambda documents: asked.append(documents) or QUERIES)
    found = HybridSearch(still_encoder, DOCUMENTS)
    assert found.bm25_weight == pytest.approx(bm25_weight(*scores_of(still_encoder, QUERIES)))
    HybridSearch(still_encoder, [{"title": "old river", "text": text} for text in DOCUMENTS[:3]])
    assert asked == [DOCUMENTS, [f"old river {text}" for text in DOCUMENTS[:3]]]


def test_the_weight_counts_the_best_passage_of_each_document(still_encoder):
    documents = [" ".join(random.Random(i).choices(WORDS, k=40)) for i in range(12)]
    search = HybridSearch(still_encoder, documents, queries=QUERIES, passages=8)
    assert len(search.embeddings) > 4 * len(documents)
    assert search.bm25_weight == pytest.approx(bm25_weight(*search.scores(QUERIES)), rel=1e-4)


def test_bm25_that_shows_nothing_has_no_part(still_encoder, caplog):
    search = HybridSearch(still_encoder, DOCUMENTS, queries=["zzz", "yyy"])
    assert (search.bm25_weight, "BM25 has the weight 0" in caplog.text) == (0, True)


# --- the encoder ---


def routed(encoder: SentenceTransformer) -> SentenceTransformer:
    """The encoder, with a turn after it for queries alone."""
    turn = Dense(16, 16, bias=False, activation_function=torch.nn.Identity())
    turn.linear.weight.data = draw(16, 16).float()
    router = Router({"query": [turn], "document": [Normalize()]}, default_route="document")
    return SentenceTransformer(modules=[*encoder, router], device="cpu")


def test_prompts_routes_and_settings_reach_the_encoder(still_encoder, monkeypatch):
    """Documents are encoded as documents, longest first; queries as queries."""
    model = routed(still_encoder)
    model.prompts = {"query": "the old ", "document": "a red "}
    scores = scores_of(model, QUERIES)
    model.prompts = {"search_query": "the old ", "search_document": "a red "}  # as others call them
    calls = []

    def record(route, encode, texts, **options):
        calls.append((route, list(texts), options["batch_size"]))
        return encode(texts, **options)

    for route in ("query", "document"):
        name = f"encode_{route}"
        monkeypatch.setattr(model, name, functools.partial(record, route, getattr(model, name)))
    search = HybridSearch(model, DOCUMENTS, queries=QUERIES, batch_size=5, passages=None)
    assert search.bm25_weight == pytest.approx(bm25_weight(*scores), rel=1e-4)
    assert_hits(search.search(QUERIES), loop(scores, search.bm25_weight, 10))
    search.unrelated_similarity(2)
    assert calls == [
        ("document", list(PROBES), 2),
        ("document", sorted(dict.fromkeys(DOCUMENTS), key=len, reverse=True), 5),
        ("query", random.Random(0).sample(sorted(QUERIES), len(QUERIES)), 5),
        ("query", QUERIES, 5),
        ("query", queries_from_documents(DOCUMENTS), 5),
    ]
    np.testing.assert_allclose(search.scores(QUERIES)[0], scores[0], atol=1e-5)


def test_documents_are_encoded_by_length_and_stay_in_their_places(still_encoder, monkeypatch):
    monkeypatch.setattr(hybrid, "_ENCODED", 7)
    search = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=0)
    expected = still_encoder.encode_document(DOCUMENTS, normalize_embeddings=True)
    np.testing.assert_allclose(search.embeddings, expected, atol=1e-6)
    assert search.embeddings.dtype == np.float32


# --- what is refused ---


@pytest.mark.parametrize(
    "options",
    [
        {"documents": ["", " "]},
        {"documents": ["a cat", 3]},
        {"model": "all-MiniLM-L6-v2"},
        {"queries": []},
        {"queries": QUERIES, "bm25_weight": 0.1},
        {"bm25_weight": -0.1},
        {"share": 0},
        {"batch_size": 0},
        {"passages": 3},
        {"language": "klingon"},
        {"embeddings": [[1.0, 2.0]]},
        {"embeddings": [1.0] * 60},
    ],
    ids=str,
)
def test_a_mistake_is_named_by_its_argument(still_encoder, options):
    settings = {"model": still_encoder, "documents": DOCUMENTS} | options
    with count_rows(still_encoder) as rows, pytest.raises(ValueError, match=rf"^{next(iter(options))}\b"):
        HybridSearch(settings.pop("model"), settings.pop("documents"), **settings)
    assert not rows, "before anything is encoded"


def test_a_search_that_is_refused(search):
    for options, argument in (({"queries": "a cat", "top_k": 0}, "top_k"), ({"queries": [3]}, "queries")):
        with pytest.raises(ValueError, match=f"^{argument} must"):
            search.search(**options)
    for queries in ("a cat", [], [3]):
        with pytest.raises(ValueError, match=r"^queries must"):
            search.scores(queries)
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match=r"^one_in must be a whole number"):
            search.unrelated_similarity(wrong)
    with pytest.raises(ValueError, match=r"^one_in must be at most a tenth of [\d,]+ pairs, got 1,000\."):
        search.unrelated_similarity()


def test_settings_that_are_neither_true_nor_false_are_refused(search, tmp_path):
    for change in (search.add, search.update, lambda *given, **named: HybridSearch(search.model, *given, **named)):
        with pytest.raises(ValueError, match=r"^show_progress_bar must be True or False, got 1"):
            change({"a": "a cat"}, show_progress_bar=1)
    with pytest.raises(ValueError, match=r"^overwrite must be True or False, got 'no'"):
        search.save(tmp_path / "index.parquet", overwrite="no")
    assert (len(search.ids), [*tmp_path.iterdir()]) == (60, [])
    with pytest.raises(ValueError, match=r"^queries must be .* got a dict with the keys 'q1', 'q2': give its values"):
        search.search({"q1": "a cat", "q2": "a dog"})  # BEIR's: not its ids


def test_encoders_that_are_refused(still_encoder):
    still_encoder.similarity_fn_name = "euclidean"
    with pytest.raises(ValueError, match=r"^model\.similarity_fn_name must"):
        HybridSearch(still_encoder, DOCUMENTS)
    still_encoder.similarity_fn_name = "cosine"
    next(still_encoder.parameters()).data.fill_(float("nan"))
    with pytest.raises(ValueError, match="is not finite"):
        HybridSearch(still_encoder, DOCUMENTS)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ({"a": "a cat", "b": None}, r"documents\['b'\]: expected a sentence, got None: leave its row out"),
        ({"a": None}, r"documents\['a'\]: expected a sentence, got None"),
        ({"id": ["a"], "text": ["a cat"]}, r"documents\['id'\]: expected a sentence, got \['a'\]"),
        (DatasetDict({"train": Dataset.from_dict({"text": ["a"]})}), "a DatasetDict with the keys 'train': give one"),
        (Dataset.from_dict({"id": ["a", None], "text": ["a cat", "b"]}), "row 1: the id of a document is missing"),
        (Dataset.from_dict({"id": [None, "a"], "text": ["a cat", "b"]}), "row 1: each document must have an id, in"),
        (pd.Series(["a cat", "b"], index=[7, 9]), r"documents .*, got a Series: give .*series\.to_dict\(\) by id"),
    ],
    ids=str,
)  # fmt: skip
def test_documents_whose_ids_would_be_lost_are_refused(still_encoder, documents, message):
    with pytest.raises(ValueError, match=message):
        HybridSearch(still_encoder, documents)


def test_what_it_shows_is_no_way_to_change_it(search):
    before = search.search(QUERIES)
    for shown in (search.documents, search.ids, search.passage_spans):
        shown.clear()
    search.embeddings[:] = 0
    assert search.search(QUERIES) == before
    assert len(search.documents) == len(search.ids) == len(search.passage_spans) == 60
    assert search.embeddings.any(axis=1).all()


def test_it_shows_what_it_holds(search):
    passages, weight = len(search.embeddings), f"{search.bm25_weight:.4g}"
    assert repr(search) == f"HybridSearch(documents={len(DOCUMENTS)}, passages={passages}, bm25_weight={weight})"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda search: pickle.loads(pickle.dumps(search))])
def test_a_copy_goes_its_own_way(search, copied):
    other = copied(search)
    assert other.search(QUERIES) == search.search(QUERIES)
    other.update({"a": "a cat"})
    assert (other.ids, len(search.ids)) == (["a"], len(DOCUMENTS))


# --- filters and hits ---


def test_among_finds_the_first_of_these(search, monkeypatch):
    monkeypatch.setattr(hybrid, "FEWEST_CANDIDATES", 4)
    scores = scores_of(search.model, QUERIES)
    some = [3, 7, 11, 40, 41, 59]
    for dense, bm25, hits in zip(*scores, search.search(QUERIES, 4, among=[*some, 1000, "x"]), strict=True):
        total = dense + search.bm25_weight * bm25
        assert [hit["corpus_id"] for hit in hits] == sorted(some, key=lambda i: -total[i])[:4]
    assert search.search("cat", among=np.array([3, 7])) == search.search("cat", among={7, 3})
    assert search.search(["cat", "dog"], among=[]) == [[], []]
    assert search.search("cat", among=["x"]) == [[]]
    for wrong in ("3", 3, {3: 1}, [3.0], [True], [None]):
        with pytest.raises(ValueError, match=r"^among(:| must)"):
            search.search("cat", among=wrong)


def test_a_hit_has_title_and_passage_of_the_text(still_encoder):
    long = " ".join(random.Random(1).choices(WORDS, k=50))
    rows = [
        {"id": "a", "title": " The cat ", "text": "  an old dog \n"},
        {"id": 7, "title": "", "text": " the red car"},
        {"id": "long", "title": "old river", "text": long},
        {"id": "no text", "title": "a title alone", "text": ""},
    ]
    search = HybridSearch(still_encoder, rows, bm25_weight=0, passages=8)
    texts = {row["id"]: row.get("text", "") for row in rows}
    hits = search.search([long, "car", *long.split("river")[:1]], 4)
    for hit in itertools.chain(*hits):
        first, last = hit["passage"]
        assert hit["text"] == texts[hit["corpus_id"]][first:last]
    found = {hit["corpus_id"]: hit for hit in hits[0]}
    assert {key: hit["title"] for key, hit in found.items()} == {
        "a": "The cat", 7: "", "long": "old river", "no text": "a title alone",
    }  # fmt: skip
    assert (found["a"]["text"], found[7]["text"], found["no text"]["text"]) == ("an old dog", " the red car", "")
    assert len(found["long"]["text"].split()) <= 8
    assert search.ids == ["a", 7, "long", "no text"]


def test_among_is_a_function_of_the_document(still_encoder):
    rows = [{"id": i, "text": text, "product": ("card", "loan")[i % 2], "n": i} for i, text in enumerate(DOCUMENTS)]
    search = HybridSearch(still_encoder, [*rows, {"id": "bare", "text": "a cat"}], queries=QUERIES)
    found = search.search(QUERIES, 5, among=lambda document: document.metadata.get("product") == "loan")
    assert found == search.search(QUERIES, 5, among=[*range(1, 60, 2)])
    assert {hit["metadata"]["product"] for hits in found for hit in hits} == {"loan"}
    found[0][0]["metadata"]["product"] = "changed"
    assert search.search(QUERIES[0], 1, among=[found[0][0]["corpus_id"]])[0][0]["metadata"]["product"] == "loan"
    assert search.search("cat", among=lambda document: np.bool_(document.id == "bare"))[0][0]["metadata"] == {}
    assert search.search("cat", among=lambda _: False) == [[]]
    with pytest.raises(
        ValueError, match=r"^among must be a function .* got KeyError\('product'\) of Document\(id='bare'"
    ):
        search.search("cat", among=lambda document: document.metadata["product"] == "card")
    with pytest.raises(ValueError, match=r"^among must be a function .* got TypeError\(.* of Document\(id=0, "):
        search.search("cat", among=lambda document: document.metadata["n"] < "2025")


def test_a_score_is_the_sum_of_both_sides(search):
    for hits in search.search(QUERIES, 60):
        for hit in hits:
            assert hit["score"] == pytest.approx(hit["dense"] + search.bm25_weight * hit["bm25"], abs=1e-6)
    dense, bm25 = search.scores(QUERIES)
    for number, hits in enumerate(search.search(QUERIES, 60)):
        for hit in hits:
            expected = dense[number, hit["corpus_id"]], bm25[number, hit["corpus_id"]]
            assert (hit["dense"], hit["bm25"]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("language", [None, "english"])
@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("un re\u0301sume\u0301 court", "résumé", "un *re\u0301sume\u0301* court"),
        ("ＡＢＣ, abcd", "abc", "*ＡＢＣ*, abcd"),
        ("İstanbul, ISTANBUL", "istanbul", "*İstanbul*, *ISTANBUL*"),
        ("ﬁne co\u00adoperate", "cooperate fine", "*ﬁne* *co\u00adoperate*"),
        ("Die STRASSE", "straße", "Die *STRASSE*"),
        ("東京タワーは高い", "タワー", "東京*タワー*は高い"),
        ("東京タワーは高い", "東京 タワー", "*東京タワー*は高い"),
        ("黒い猫と犬", "猫", "黒い*猫*と犬"),
        ("검색엔진을 쓰다", "검색", "*검색*엔진을 쓰다"),
        ("ค้นหาเอกสาร", "เอกสาร", "ค้นหา*เอกสาร*"),
        ("an X-ray, rock'n'roll", "ray rock", "an X-*ray*, *rock*'n'roll"),
        ("the dog and the cat", "the cat", "the dog and the *cat*"),
    ],
)
def test_the_words_that_bm25_finds_are_the_matches(still_encoder, text, query, marked, language):
    search = HybridSearch(
        still_encoder, {"a": text, "b": "other text"}, bm25_weight=10, language=language, passages=None
    )
    (hit, _) = search.search(query)[0]
    assert (hit["corpus_id"], hit["text"], hit["bm25"] > 0) == ("a", text, True)
    shown = hit["text"]
    for first, last in reversed(hit["matches"]):
        shown = f"{shown[:first]}*{shown[first:last]}*{shown[last:]}"
    assert shown == marked


def test_stop_words_match_where_a_query_has_no_others(still_encoder):
    search = HybridSearch(still_encoder, ["The the"], bm25_weight=1)
    assert search.search("the")[0][0]["matches"] == [(0, 3), (4, 7)]
    stemmed = HybridSearch(still_encoder, ["The cats are running"], bm25_weight=1, language="english")
    assert stemmed.search("the cat runs")[0][0]["matches"] == [(4, 8), (13, 20)]


def test_scores_are_those_of_all_documents(search):
    dense, bm25 = search.scores(QUERIES)
    expected = scores_of(search.model, QUERIES)
    np.testing.assert_allclose(dense, expected[0], atol=1e-5)
    np.testing.assert_allclose(bm25, expected[1], atol=1e-5)


@pytest.mark.parametrize("given", [None, ["the old river", "a cat walks"]])
def test_the_similarity_that_few_unrelated_pairs_exceed(still_encoder, given):
    """As a loop over all pairs but those of a sentence and a document that contains it, whatever the users ask."""
    texts = [*DOCUMENTS, "Once the old river was wide. A cat walks by the river. " * 5]
    search = HybridSearch(still_encoder, texts, queries=given, bm25_weight=None, passages=8)
    queries = queries_from_documents(texts)
    first = [0, *itertools.accumulate(map(len, search.passage_spans))]
    scores = still_encoder.similarity(still_encoder.encode_query(queries), search.embeddings).tolist()
    pairs = [
        max(scores[number][first[place] : first[place + 1]])
        for number, query in enumerate(queries)
        for place, text in enumerate(texts)
        if query not in text
    ]
    assert len(pairs) < len(queries) * len(texts)
    assert search.unrelated_similarity(10) == pytest.approx(np.quantile(pairs, 0.9), abs=1e-5)
    assert search.unrelated_similarity(2) == pytest.approx(np.median(pairs), abs=1e-5)
    for too_many in (len(pairs) // 10 + 1, len(pairs)):
        with pytest.raises(ValueError, match=f"one_in must be at most a tenth of {len(pairs):,} pairs"):
            search.unrelated_similarity(too_many)
    assert 10 * (len(pairs) // 10 + 1) <= len(queries) * len(texts), "enough with the pairs that are left out"


def test_documents_too_alike_for_a_bound_are_warned_of(still_encoder, caplog, monkeypatch):
    """The same sentences stand in several documents each, but for a number."""
    ends = ["It is blocked at once.", "It costs nothing.", "It ends in a month."]
    texts = [f"The {kind} number {i} is here. {end}" for i, end in enumerate(ends * 10) for kind in ("card", "loan")]
    unlike = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=1)
    unlike.unrelated_similarity(100)
    with monkeypatch.context() as patch:
        patch.setattr(hybrid, "_SAMPLED", 20)  # so that most sentences are compared with documents of others alone
        unlike.unrelated_similarity(20)
    assert caplog.messages == []
    bound = HybridSearch(still_encoder, texts, bm25_weight=1).unrelated_similarity(100)
    (line,) = caplog.messages
    assert re.match(rf"^\d+% of the sentences compared reach {bound:.3f} with their own document: .* so alike", line)
    assert int(line.partition("%")[0]) < 50


def test_the_similarity_of_unrelated_pairs_takes_a_sample_of_documents(still_encoder, monkeypatch):
    search = HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES)
    expected = search.unrelated_similarity(10)
    monkeypatch.setattr(hybrid, "_SAMPLED", 40)
    found = search.unrelated_similarity(10)
    assert found == search.unrelated_similarity(10) == pytest.approx(expected, abs=0.1)
    assert found != expected
    sentences = [f"The {kind} is here today." for kind in ("cat", "dog", "river", "man", "car", "book", "tree", "rain")]
    search = HybridSearch(still_encoder, [" ".join(sentences)] * 40 + sentences * 8, bm25_weight=1)
    assert search.unrelated_similarity(10) < 1, "the first 40 contain every sentence"


def test_a_search_without_documents_has_no_unrelated_similarity_but_a_collection(search):
    search.remove(search.ids)
    with pytest.raises(ValueError, match=r"^the search must hold documents, got none"):
        search.unrelated_similarity()
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    moved = search.to_qdrant(client, "documents")
    assert moved.search("a cat") == [[]]
    moved.add({"new": "a cat"})
    assert [hit["corpus_id"] for hit in moved.search("a cat")[0]] == ["new"]
