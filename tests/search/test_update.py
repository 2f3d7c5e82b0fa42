"""A search that follows its documents: equal to a new one, whatever was there, and never half of one on disk."""

import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset

from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.passages import PASSAGE_WORDS, longer_than_read
from st_extras.files import write_checked_json
from st_extras.search import HybridSearch, index
from st_extras.text import term_weights
from st_extras.text.term_weights import BM25
from tests.adaptation.texts import WORDS
from tests.helpers import count_rows
from tests.search.kill_update import check_kills

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
    assert found.ids == expected.ids
    for hits, wanted in zip(found.search(QUERIES, 20), expected.search(QUERIES, 20), strict=True):
        assert [hit["corpus_id"] for hit in hits] == [hit["corpus_id"] for hit in wanted]
        assert [hit["passage"] for hit in hits] == [hit["passage"] for hit in wanted]
        assert [hit["score"] for hit in hits] == pytest.approx([hit["score"] for hit in wanted], abs=1e-6)


@pytest.fixture
def search(still_encoder):
    return HybridSearch(still_encoder, BEFORE, queries=QUERIES)


def test_an_update_equals_a_new_search_and_encodes_what_is_new(search):
    with count_rows(search.model) as rows:
        counts = search.update(after())
    assert (counts.encoded, counts.kept, counts.dropped) == (7, 35, 5)
    assert str(counts).startswith("7 documents encoded (new or changed), 35 kept, 5 earlier ones dropped")
    different = {*after().values()} - {*BEFORE.values()}
    assert sum(rows) == 2 * 2 + 4 + len(different), "probes, to know the encoder, some that stay, and what is new"
    assert_same(search, HybridSearch(search.model, after(), bm25_weight=search.bm25_weight))
    with count_rows(search.model) as rows:
        assert search.update(after()).kept == 42
    assert sum(rows) == 2 * 2 + 4


def test_long_documents_keep_the_passages_that_did_not_change(still_encoder):
    long = " ".join(random.Random(1).choices(WORDS, k=60))
    search = HybridSearch(still_encoder, {"long": long, "short": "a cat"}, bm25_weight=0.1, passages=8)
    before = len(search.embeddings)
    with count_rows(still_encoder) as rows:
        search.update({"long": f"{long} the end", "short": "a cat"})
    assert sum(rows) - 4 < before - 2
    expected = HybridSearch(still_encoder, {"long": f"{long} the end", "short": "a cat"}, bm25_weight=0.1, passages=8)
    np.testing.assert_allclose(search.embeddings, expected.embeddings, atol=1e-6)


def test_the_weight_stays_unless_it_is_asked_for(search):
    weight = search.bm25_weight
    search.update(after())
    assert (search.bm25_weight, search.weight_source) == (weight, "queries")
    search.update(after(), bm25_weight=0.7)
    assert (search.bm25_weight, search.weight_source) == (0.7, "given")
    search.update(BEFORE, queries=QUERIES)
    assert search.bm25_weight == pytest.approx(weight)
    for settings in ({"bm25_weight": 1, "queries": QUERIES}, {"bm25_weight": -1}):
        with pytest.raises(ValueError, match="must be"):
            search.update(BEFORE, **settings)


def test_a_weight_is_found_with_the_share_that_was_given(still_encoder, tmp_path):
    search = HybridSearch(still_encoder, BEFORE, queries=QUERIES, share=0.5)
    search.save(tmp_path)
    loaded = HybridSearch.load(tmp_path, still_encoder)
    for one in (search, loaded):
        weight = one.bm25_weight
        one.update(BEFORE, queries=QUERIES)
        assert one.bm25_weight == pytest.approx(weight)


def test_a_prompt_or_encoder_that_changed_finds_no_earlier_embedding(search, make_encoder):
    search.model.prompts["document"] = "a red "
    with pytest.raises(ValueError, match=r"^model must be the encoder .* prompt"):
        search.update(after())
    search.model = make_encoder(dropout=0.0, seed=1)
    with pytest.raises(ValueError, match=r"^model must be the encoder"):
        search.update(after())


def test_embeddings_that_are_there_are_not_computed(still_encoder):
    texts = ["", *BEFORE.values()]
    rows = still_encoder.encode_document(texts)
    with count_rows(still_encoder) as encoded:
        search = HybridSearch(still_encoder, texts, bm25_weight=0.1, embeddings=rows)
    assert sum(encoded) < 9, "probes of the encoder and its padding alone"
    assert_same(search, HybridSearch(still_encoder, texts, bm25_weight=0.1, passages=None))
    more = [*texts, "one more"]
    search.update(more, embeddings=still_encoder.encode_document(more))
    assert_same(search, HybridSearch(still_encoder, more, bm25_weight=0.1, passages=None))
    for wrong in (rows[1:], rows[:, 1:]):
        with pytest.raises(ValueError, match=r"^embeddings must have"):
            HybridSearch(still_encoder, texts, embeddings=wrong)


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
    plain.save(tmp_path)
    stemmed.save(tmp_path)  # of the same documents
    loaded = HybridSearch.load(tmp_path, still_encoder)
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
        "data set without ids": (Dataset.from_list([{"text": text} for text in texts]), [0, 2, 3]),
    }
    for name, (documents, ids) in given.items():
        search = HybridSearch(still_encoder, documents, bm25_weight=1)
        assert search.ids == ids, name
        assert search.search("car", 1)[0][0]["corpus_id"] == ids[1], name
        search.save(tmp_path / "index")
        loaded = HybridSearch.load(tmp_path / "index", still_encoder)
        assert loaded.search("car") == search.search("car")
    as_text = dict(zip("0123", texts, strict=True))  # as the command line reads them
    HybridSearch(still_encoder, as_text, bm25_weight=1).save(tmp_path / "index")
    assert HybridSearch.load(tmp_path / "index", still_encoder, documents=texts).ids == [0, 2, 3]
    wrong = ({"a": "a cat", 1.5: "b"}, Dataset.from_list([{"id": "x", "text": "a"}, {"id": "x", "text": "b"}]))
    for documents in wrong:
        with pytest.raises(ValueError, match=r"^documents.*: the id "):
            HybridSearch(still_encoder, documents)


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


def test_an_index_of_the_users_finds_documents_by_their_passages(still_encoder):
    texts = [" ".join(random.Random(i).choices(WORDS, k=50)) for i in range(6)] + ["a cat"]
    search = HybridSearch(still_encoder, texts, bm25_weight=0, passages=8)

    def nearest(rows, count):
        assert count == len(search.embeddings), "as many as all documents may have"
        return None, np.argsort(-(rows @ search.embeddings.T), axis=1, kind="stable")[:, :count]

    assert search.search(QUERIES, 3, nearest=nearest) == search.search(QUERIES, 3)


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
        with pytest.raises(ValueError, match=r"^queries, row \d: a sentence must be valid text"):
            search.search(query)
    search.model.prompts["query"] = "caf\udce9 "
    with pytest.raises(ValueError, match=r"^the prompt for queries: .*valid text"):
        search.search("a cat")


# --- files ---


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_of_others_stay_byte_for_byte(search, tmp_path):
    folder = tmp_path / "index"
    search.save(folder)
    first = content(folder)
    foreign = {".DS_Store": b"x", "notes.txt": b"mine", "embeddings.safetensors": b"mine", "bm25-mine/a.npy": b"1"}
    foreign |= {f"{name}/mine.txt": b"2" for name in {path.split("/")[0] for path in first if "/" in path}}
    for name, text in foreign.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text)
    search.update(after())
    search.save(folder)
    now = content(folder)
    assert {name: now.get(name) for name in foreign} == foreign
    gone = set(first) - set(now)
    assert len(gone) == len(first) - 1, "all of the earlier index, but for the file that names them"
    assert_same(HybridSearch.load(folder, search.model), search)


@pytest.mark.parametrize("same", [False, True], ids=["another search", "the same search"])
def test_a_file_that_was_changed_since_is_neither_removed_nor_overwritten(search, tmp_path, same):
    search.save(tmp_path)
    if not same:
        search.update(after())
    for name in [name for name in content(tmp_path) if name != index.ABOUT]:
        file = tmp_path / name
        whole = file.read_bytes()
        file.write_bytes(b"mine")
        before = content(tmp_path)
        with pytest.raises(ValueError, match=rf"{name}' must be as it was saved, got another file: move it"):
            search.save(tmp_path)
        assert content(tmp_path) == before
        file.write_bytes(whole)
    search.save(tmp_path)
    assert_same(HybridSearch.load(tmp_path, search.model), search)


def test_a_loaded_search_writes_to_its_folder_only_when_it_is_saved(search, tmp_path):
    search.save(tmp_path)
    before = content(tmp_path)
    HybridSearch.load(tmp_path, search.model).update(after())
    assert content(tmp_path) == before


def test_bm25_of_other_words_is_made_anew_or_refused(search, tmp_path, monkeypatch):
    """As after an update of this package, or of what stems words."""
    search.save(tmp_path)
    words = term_weights.search_words
    monkeypatch.setattr(term_weights, "search_words", lambda text, *given, **named: words(text[::-1], *given, **named))
    loaded = HybridSearch.load(tmp_path, search.model)
    assert not loaded.holds(BEFORE)
    with pytest.raises(ValueError, match=r"^the search must be updated with its documents, as words are compared"):
        loaded.search("a cat")
    counts = loaded.update(BEFORE)
    assert (counts.encoded, counts.kept) == (0, len(BEFORE))
    expected = HybridSearch(search.model, BEFORE, bm25_weight=search.bm25_weight)
    assert_same(loaded, expected)
    assert_same(HybridSearch.load(tmp_path, search.model, documents=BEFORE), expected)
    loaded.save(tmp_path)
    assert_same(HybridSearch.load(tmp_path, search.model), expected)


def test_a_name_that_is_taken_is_not_overwritten(search, tmp_path):
    search.save(tmp_path / "index")
    (name,) = (path.name for path in (tmp_path / "index").glob("embeddings-*"))
    other = tmp_path / "other"
    HybridSearch(search.model, after(), bm25_weight=0.1).save(other)
    (other / name).write_bytes(b"mine")
    with pytest.raises(ValueError, match="must not exist, as the index will write it, got another file: move it"):
        search.save(other)
    assert (other / name).read_bytes() == b"mine"
    HybridSearch.load(other, search.model, documents=after())


def steps(monkeypatch) -> Iterator[None]:
    """Fail at one write after another: each time that this is advanced, one later."""
    writes = {name: getattr(index, name) for name in ("write_checked_json", "write_tensors", "_write_bm25", "_remove")}
    for last in range(12):
        done = 0

        def failing(name, last=last):
            def write(*given):
                nonlocal done
                done += 1
                if done > last:
                    raise KeyboardInterrupt
                writes[name](*given)

            return write

        for name in writes:
            monkeypatch.setattr(index, name, failing(name))
        yield
    for name, write in writes.items():
        monkeypatch.setattr(index, name, write)


def test_a_save_that_stops_anywhere_leaves_the_old_index_or_the_new(search, tmp_path, monkeypatch):
    folder, old = tmp_path / "index", HybridSearch(search.model, BEFORE, bm25_weight=0.1)
    old.save(folder)
    new = HybridSearch(search.model, after(), bm25_weight=0.2)
    found, stops = [], 0
    for _ in steps(monkeypatch):
        try:
            new.save(folder)
        except KeyboardInterrupt:
            stops += 1
        loaded = HybridSearch.load(folder, search.model)
        expected = old if loaded.bm25_weight == 0.1 else new
        assert_same(loaded, expected)
        found.append(expected is new)
    assert stops >= 5
    assert found == sorted(found)
    assert {*found} == {False, True}
    new.save(folder)
    about = json.loads((folder / index.ABOUT).read_text())
    assert set(content(folder)) == {*about["files"], index.ABOUT}, "nothing is left behind"


def test_a_first_save_that_stops_is_no_index_and_can_be_done_again(search, tmp_path, monkeypatch):
    monkeypatch.setattr(BM25, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        search.save(tmp_path)
    with pytest.raises(ValueError, match=r"^folder must be a saved hybrid search"):
        HybridSearch.load(tmp_path, search.model)
    monkeypatch.undo()
    search.save(tmp_path)
    assert_same(HybridSearch.load(tmp_path, search.model), search)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills processes")
def test_a_killed_update_leaves_the_old_index_or_the_new(tmp_path):
    """The long form: python -m tests.search.kill_update --kills 40."""
    found = check_kills(3, tmp_path)
    assert sum(found.values()) == 3


def test_one_process_writes_at_a_time(search, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    search.save(tmp_path)
    with (tmp_path / index.ABOUT).open():
        descriptor = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="one writer"):
            search.save(tmp_path)
        os.close(descriptor)
    search.save(tmp_path)


def test_two_updates_at_once_undo_nothing_of_each_other(search, monkeypatch):
    finding, updated = threading.Event(), threading.Event()
    embed = search._embed_queries

    def slow(queries):
        finding.set()
        updated.wait(0.3)  # the other update waits for this one
        return embed(queries)

    search.update(BEFORE, bm25_weight=0.5)
    monkeypatch.setattr(search, "_embed_queries", slow)
    threads = [threading.Thread(target=search.update, args=(BEFORE,), kwargs={"queries": QUERIES[:3]})]
    threads.append(threading.Thread(target=lambda: (search.update(after()), updated.set())))
    threads[0].start()
    assert finding.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert (sorted(search.ids), search.weight_source) == (sorted(after()), "queries")


def test_counting_tokens_leaves_truncation_to_another_thread_that_encodes(still_encoder):
    still_encoder.encode(["a cat"])
    backend = still_encoder.tokenizer.backend_tokenizer
    before = backend.truncation
    assert before
    assert longer_than_read(still_encoder, ["word " * 500]).all()
    assert backend.truncation == before


def test_kept_embeddings_are_compared_with_the_encoder(search, monkeypatch):
    monkeypatch.setattr(EncoderFingerprint, "difference", lambda self, other: None)  # the change misses the probes
    with torch.no_grad():
        weights = next(search.model.parameters())
        weights.add_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(ValueError, match="must be the encoder that made the search"):
        search.update(after())
    assert list(search.ids) == list(BEFORE), "the earlier documents stay"


def test_the_encoder_that_made_the_search_stays_its_encoder(search):
    earlier = search._index.encoder
    search.update(after())
    assert search._index.encoder is earlier


def test_embeddings_that_are_given_leave_the_length_of_passages(search):
    search.update(BEFORE, embeddings=search.model.encode_document([*BEFORE.values()]))
    assert search.passages == PASSAGE_WORDS


def test_another_similarity_is_refused(search):
    search.model.similarity_fn_name = "dot"
    try:
        with pytest.raises(ValueError, match="similarity_fn_name must be 'cosine'"):
            search.search("a cat")
    finally:
        search.model.similarity_fn_name = "cosine"


@pytest.mark.parametrize("name", ["../mine.txt", "/tmp/mine.txt", "mine.txt", "bm25-0/../../mine.txt"])
def test_a_file_that_is_named_but_none_of_an_index_is_never_removed(search, tmp_path, name):
    search.save(tmp_path / "index")
    (tmp_path / "mine.txt").write_text("mine")
    about = index._read_about(tmp_path / "index")
    write_checked_json(tmp_path / "index" / index.ABOUT, index._FORMAT, about | {"unfinished": [name]})
    search.update(after())
    with pytest.raises(ValueError, match="must name files of an index"):
        search.save(tmp_path / "index")
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_reader_beside_a_writer_reads_the_new_index(search, tmp_path, monkeypatch):
    search.save(tmp_path)
    read = index._read_about
    earlier = read(tmp_path)
    search.update(after())
    search.save(tmp_path)
    answers = [earlier]  # what the reader read before the writer was done
    monkeypatch.setattr(index, "_read_about", lambda folder: answers.pop() if answers else read(folder))
    assert_same(HybridSearch.load(tmp_path, search.model), search)


def test_parts_of_the_folder_that_was_given_go_when_the_search_is_saved_elsewhere(still_encoder, tmp_path):
    search = HybridSearch(still_encoder, BEFORE, folder=tmp_path / "a")
    assert (tmp_path / "a" / index.PARTS).is_dir()
    search.save(tmp_path / "b")
    assert not (tmp_path / "a" / index.PARTS).exists()
