"""Hybrid search against plain loops, its blocks, its weight, its files, and what it asks of the encoder."""

import itertools
import json
import logging
import random
import re
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router

from st_extras.encoders.embedding_store import PART
from st_extras.search import HybridSearch, bm25_weight, hybrid
from st_extras.text.term_weights import BM25
from tests.fixtures import SENTENCES
from tests.helpers import count_rows

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
DOCUMENTS = [" ".join(random.Random(i).choices(WORDS, k=2 + i % 9)) for i in range(58)]
DOCUMENTS += DOCUMENTS[3:5]  # equal documents
QUERIES = [" ".join(random.Random(100 + i).choices(WORDS, k=3)) for i in range(7)]


def scores_of(model: SentenceTransformer, queries: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The (Q, N) scores of the encoder and of BM25."""
    dense = model.similarity(model.encode_query(queries), model.encode_document(DOCUMENTS)).numpy()
    return dense, BM25(DOCUMENTS).scores(queries)


def loop(dense: list[float], bm25: list[float], weight: float, top_k: int, candidates: int) -> list[tuple[int, float]]:
    """The first ``top_k`` documents of a query by the sum, of those that a side puts among its first candidates."""
    numbers = range(len(dense))
    by_encoder = sorted(numbers, key=lambda i: (-dense[i], i))[:candidates]
    by_words = sorted((i for i in numbers if bm25[i] > 0), key=lambda i: (-bm25[i], i))[:candidates]
    found = {i: dense[i] + weight * bm25[i] for i in {*by_encoder, *by_words}}
    return sorted(found.items(), key=lambda hit: (-hit[1], hit[0]))[:top_k]


def assert_hits(found, expected):
    for hits, pairs in zip(found, expected, strict=True):
        assert [hit["score"] for hit in hits] == pytest.approx([score for _, score in pairs], abs=1e-5)
        for hit, (number, _) in zip(hits, pairs, strict=True):
            assert list(hit) == ["corpus_id", "score"]
            assert DOCUMENTS[hit["corpus_id"]] == DOCUMENTS[number]  # equal ones differ by rounding


@pytest.fixture
def search(still_encoder):
    return HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(("top_k", "candidates"), [(3, 4), (9, 4), (10, 100), (500, 100)])
def test_the_sum_ranks_the_first_documents_of_both_sides(still_encoder, monkeypatch, similarity, top_k, candidates):
    monkeypatch.setattr(hybrid, "FEWEST_CANDIDATES", candidates)
    still_encoder.similarity_fn_name = similarity
    dense, bm25 = scores_of(still_encoder, QUERIES)
    weight = float(dense.std(axis=1).mean() / bm25.std(axis=1).mean())  # so that both sides matter
    search = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=weight)
    assert search.bm25_weight == weight
    count = max(candidates, top_k)
    expected = [loop(*scores, weight, top_k, count) for scores in zip(dense.tolist(), bm25.tolist(), strict=True)]
    assert_hits(search.search(QUERIES, top_k), expected)
    everywhere = [loop(*scores, weight, top_k, 60) for scores in zip(dense.tolist(), bm25.tolist(), strict=True)]
    assert (expected != everywhere) == (candidates == 4), "few candidates do not find all"
    alone = [loop(scores, scores, 0, top_k, 60) for scores in dense.tolist()]
    assert [[number for number, _ in hits] for hits in expected] != [[number for number, _ in hits] for hits in alone]


def test_blocks_hold_few_scores_and_change_nothing(search, monkeypatch):
    expected = search.search(QUERIES, 5)
    asked, by_words = [], BM25.scores
    monkeypatch.setattr(
        BM25, "scores", lambda index, queries: (asked.append(len(queries)), by_words(index, queries))[1]
    )
    monkeypatch.setattr(hybrid, "BLOCK", 3 * len(DOCUMENTS) + 1)
    assert_hits(search.search(QUERIES, 5), [[tuple(hit.values()) for hit in hits] for hits in expected])
    assert asked == [3, 3, 1]
    again = HybridSearch(search.model, DOCUMENTS, queries=QUERIES)
    assert again.bm25_weight == pytest.approx(search.bm25_weight)
    assert asked[3:] == [3, 3, 1]


def test_of_equal_documents_the_first_comes_first(still_encoder, monkeypatch):
    monkeypatch.setattr(hybrid, "FEWEST_CANDIDATES", 3)
    documents = ["a cat", "the dog", "a cat", "a cat", "a cat", "he reads"]
    search = HybridSearch(still_encoder, documents, bm25_weight=1.0)
    search.embeddings[:] = search.embeddings[0]  # equal to the last digit
    assert [hit["corpus_id"] for hit in search.search("cat", 3)[0]] == [0, 2, 3]
    assert [hit["corpus_id"] for hit in search.search("zzz", 3)[0]] == [0, 1, 2]


def test_queries_without_text_or_known_words(search):
    assert search.search([]) == []
    assert [len(hits) for hits in search.search(["", "zzz", " \u200b", "cat"], 4)] == [0, 4, 0, 4]
    assert search.search("cat") == search.search(["cat"])
    dense = scores_of(search.model, ["zzz"])[0].tolist()
    assert_hits(search.search("zzz", 4), [loop(dense[0], [0.0] * len(DOCUMENTS), 0, 4, 100)])


def test_without_text_or_embedding_a_document_is_found_by_words_alone(still_encoder, monkeypatch):
    """An empty text is near to all that an encoder does not know, a zero is above every negative score."""
    texts = [*DOCUMENTS, "", " \u200b", "zzz"]
    search, plain = HybridSearch(still_encoder, texts, queries=QUERIES), HybridSearch(still_encoder, texts[:-3])
    assert not search.embeddings[60:62].any()
    search.embeddings[62] = 0
    found = [hit["corpus_id"] for hit in search.search("he", 100)[0]]
    assert sorted(found) == list(range(60))
    assert 62 in [hit["corpus_id"] for hit in search.search("zzz", 100)[0]]
    assert search._find_weight(QUERIES, 0.2) == pytest.approx(plain._find_weight(QUERIES, 0.2), rel=0.1)
    monkeypatch.setattr(still_encoder, "encode", lambda inputs, **_: torch.zeros(len(inputs), 16))
    assert [hit["corpus_id"] for hit in search.search("zzz", 5)[0]] == [62]


# --- the weight ---


def test_the_weight_is_found_from_queries(still_encoder, monkeypatch):
    found = HybridSearch(still_encoder, DOCUMENTS, queries=[*QUERIES, "", QUERIES[0]], share=0.5)
    assert found.bm25_weight == pytest.approx(bm25_weight(*scores_of(still_encoder, QUERIES), share=0.5))
    monkeypatch.setattr(hybrid, "_MOST_QUERIES", 3)
    used = random.Random(0).sample(QUERIES, 3)
    found = HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES)
    assert found.bm25_weight == pytest.approx(bm25_weight(*scores_of(still_encoder, used)))


def test_sentences_of_the_documents_stand_for_queries(still_encoder, monkeypatch):
    monkeypatch.setattr(hybrid, "sample_sentences", lambda documents: QUERIES if documents == DOCUMENTS else [])
    found = HybridSearch(still_encoder, DOCUMENTS)
    assert found.bm25_weight == pytest.approx(bm25_weight(*scores_of(still_encoder, QUERIES)))


def test_a_sentence_is_drawn_from_a_document(monkeypatch):
    several = "One cat sat here. No. Two dogs ran far away! Three birds sang?\nA fourth line stands here"
    allowed = ["One cat sat here.", "Two dogs ran far away!", "Three birds sang?", "A fourth line stands here"]
    drawn = hybrid.sample_sentences([several] * 50)
    assert set(drawn) == set(allowed)
    long = " ".join(f"w{i}" for i in range(30))
    assert hybrid.sample_sentences([long, "\u200b", ""]) == [" ".join(f"w{i}" for i in range(12))]
    assert hybrid.sample_sentences(["我们搜索所有的文档和所有的书"]) == ["我们搜索所有的文档和所有"]
    assert hybrid.sample_sentences(["one sentence alone. Yes."]) == ["one sentence alone. Yes."]
    monkeypatch.setattr(hybrid, "_SENTENCES", 7)
    assert len(set(hybrid.sample_sentences([f"text {i}" for i in range(20)]))) == 7


def test_bm25_that_tells_nothing_has_no_part(still_encoder, caplog):
    with caplog.at_level(logging.WARNING):
        search = HybridSearch(still_encoder, DOCUMENTS, queries=["zzz", "yyy"])
    assert search.bm25_weight == 0
    assert "BM25 has the weight 0" in caplog.text
    only = HybridSearch(still_encoder, ["a cat sat on the mat"])
    assert [hit["corpus_id"] for hit in only.search("a dog", 10)[0]] == [0]


# --- the encoder ---


def test_prompts_routes_and_settings_reach_the_encoder(still_encoder, monkeypatch):
    """Documents are encoded as documents, longest first; queries as queries."""
    calls = []
    for route in ("query", "document"):
        encode = getattr(still_encoder, f"encode_{route}")

        def record(texts, encode=encode, route=route, **options):
            calls.append((route, list(texts), options.get("batch_size")))
            return encode(texts, **options)

        monkeypatch.setattr(still_encoder, f"encode_{route}", record)
    search = HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES, batch_size=5)
    search.search("a cat")
    assert calls == [
        ("document", sorted(DOCUMENTS, key=len, reverse=True), 5),
        ("query", random.Random(0).sample(QUERIES, len(QUERIES)), 5),
        ("query", ["a cat"], 5),
    ]


@pytest.mark.parametrize("names", [("query", "document"), ("search_query", "search_document")])
def test_the_models_own_prompts_are_used(still_encoder, names):
    still_encoder.prompts = dict(zip(names, ("the old ", "a red "), strict=True))
    search = HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES)
    still_encoder.prompts = {}
    plain = still_encoder.encode([f"a red {text}" for text in DOCUMENTS], normalize_embeddings=True)
    np.testing.assert_allclose(search.embeddings, plain, atol=1e-5)
    dense = still_encoder.encode([f"the old {text}" for text in QUERIES], normalize_embeddings=True) @ plain.T
    assert search.bm25_weight == pytest.approx(bm25_weight(dense, BM25(DOCUMENTS).scores(QUERIES)), rel=1e-4)


def routed(encoder: SentenceTransformer, seed: int = 0) -> SentenceTransformer:
    """The encoder, with a turn after it for queries alone."""
    width = encoder.get_embedding_dimension()
    turn = Dense(width, width, bias=False, activation_function=torch.nn.Identity())
    with torch.no_grad():
        turn.linear.weight.copy_(torch.randn(width, width, generator=torch.Generator().manual_seed(seed)))
    router = Router({"query": [turn], "document": [Normalize()]}, default_route="document")
    return SentenceTransformer(modules=[*encoder, router], device="cpu")


def test_a_router_sends_queries_and_documents_their_ways(still_encoder):
    model = routed(still_encoder)
    dense, bm25 = scores_of(model, QUERIES)
    search = HybridSearch(model, DOCUMENTS, queries=QUERIES)
    assert search.bm25_weight == pytest.approx(bm25_weight(dense, bm25))
    pairs = zip(dense.tolist(), bm25.tolist(), strict=True)
    assert_hits(search.search(QUERIES), [loop(*scores, search.bm25_weight, 10, 100) for scores in pairs])


@pytest.mark.parametrize("group", [PART, 7, 60])
def test_documents_are_encoded_by_length_and_stay_in_their_places(still_encoder, monkeypatch, group):
    monkeypatch.setattr(hybrid, "_SORTED_TOGETHER", group)
    search = HybridSearch(still_encoder, DOCUMENTS, bm25_weight=0)
    expected = still_encoder.encode_document(DOCUMENTS, normalize_embeddings=True)
    np.testing.assert_allclose(search.embeddings, expected, atol=1e-6)
    assert search.embeddings.dtype == np.float32


def test_an_interrupted_call_resumes(still_encoder, monkeypatch, tmp_path):
    monkeypatch.setattr("st_extras.encoders.embedding_store.PART", 20)
    monkeypatch.setattr(hybrid, "_SORTED_TOGETHER", 40)
    expected = HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES)
    encode, passes = still_encoder.encode_document, itertools.count()

    def interrupted(texts, **options):
        if len(texts) == 20 and next(passes) == 2:
            raise KeyboardInterrupt
        return encode(texts, **options)

    monkeypatch.setattr(still_encoder, "encode_document", interrupted)
    with pytest.raises(KeyboardInterrupt):
        HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES, folder=tmp_path / "index")
    monkeypatch.setattr(still_encoder, "encode_document", encode)
    with count_rows(still_encoder) as rows:
        resumed = HybridSearch(still_encoder, DOCUMENTS, queries=QUERIES, folder=tmp_path / "index")
    assert sum(rows) == 2 * 2 + 20 + len(QUERIES), "two probes for each group, the rest, the queries"
    np.testing.assert_array_equal(resumed.embeddings, expected.embeddings)
    assert resumed.bm25_weight == expected.bm25_weight
    with count_rows(still_encoder) as rows:
        HybridSearch(still_encoder, [*DOCUMENTS, "the longest one " * 9], bm25_weight=0, folder=tmp_path / "index")
    assert sum(rows) == 2 * 2 + 21, "documents of full groups are not encoded again"
    resumed.save(tmp_path / "index")
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == sorted(
        {name.split("/")[0] for name in FILES}
    )


# --- an index of the user's ---


def test_an_index_of_the_users_suggests_documents(search, monkeypatch):
    monkeypatch.setattr(hybrid, "FEWEST_CANDIDATES", 4)
    received = []

    def nearest(rows, count):
        received.append((rows, count))
        scores = rows @ search.embeddings.T
        numbers = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(scores, numbers, axis=1), numbers

    expected = search.search(QUERIES, 3)
    assert_hits(search.search(QUERIES, 3, nearest=nearest), [[tuple(hit.values()) for hit in h] for h in expected])
    ((rows, count),) = received
    assert count == 4
    np.testing.assert_allclose(rows, search.model.encode_query(QUERIES, normalize_embeddings=True), atol=1e-6)
    nothing = search.search(QUERIES[:1], 50, nearest=lambda rows, count: (None, np.full((1, count), -1)))[0]
    sharing = np.flatnonzero(BM25(DOCUMENTS).scores(QUERIES[:1])[0])
    assert {hit["corpus_id"] for hit in nothing} == set(sharing.tolist()), "BM25's alone"


def test_faiss_can_be_the_index(search):
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexFlatIP(search.embeddings.shape[1])
    index.add(search.embeddings)
    found = search.search(QUERIES, nearest=index.search)
    assert_hits(found, [[tuple(hit.values()) for hit in hits] for hits in search.search(QUERIES)])


@pytest.mark.parametrize(
    "numbers",
    [
        np.full((1, 60), 60),
        np.full((1, 60), -2),
        np.full((1, 60), 0.5),
        np.zeros((1, 59), dtype=int),
        np.zeros(60, dtype=int),
        None,
    ],
    ids=["beyond", "below", "scores", "few", "flat", "nothing"],
)
def test_an_index_that_returns_something_else_is_refused(search, numbers):
    with pytest.raises(ValueError, match=r"^nearest must return"):
        search.search("a cat", nearest=lambda rows, count: (None, numbers))


# --- files ---


@pytest.fixture
def saved(search, tmp_path):
    search.save(tmp_path / "index")
    return tmp_path / "index"


def test_a_saved_search_finds_the_same(search, saved):
    again = HybridSearch.load(saved, search.model, documents=DOCUMENTS)
    assert again.search(QUERIES) == search.search(QUERIES)
    assert again.bm25_weight == search.bm25_weight
    again.save(saved)  # over the earlier one
    again.save(saved.with_name("other"))
    assert HybridSearch.load(saved.with_name("other"), search.model).search(QUERIES) == search.search(QUERIES)


def test_nothing_in_the_folder_can_run_code(saved):
    files = [path for path in saved.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".safetensors", ".npy"}
    for path in files:
        if path.suffix == ".npy":
            assert not np.load(path, allow_pickle=False).dtype.hasobject
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf8"))


FILES = [
    "hybrid_search.json",
    "embeddings.safetensors",
    *(f"bm25/{name}" for name in ("data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy")),
    "bm25/vocab.index.json",
    "bm25/params.index.json",
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "missing"])
def test_a_damaged_file_is_named(search, saved, name, damage):
    assert sorted(str(path.relative_to(saved)) for path in saved.rglob("*.*")) == sorted(FILES)
    content = bytearray((saved / name).read_bytes())
    content[len(content) * 2 // 3] ^= 1
    damaged = {"flipped": content, "cut": content[: len(content) // 2], "empty": b""}
    (saved / name).unlink()
    if damage in damaged:
        (saved / name).write_bytes(damaged[damage])
    with pytest.raises(ValueError, match=re.escape(name)):
        HybridSearch.load(saved, search.model)


def test_the_files_of_another_search_are_refused(search, saved, tmp_path):
    HybridSearch(search.model, DOCUMENTS[::-1], bm25_weight=0).save(tmp_path / "other")
    for name in FILES[1:]:
        kept, foreign = (saved / name).read_bytes(), (tmp_path / "other" / name).read_bytes()
        if kept != foreign:
            (saved / name).write_bytes(foreign)
            with pytest.raises(ValueError, match=re.escape(name)):
                HybridSearch.load(saved, search.model)
            (saved / name).write_bytes(kept)
    HybridSearch.load(saved, search.model)


def test_another_encoder_is_refused(search, saved, make_encoder):
    for other in (make_encoder(dropout=0.0, seed=1), make_encoder(dropout=0.0, hidden_size=8)):
        with pytest.raises(ValueError, match=r"^model must be the encoder that made"):
            HybridSearch.load(saved, other)
    search.model.prompts = {"document": "a red "}
    with pytest.raises(ValueError, match=r"^model must be the encoder that made"):
        HybridSearch.load(saved, search.model)
    search.model.prompts = {}
    search.model.similarity_fn_name = "dot"
    with pytest.raises(ValueError, match=r"^model\.similarity_fn_name must be"):
        HybridSearch.load(saved, search.model)
    search.model.similarity_fn_name = "cosine"
    assert HybridSearch.load(saved, routed(search.model)).search("a cat"), "queries alone differ"


def test_other_documents_are_refused(search, saved):
    with pytest.raises(ValueError, match=r"^documents must be those that"):
        HybridSearch.load(saved, search.model, documents=[*DOCUMENTS[:-1], "another"])


def test_a_folder_of_others_is_left_alone(search, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"^folder must be new, empty or a saved hybrid search"):
        search.save(tmp_path)
    with pytest.raises(ValueError, match=r"^folder must be new, empty or a saved hybrid search"):
        search.save(tmp_path / "mine.txt")
    with count_rows(search.model) as rows, pytest.raises(ValueError, match=r"^folder must be new, empty or a saved"):
        HybridSearch(search.model, DOCUMENTS, folder=tmp_path)
    assert not rows
    for folder in (tmp_path, tmp_path / "mine.txt", tmp_path / "none"):
        with pytest.raises(ValueError, match=r"^folder must be a saved hybrid search"):
            HybridSearch.load(folder, search.model)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_interrupted_save_is_not_taken_for_a_search(search, saved, monkeypatch):
    monkeypatch.setattr(BM25, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        search.save(saved)
    with pytest.raises(ValueError, match=r"^folder must be a saved hybrid search"):
        HybridSearch.load(saved, search.model)
    monkeypatch.undo()
    search.save(saved)
    assert HybridSearch.load(saved, search.model).search("a cat") == search.search("a cat")


# --- what is refused ---


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("documents", {"documents": []}),
        ("documents", {"documents": ["", " "]}),
        ("documents", {"documents": "a cat"}),
        ("documents", {"documents": ["a cat", 3]}),
        ("documents", {"documents": ["a cat", None]}),
        ("documents", {"documents": {"a": "cat"}}),
        ("documents", {"documents": 3}),
        ("model", {"model": "all-MiniLM-L6-v2"}),
        ("model", {"model": None}),
        ("queries", {"queries": []}),
        ("queries", {"queries": "a cat"}),
        ("queries", {"queries": ["", "\u200b"]}),
        ("queries", {"queries": [3]}),
        ("queries", {"queries": QUERIES, "bm25_weight": 0.1}),
        ("bm25_weight", {"bm25_weight": -0.1}),
        ("bm25_weight", {"bm25_weight": float("nan")}),
        ("bm25_weight", {"bm25_weight": "0.1"}),
        ("bm25_weight", {"bm25_weight": True}),
        ("share", {"share": 0}),
        ("share", {"share": float("inf")}),
        ("batch_size", {"batch_size": 0}),
        ("show_progress_bar", {"show_progress_bar": "no"}),
    ],
)
def test_a_mistake_is_named_by_its_argument(still_encoder, argument, options):
    settings = {"model": still_encoder, "documents": DOCUMENTS} | options
    with count_rows(still_encoder) as rows, pytest.raises(ValueError, match=rf"^{argument}\b"):
        HybridSearch(settings.pop("model"), settings.pop("documents"), **settings)
    assert not rows, "before anything is encoded"


def test_distances_are_refused(still_encoder):
    still_encoder.similarity_fn_name = "euclidean"
    with pytest.raises(ValueError, match=r"^model\.similarity_fn_name must be one of 'cosine', 'dot'"):
        HybridSearch(still_encoder, DOCUMENTS)


@pytest.mark.parametrize("top_k", [0, -1, 1.5, "3", None, True])
def test_a_depth_that_is_none_is_refused(search, top_k):
    with pytest.raises(ValueError, match=r"^top_k must"):
        search.search("a cat", top_k)


@pytest.mark.parametrize("queries", [3, None, [3], [["a"]], b"a cat"])
def test_queries_that_are_no_text_are_refused(search, queries):
    with pytest.raises(ValueError, match=r"^queries must"):
        search.search(queries)


def test_embeddings_that_are_not_finite_are_refused(still_encoder):
    with torch.no_grad():
        next(still_encoder.parameters())[still_encoder.tokenizer.convert_tokens_to_ids("cat")] = torch.nan
    first = next(place for place, text in enumerate(DOCUMENTS) if "cat" in text.split())
    with pytest.raises(ValueError, match=f"sentence {first} is not finite"):
        HybridSearch(still_encoder, DOCUMENTS)


def test_missing_bm25s_is_noticed_before_encoding(still_encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with count_rows(still_encoder) as rows, pytest.raises(ImportError, match="pip install"):
        HybridSearch(still_encoder, DOCUMENTS)
    assert not rows
