"""A search that follows its documents: equal to a new one, whatever was there, and its weight follows too."""

import io
import random
import threading

import numpy as np
import pytest
from datasets import Dataset
from tqdm import tqdm

from st_extras.encoders.passages import PASSAGE_WORDS, longer_than_read
from st_extras.search import HybridSearch, UpdateCounts, encoder, hybrid
from st_extras.text.documents import Document
from tests.adaptation.texts import WORDS
from tests.helpers import count_rows

BEFORE = {f"d{i}": " ".join(random.Random(i).choices(WORDS, k=2 + i % 9)) for i in range(40)}
QUERIES = [" ".join(random.Random(100 + i).choices(WORDS, k=3)) for i in range(7)]


def after() -> dict[str, str]:
    """Five new documents, two changed, three gone, one that is the same as another, in another order."""
    documents = {key: text for key, text in BEFORE.items() if key not in ("d0", "d7", "d39")}
    documents |= {"d3": "the red car is old", "d4": "an old red river"}
    documents |= {f"new{i}": " ".join(random.Random(500 + i).choices(WORDS, k=6)) for i in range(4)}
    documents["twin"] = documents["d5"]
    return dict(sorted(documents.items(), key=lambda item: item[0][::-1]))


def assert_same(found: HybridSearch, expected: HybridSearch) -> None:
    assert found.documents == expected.documents
    for hits, wanted in zip(found.search(QUERIES, 20), expected.search(QUERIES, 20), strict=True):
        assert [hit["corpus_id"] for hit in hits] == [hit["corpus_id"] for hit in wanted]
        assert [hit["text"] for hit in hits] == [hit["text"] for hit in wanted]
        assert [hit["score"] for hit in hits] == pytest.approx([hit["score"] for hit in wanted], abs=1e-5)


def encoded_texts(monkeypatch) -> list[tuple[str, list[str], dict]]:
    """What is encoded from now on: as what, which texts, with which options."""
    encoded, encode = [], encoder.encode_as

    def recorded(model, role, texts, **given):
        encoded.append((role, [*texts], given))
        return encode(model, role, texts, **given)

    monkeypatch.setattr(encoder, "encode_as", recorded)
    return encoded


def shown_bars(monkeypatch, module) -> list[tqdm]:
    """The progress bars that a module shows from now on."""
    bars: list[tqdm] = []

    def made(disable, **given):
        bar = tqdm(disable=disable, file=io.StringIO(), **given)
        if not disable:
            bars.append(bar)
        return bar

    monkeypatch.setattr(module, "tqdm", made)
    return bars


def assert_new(found: HybridSearch, documents: dict) -> None:
    """Check that it is what a new search of these documents with the same weight would be."""
    assert {document.id: document.text for document in found.documents} == documents
    options = {"bm25_weight": found.bm25_weight, "language": found.language}
    assert_same(found, HybridSearch(found.model, found.documents, **options))


@pytest.fixture
def search(still_encoder):
    return HybridSearch(still_encoder, BEFORE, queries=QUERIES)


def test_an_update_equals_a_new_search_and_encodes_what_is_new(search):
    with count_rows(search.model) as rows:
        counts = search.update(after())
    assert (counts.encoded, counts.kept, counts.dropped) == (7, 35, 5)
    assert str(counts) == "7 documents encoded (new or changed), 35 kept, 5 earlier ones dropped (gone or changed)."
    known = {*BEFORE.values()} - {*(after()[key] for key in after() if after()[key] == BEFORE.get(key))}
    different = {text for key, text in after().items() if BEFORE.get(key) != text} - known
    assert sum(rows) == len(different), "what is new and nothing else"
    assert_new(search, after())
    assert search.ids[-7:] == [key for key in after() if BEFORE.get(key) != after()[key]], "what changed comes last"
    with count_rows(search.model) as rows:
        assert search.update(after()).kept == 42
    assert not rows


def test_documents_are_added_replaced_and_removed(search):
    documents = dict(BEFORE)
    more = {"new": "a cat in the rain", 7: "the red river", "d3": "the red car is old", "d4": BEFORE["d4"], "d5": " "}
    with count_rows(search.model) as rows:
        counts = search.add(more)
    assert sum(rows) == 3
    assert (counts.encoded, counts.kept, counts.dropped) == (3, 38, 2), "d3 changed, d5 has no text any more"
    documents = {key: text for key, text in {**documents, **more}.items() if key != "d5"}
    assert_new(search, documents)
    with count_rows(search.model) as rows:
        counts = search.remove([7, "7", "d0", "d0", "none"])
    assert (sum(rows), counts.encoded, counts.kept, counts.dropped) == (0, 0, 39, 2)
    del documents[7], documents["d0"]
    assert_new(search, documents)
    assert search.add([{"id": "d1", "title": "Cats", "text": BEFORE["d1"]}]).encoded == 1, "a title is read, too"
    assert search.search("cats", 1)[0][0]["title"] == "Cats"
    assert search.add([Document("d1", "Cats", BEFORE["d1"])]).encoded == 0
    with count_rows(search.model) as rows:
        assert search.add({"x": "an equal text", "y": "an equal text"}).encoded == 2, "documents, of one text"
    assert sum(rows) == 1
    search.remove(["x", "y"])
    first, _, rest = BEFORE["d1"].partition(" ")
    assert search.add([Document("d1", f"Cats {first}", rest)]).encoded == 1, "the same words, but another title"
    assert search.search(f"cats {rest}", 1)[0][0]["title"] == f"Cats {first}"
    search.remove(search.ids)
    assert (search.ids, search.search("a cat"), search.scores(["a cat"])[0].shape) == ([], [[]], (1, 0))
    search.add({"d1": "a cat"})
    assert [hit["corpus_id"] for hit in search.search("a cat")[0]] == ["d1"]
    assert str(UpdateCounts(1, 2000, 1)) == (
        "1 document encoded (new or changed), 2,000 kept, 1 earlier one dropped (gone or changed)."
    )


def test_what_would_lose_documents_is_refused(search):
    with pytest.raises(ValueError, match=r"^documents, row 0: each document must have an id"):
        search.add(["one more"])  # a list is numbered from 0
    for ids in ("d1", {"d1": "a cat"}, 3, [1.5], [True]):
        with pytest.raises(ValueError, match=r"^ids(:| must)"):
            search.remove(ids)
    for documents in ([], ["", " "], {}):
        with pytest.raises(ValueError, match=r"^documents must hold at least one text"):
            search.update(documents)
    with pytest.raises(ValueError, match=r"^documents must have an order, got a set"):
        search.update({"a cat", "a dog"})
    assert search.ids == [*BEFORE]


def test_a_document_under_another_id_is_not_encoded_again(search):
    renamed = {f"x{key}": text for key, text in BEFORE.items()}
    with count_rows(search.model) as rows:
        search.update(renamed)
    assert sum(rows) == len(QUERIES), "for the weight, as all are others"
    assert_new(search, renamed)


def test_long_documents_keep_the_passages_that_did_not_change(still_encoder):
    long = " ".join(random.Random(1).choices(WORDS, k=60))
    search = HybridSearch(still_encoder, {"long": long, "short": "a cat"}, bm25_weight=0.1, passages=8)
    before = len(search.embeddings)
    with count_rows(still_encoder) as rows:
        search.update({"long": f"{long} the end", "short": "a cat"})
    assert sum(rows) < before - 2
    expected = HybridSearch(still_encoder, search.documents, bm25_weight=0.1, passages=8)
    np.testing.assert_allclose(search.embeddings, expected.embeddings, atol=1e-6)


# --- the weight ---


def test_the_weight_stays_unless_it_is_asked_for(search):
    weight = search.bm25_weight
    search.update(after())
    assert (search.bm25_weight, search.weight_source) == (weight, "queries")
    search.update(after(), bm25_weight=weight)
    assert (search.bm25_weight, search.weight_source) == (weight, "given")
    search.update(after(), bm25_weight=0.7)
    assert (search.bm25_weight, search.weight_source) == (0.7, "given")
    search.update(BEFORE, queries=QUERIES)
    assert search.bm25_weight == pytest.approx(weight)
    for settings in ({"bm25_weight": 1, "queries": QUERIES}, {"bm25_weight": -1}):
        with pytest.raises(ValueError, match="must be"):
            search.update(BEFORE, **settings)


def test_a_weight_from_other_queries_keeps_the_share(still_encoder):
    search = HybridSearch(still_encoder, BEFORE, queries=QUERIES, share=0.5)
    expected = HybridSearch(still_encoder, BEFORE, queries=QUERIES[:3], share=0.5).bm25_weight
    search.update(BEFORE, bm25_weight=0.7)
    search.update(BEFORE, queries=QUERIES[:3])
    assert search.bm25_weight == pytest.approx(expected)


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_weight_that_was_found_follows_when_documents_have_doubled(still_encoder, tmp_path, caplog, queries, share):
    """Documents and not their passages, of which each has several."""
    texts = [" ".join(random.Random(900 + i).choices(WORDS, k=30)) for i in range(20)]
    before, more = ({f"d{i}": texts[i] for i in numbers} for numbers in (range(10), range(10, 20)))
    options = {"queries": queries, "share": share, "passages": 8}
    search = HybridSearch(still_encoder, before, **options)
    assert len(search.embeddings) > 3 * len(before)
    weight = search.bm25_weight
    search.add({key: more[key] for key in [*more][:-1]})
    assert (search.bm25_weight, caplog.text) == (weight, "")
    search.save(tmp_path / "index")
    search.add({"d19": more["d19"]})
    expected = HybridSearch(still_encoder, before | more, **options)
    assert search.bm25_weight == pytest.approx(expected.bm25_weight) != weight
    assert search.weight_source == expected.weight_source
    of = "queries" if queries else "sentences"
    says = f"BM25 has the weight {search.bm25_weight:.4g} from now on, found from {of} of 20 documents; it was"
    assert says in caplog.text
    opened = HybridSearch.open(tmp_path / "index", still_encoder)
    opened.add({"d19": more["d19"]})
    assert opened.bm25_weight == pytest.approx(search.bm25_weight), "a file knows how many were added"
    weight = search.bm25_weight
    search.add({f"n{i}": text for i, text in enumerate(more.values())})
    assert search.bm25_weight == weight, "20 documents, then 30"


@pytest.mark.parametrize("first", [["a cat"], ["TODO"] * 60, ["..."]], ids=["one", "equal", "signs"])
def test_a_weight_of_0_is_found_again(still_encoder, first, caplog):
    """Of one document, or of equal ones, there is none."""
    documents = {f"first{i}": text for i, text in enumerate(first)}
    search = HybridSearch(still_encoder, documents)
    assert search.bm25_weight == 0
    search.add({"a": first[0]})
    assert search.bm25_weight == 0
    search.add(BEFORE)
    expected = HybridSearch(still_encoder, {**documents, "a": first[0], **BEFORE})
    assert 0 < search.bm25_weight == pytest.approx(expected.bm25_weight)
    assert "from now on" in caplog.text


def test_a_weight_that_was_given_stays(still_encoder):
    search = HybridSearch(still_encoder, ["a cat"], bm25_weight=0)
    search.add(BEFORE)
    assert (search.bm25_weight, search.weight_source) == (0, "given")


# --- the encoder ---


def test_embeddings_that_are_there_are_not_computed(still_encoder):
    texts = ["", *BEFORE.values()]
    rows = still_encoder.encode_document(texts)
    with count_rows(still_encoder) as encoded:
        search = HybridSearch(still_encoder, texts, bm25_weight=0.1, embeddings=rows)
    assert sum(encoded) == 2 + 4, "probes, and some that are compared"
    assert search.passages is None, "documents stay whole from now on, too"
    assert_same(search, HybridSearch(still_encoder, texts, bm25_weight=0.1, passages=None))
    more = [*texts, "one more"]
    search.update(more, embeddings=still_encoder.encode_document(more))
    assert_same(search, HybridSearch(still_encoder, more, bm25_weight=0.1, passages=None))
    search.add({42: "another", 3: "changed"}, embeddings=still_encoder.encode_document(["another", "changed"]).tolist())
    assert_new(search, {i: text for i, text in enumerate(more) if i} | {42: "another", 3: "changed"})
    for wrong in (rows[1:], rows[:, 1:]):
        with pytest.raises(ValueError, match=r"^embeddings must have"):
            HybridSearch(still_encoder, texts, embeddings=wrong)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_embeddings_of_another_encoder_or_order_are_refused(still_encoder, make_encoder, similarity):
    still_encoder.similarity_fn_name = similarity
    rows = still_encoder.encode_document([*BEFORE.values()], convert_to_tensor=True)
    other = make_encoder(dropout=0.0, seed=1).encode_document([*BEFORE.values()])
    search = HybridSearch(still_encoder, BEFORE, embeddings=rows.bfloat16(), bm25_weight=0.1)
    first, second = sorted(range(len(BEFORE)), key=lambda i: -len([*BEFORE.values()][i]))[:2]
    order = [{first: second, second: first}.get(i, i) for i in range(len(BEFORE))]
    for wrong in (other, rows.flip(0), rows.roll(1, 0), rows[order]):
        with pytest.raises(ValueError, match=r"^embeddings must be those of the model, got others .* in their order"):
            HybridSearch(still_encoder, BEFORE, embeddings=wrong)
        with pytest.raises(ValueError, match=r"^embeddings must be those of the model, got others"):
            search.update({f"x{key}": text for key, text in BEFORE.items()}, embeddings=wrong)
    assert search.ids == [*BEFORE]


def test_embeddings_that_are_given_leave_documents_whole(still_encoder):
    long = " ".join(random.Random(1).choices(WORDS, k=60))
    documents = {"long": long, **BEFORE}
    search = HybridSearch(still_encoder, documents, bm25_weight=0.1, passages=8)
    assert (search.passages, len(search.embeddings) > len(documents)) == (8, True)
    passages = len(search.embeddings)
    search.add({"whole": long}, embeddings=still_encoder.encode_document([long]))
    assert (search.passages, search.passage_spans[-1]) == (8, [(0, len(long))]), "this one alone is not cut"
    search.add({"cut": long + " here"})
    assert len(search.embeddings) > passages + 4
    search.remove(["whole", "cut"])
    counts = search.update(documents, embeddings=still_encoder.encode_document([*documents.values()]))
    assert (search.passages, len(search.embeddings)) == (None, len(documents))
    assert (counts.encoded, counts.kept) == (len(documents), 0), "all are whole from now on"
    ordered = {document.id: document.text for document in search.documents}
    expected = HybridSearch(still_encoder, ordered, bm25_weight=0.1, passages=None)
    assert_same(search, expected)
    search.add({"longer": f"{long} {long}"})
    assert len(search.embeddings) == len(documents) + 1


def test_the_language_of_bm25_is_saved_and_stays(still_encoder, tmp_path):
    documents = {"a": "the cat runs", "b": "an old mat", "c": "cats of the river"}
    plain, stemmed = (HybridSearch(still_encoder, documents, bm25_weight=1, language=of) for of in (None, "english"))
    assert (plain.language, stemmed.language) == (None, "english")

    def score_of_words(search, key):
        """What BM25 adds to the document's score."""
        (hit,) = (hit for hit in search.search("running")[0] if hit["corpus_id"] == key)
        dense = search.embeddings[search.ids.index(key)] @ search.model.encode_query(
            "running", normalize_embeddings=True
        )
        return pytest.approx(hit["score"] - float(dense), abs=1e-5)

    assert score_of_words(plain, "a") == 0
    assert score_of_words(stemmed, "a") != 0
    plain.save(tmp_path / "index")
    stemmed.save(tmp_path / "index", overwrite=True)  # of the same documents
    loaded = HybridSearch.open(tmp_path / "index", still_encoder)
    assert loaded.language == "english"
    assert loaded.search("running") == stemmed.search("running")
    loaded.update(documents | {"d": "he was running"})
    assert (loaded.language, score_of_words(loaded, "d") != 0) == ("english", True)
    with pytest.raises(ValueError, match=r"^language must be"):
        HybridSearch(still_encoder, documents, language="klingon")


# --- ids ---


def test_hits_carry_the_ids_of_the_user(still_encoder, tmp_path):
    texts = ["a cat", "", "the red car", "an old dog"]
    rows = [{"_id": f"r{i}", "text": text} for i, text in enumerate(texts)]
    given = {
        "list": (texts, [0, 2, 3]),
        "dict": (dict(zip("abcd", texts, strict=True)), ["a", "c", "d"]),
        "numbers": (dict(zip([7, 5, 6, 9], texts, strict=True)), [7, 6, 9]),
        "data set": (Dataset.from_list(rows), ["r0", "r2", "r3"]),
        "rows": ([{"id": i, "title": "", "text": text} for i, text in enumerate(texts)], [0, 2, 3]),
        "numbers of a data set": (Dataset.from_dict({"id": [7, 5, 6, 9], "text": texts}), [7, 6, 9]),
        "numbers of numpy": (dict(zip(np.array([7, 5, 6, 9]), texts, strict=True)), [7, 6, 9]),
        "text and numbers": (dict(zip([7, "5", "7", -(2**63) + 1], texts, strict=True)), [7, "7", -(2**63) + 1]),
        "data set without ids": (Dataset.from_list([{"text": text} for text in texts]), [0, 2, 3]),
    }
    for name, (documents, ids) in given.items():
        search = HybridSearch(still_encoder, documents, bm25_weight=1)
        assert search.ids == ids, name
        assert search.search("car", 1)[0][0]["corpus_id"] == ids[1], name
        search.save(tmp_path / "index", overwrite=True)
        loaded = HybridSearch.open(tmp_path / "index", still_encoder)
        assert loaded.ids == ids, name
        assert loaded.search("car") == search.search("car")


def test_the_passage_of_a_hit_is_its_best(still_encoder):
    texts = [" ".join(random.Random(i).choices(WORDS, k=50)) for i in range(6)]
    search = HybridSearch(still_encoder, texts, bm25_weight=0, passages=8)
    starts = [*range(0, 42, 6), 42]
    pieces = [[" ".join(text.split()[start : start + 8]) for start in starts] for text in texts]
    of_queries = still_encoder.encode_query(QUERIES)
    scores = [still_encoder.similarity(of_queries, still_encoder.encode_document(one)).tolist() for one in pieces]
    for asked, hits in enumerate(search.search(QUERIES, 6)):
        for hit in hits:
            number, (start, end) = hit["corpus_id"], hit["passage"]
            assert hit["text"] == texts[number][start:end]
            assert hit["score"] == pytest.approx(max(scores[number][asked]), abs=1e-5)
            assert texts[number][start:end] == pieces[number][int(np.argmax(scores[number][asked]))]
        assert len(hits) == 6


def test_whole_documents_that_are_too_long_are_warned_of_once(still_encoder, caplog):
    texts = [" ".join(random.Random(i).choices(WORDS, k=50)) for i in range(3)] + ["a cat"]
    HybridSearch(still_encoder, texts, bm25_weight=0, passages=None)
    assert caplog.text.count("3 of 4 documents are longer than the 16 tokens that the encoder reads") == 1
    caplog.clear()
    HybridSearch(still_encoder, texts, bm25_weight=0)
    assert "longer" not in caplog.text


# --- settings are used as they are checked ---


def test_floats_are_no_counts(still_encoder):
    for settings in ({"batch_size": 7.0}, {"passages": 80.0}):
        with pytest.raises(ValueError, match=rf"^{next(iter(settings))} must be a whole number"):
            HybridSearch(still_encoder, BEFORE, bm25_weight=0.1, **settings)
    search = HybridSearch(still_encoder, BEFORE, bm25_weight=0.1, batch_size=np.int64(7))
    with pytest.raises(ValueError, match=r"^top_k must be a whole number"):
        search.search(QUERIES, top_k=3.0)
    assert search.search(QUERIES, top_k=np.int64(3)) == search.search(QUERIES, top_k=3)


def test_text_that_is_not_valid_is_refused(search):
    for query in ("caf\udce9", ["a", "\ud800"]):
        with pytest.raises(ValueError, match=r"^queries, row \d: a text must be valid"):
            search.search(query)
    search.model.prompts["query"] = "caf\udce9 "
    with pytest.raises(ValueError, match=r"^the prompt for queries: .*valid"):
        search.search("a cat")


def test_counting_tokens_leaves_truncation_to_another_thread_that_encodes(still_encoder):
    still_encoder.encode(["a cat"])
    backend = still_encoder.tokenizer.backend_tokenizer
    before = backend.truncation
    assert before
    assert longer_than_read(still_encoder, ["word " * 500]).all()
    assert backend.truncation == before


def test_another_similarity_is_refused(search):
    search.model.similarity_fn_name = "dot"
    for find in (search.search, lambda query: search.scores([query]), lambda query: search.add({"new": query})):
        with pytest.raises(ValueError, match="similarity_fn_name must be 'cosine'"):
            find("a cat")


def test_two_changes_at_once_undo_nothing_of_each_other_and_encode_nothing_twice(search, monkeypatch):
    """The slow one is done again on what the quick one left, with what it encoded before; searches wait for neither."""
    encoding, changed, encoded = threading.Event(), threading.Event(), []
    embed = search._encoder.embed

    def slow(role, texts):
        encoded.extend(texts)
        if "slow" in texts:
            encoding.set()
            assert changed.wait(10)
        return embed(role, texts)

    monkeypatch.setattr(search._encoder, "embed", slow)
    thread = threading.Thread(target=search.add, args=({"a": "slow", "b": "a cat"},))
    thread.start()
    assert encoding.wait(10)
    search.add({"c": "quick"})
    search.remove(["d0"])
    assert search.search("quick", 1)[0][0]["corpus_id"] == "c"
    changed.set()
    thread.join()
    assert search.ids == [*[*BEFORE][1:], "c", "a", "b"]
    assert sorted(encoded) == ["a cat", "quick", "quick", "slow"], "one of them is the query"
    assert_new(search, {**{key: BEFORE[key] for key in [*BEFORE][1:]}, "a": "slow", "b": "a cat", "c": "quick"})


def test_every_setting_arrives(still_encoder, tmp_path, monkeypatch):
    """In the first search, in what follows, and in one that is opened."""
    encoded, bars = encoded_texts(monkeypatch), shown_bars(monkeypatch, hybrid)
    monkeypatch.setattr(hybrid, "_ENCODED", 3)
    settings = {"share": 0.7, "passages": 8, "batch_size": 5, "queries": QUERIES}
    search = HybridSearch(still_encoder, BEFORE, **settings, show_progress_bar=True)
    search.add({"a": "a cat"}, show_progress_bar=True)
    search.update({**BEFORE, "b": "two cats"}, show_progress_bar=True)
    search.add({"c": "three cats"})
    search.save(tmp_path / "index.parquet")
    HybridSearch.open(tmp_path / "index.parquet", still_encoder, batch_size=5).add({"d": "four cats"})
    assert len(bars) == 3
    assert all(0 < bar.n == bar.total for bar in bars), "each ends when all is done"
    assert {given["batch_size"] for *_, given in encoded if "batch_size" in given} == {5}
    assert [role for role, *_ in encoded].count("query") == 1
    assert (search.passages, search._state.rule.share) == (8, 0.7)
    encoded.clear()
    assert HybridSearch(still_encoder, BEFORE, bm25_weight=0).passages == PASSAGE_WORDS
    HybridSearch.open(tmp_path / "index.parquet", still_encoder).search("a cat")
    assert {given["batch_size"] for *_, given in encoded if "batch_size" in given} == {64}
