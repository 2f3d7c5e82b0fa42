"""The file of a search: what it holds, who reads it, when it may be replaced, and which files are refused."""

import copy
import errno
import multiprocessing
import os
import pickle
import random
import re
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from st_extras import ranking
from st_extras.search import HybridSearch, hybrid, parquet_file
from st_extras.text import term_weights
from tests.helpers import count_rows
from tests.search.kill_save import check_kills
from tests.search.test_hybrid import routed
from tests.search.test_update import BEFORE, QUERIES, after, assert_new, assert_same


@pytest.fixture
def search(still_encoder):
    return HybridSearch(still_encoder, BEFORE, queries=QUERIES, share=0.3, passages=8)


@pytest.fixture
def path(search, tmp_path):
    search.save(tmp_path / "index.parquet")
    return tmp_path / "index.parquet"


def read_documents(path):
    """The documents of a file as another program reads them."""
    return {row["id"]: row["text"] for row in parquet.read_table(path, columns=["id", "text"]).to_pylist()}


def test_a_file_opens_without_the_documents_and_equals_the_search(search, path):
    assert [file.name for file in path.parent.iterdir()] == ["index.parquet"]
    with count_rows(search.model) as rows:
        opened = HybridSearch.open(path, search.model)
    assert sum(rows) == 2, "probes"
    assert_same(opened, search)
    assert opened.search(QUERIES) == search.search(QUERIES)
    np.testing.assert_array_equal(opened.embeddings, search.embeddings)
    assert opened.passage_spans == search.passage_spans
    one, other = opened._state, search._state
    assert (one.rule, one.weight, one.version) == (other.rule, other.weight, other.version)
    assert (opened.weight_source, opened.passages, opened.language) == ("queries", 8, None)
    assert (one.words.vocabulary, (one.words.counts != other.words.counts).nnz) == (other.words.vocabulary, 0)
    one.words.counts.sort_indices()  # in place: it holds no view of the file
    assert HybridSearch.open(path, routed(search.model)).search("a cat"), "queries alone differ"


@pytest.mark.parametrize(
    ("similarity", "options"),
    [
        ("cosine", {"passages": None, "bm25_weight": 0.0}),
        ("dot", {"passages": 9, "share": 0.7, "language": "german"}),
        ("dot", {"passages": 8, "queries": QUERIES[:3], "language": "english"}),
    ],
)
def test_every_setting_comes_back(still_encoder, tmp_path, similarity, options):
    still_encoder.similarity_fn_name = similarity
    search = HybridSearch(still_encoder, BEFORE, **options)
    search.add({"new": "a cat"})
    search.save(tmp_path / "index.parquet")
    opened = HybridSearch.open(tmp_path / "index.parquet", still_encoder)
    for name in ("rule", "weight", "similarity", "passage_words", "version"):
        assert getattr(opened._state, name) == getattr(search._state, name), name
    assert (opened.language, opened.passages) == (options.get("language"), options["passages"])
    assert opened.weight_source == search.weight_source


@pytest.mark.parametrize("rows", [1, 7, 40, 1000])
def test_a_file_is_written_and_read_in_parts(search, tmp_path, monkeypatch, rows):
    for written in (rows, 11):
        monkeypatch.setattr(parquet_file, "_ROWS", written)
        search.save(tmp_path / f"{written}")
    for written in (rows, 11):
        opened = HybridSearch.open(tmp_path / f"{written}", search.model)
        assert opened.search(QUERIES, 100) == search.search(QUERIES, 100)
        np.testing.assert_array_equal(opened.embeddings, search.embeddings)


def test_other_programs_read_it(still_encoder, tmp_path):
    rows = [
        {"id": 7, "title": "Lost cards", "text": "A lost card is blocked.", "product": "card", "words": 5},
        {"id": "e42", "text": "There is no paper.", "product": "printer", "title": "E42"},
    ]
    HybridSearch(still_encoder, rows, bm25_weight=0.1).save(tmp_path / "a.parquet")
    table = pd.read_parquet(tmp_path / "a.parquet")
    assert [*table.columns] == [
        *("id", "title", "text", "product", "words_", "id_is_number", "spans", "embeddings", "words", "counts")
    ]
    assert table["id"].tolist() == ["7", "e42"]
    assert table["product"].tolist() == ["card", "printer"]
    assert table["words_"].tolist()[0] == 5
    assert {*table["words"][1]} == {"e42", "there", "is", "no", "paper"}
    assert len(table["embeddings"][0][0]) == 16
    duckdb = pytest.importorskip("duckdb")
    file = str(tmp_path / "a.parquet")
    assert duckdb.sql(f"SELECT id FROM '{file}' WHERE product = 'printer'").fetchall() == [("e42",)]
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(file)["title"].to_list() == ["Lost cards", "E42"]


def test_texts_are_packed_and_metadata_have_statistics(still_encoder, tmp_path):
    """Numbers would not shrink; and a program that looks for a product passes over row groups without it."""
    rows = [{"id": i, "title": "Cards", "text": "a cat", "product": "card", "words": 5} for i in range(3)]
    HybridSearch(still_encoder, rows, bm25_weight=0.1).save(tmp_path / "a.parquet")
    group = parquet.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    columns = {group.column(i).path_in_schema.partition(".")[0]: group.column(i) for i in range(group.num_columns)}
    assert [name for name, one in columns.items() if one.compression == "ZSTD"] == ["id", "title", "text", "product"]
    assert [name for name, one in columns.items() if one.is_stats_set] == ["product", "words_"]
    assert [name for name, one in columns.items() if one.has_dictionary_page] == ["words"]


def test_a_search_without_documents_is_kept_too(search, path):
    search.remove(search.ids)
    search.save(path)
    opened = HybridSearch.open(path, search.model)
    assert (opened.ids, opened.search("a cat")) == ([], [[]])
    opened.add({"a": "a cat"})
    opened.save(path)
    assert HybridSearch.open(path, search.model).ids == ["a"]


# --- metadata ---

BERLIN, SANTIAGO = ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-3))
METADATA = {
    "product": ["card", "loan", None],
    "pages": [1, None, -(2**62)],
    "price": [1, 0.5, None],
    "huge": [2**80, 1, None],
    "open": [True, None, False],
    "day": [date(2024, 5, 1), None, date(1, 1, 1)],
    "moment": [datetime(2024, 5, 1, 10, 30, 0, 7), None, datetime(1899, 1, 1)],
    "in Berlin": [datetime(2024, 5, 1, 10, tzinfo=BERLIN), datetime(2024, 12, 1, 10, tzinfo=BERLIN), None],
    "zones": [
        datetime(2024, 5, 1, 10, tzinfo=BERLIN),
        datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=-3))),
        None,
    ],
    "mixed": ["7", 7, date(2024, 5, 1)],
    "mixed times": [datetime(2024, 5, 1), date(2024, 5, 1), datetime(2024, 5, 1, tzinfo=BERLIN)],
    "mixed numbers": [0.25, "x", True],
    "text": ["a", None, None],
    "text_": ["b", None, None],
    "words_": ["c", None, None],
    "words": ["d", None, None],
    **{name: [f"own {name}", None, "x"] for name in ("title", "id_is_number", "spans", "embeddings", "counts")},
    "a.b c": ["", "x", None],
    "never": [None, None, None],
}


def test_metadata_of_all_kinds_comes_back_equal(still_encoder, tmp_path, monkeypatch):
    rows = [
        {"_id": f"d{i}", "text": f"text {i}"} | {"metadata": {name: values[i] for name, values in METADATA.items()}}
        for i in range(3)
    ]
    search = HybridSearch(still_encoder, rows, bm25_weight=0.1)
    monkeypatch.setattr(parquet_file, "_ROWS", 2)
    search.save(tmp_path / "a.parquet")
    opened = HybridSearch.open(tmp_path / "a.parquet", still_encoder)
    for found, document, i in zip(opened.documents, search.documents, range(3), strict=True):
        expected = {name: values[i] for name, values in METADATA.items() if values[i] is not None}
        assert found == document
        assert found.metadata == expected
        for name, value in found.metadata.items():
            if name != "price":  # a column of numbers
                assert type(value) is type(expected[name]), name
            if isinstance(value, datetime):
                assert (value.tzinfo is None) == (expected[name].tzinfo is None)
    schema = parquet.read_schema(tmp_path / "a.parquet")
    assert [str(schema.field(name).type) for name in ("product", "pages", "price", "open", "day", "in Berlin")] == [
        *("string", "int64", "double", "bool", "date32[day]", "timestamp[us, tz=Europe/Berlin]")
    ]
    with count_rows(still_encoder) as encoded:
        assert opened.update(search.documents).kept == 3
    assert (not encoded, opened._state.version) == (True, search._state.version), "nothing changed"


@pytest.mark.parametrize(
    "values",
    [
        [datetime(2024, 1, 1, tzinfo=BERLIN), datetime(2024, 1, 1, tzinfo=timezone.utc)],
        [datetime(2024, 1, 1, tzinfo=SANTIAGO), datetime(2024, 7, 1, tzinfo=BERLIN)],
        [0.5, True, 0],
        [1, False],
    ],
)
def test_what_equality_does_not_see_comes_back_too(still_encoder, tmp_path, values):
    """The first of January is the thirty-first of December in another zone, and False is no number."""
    HybridSearch(still_encoder, [{"text": "a", "x": value} for value in values]).save(tmp_path / "a.parquet")
    found = [one.metadata["x"] for one in HybridSearch.open(tmp_path / "a.parquet", still_encoder).documents]
    assert found == values
    assert [*map(str, found)] == [*map(str, values)]


def test_a_change_of_metadata_encodes_nothing_and_is_kept(search, path):
    key = [*BEFORE][3]
    with count_rows(search.model) as encoded:
        counts = search.add([{"id": key, "text": BEFORE[key], "product": "card"}])
        assert (counts.encoded, counts.kept, counts.dropped) == (0, len(BEFORE), 0)
        search.save(path)
        opened = HybridSearch.open(path, search.model)
        assert sum(encoded) == 2, "probes"
        counts = search.update([{"id": k, "text": text, "product": "loan"} for k, text in BEFORE.items()])
        assert (counts.encoded, counts.kept, counts.dropped, sum(encoded)) == (0, len(BEFORE), 0, 2)
    assert search.ids == opened.ids == [*BEFORE], "their places stay"
    assert {one.id: one.metadata for one in opened.documents if one.metadata} == {key: {"product": "card"}}
    assert {one.metadata["product"] for one in search.documents} == {"loan"}


# --- saving ---


NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, True),
        (False, 0),
        ("2024-05-01", date(2024, 5, 1)),
        (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
        (date(2024, 5, 1), NOON),
    ],
)
def test_a_change_of_metadata_that_equality_does_not_see_is_kept(still_encoder, before, after):
    search = HybridSearch(still_encoder, [{"id": 1, "text": "a cat", "field": before}], bm25_weight=0.1)
    for value in (after, after):
        version = search._state.version
        search.add([{"id": 1, "text": "a cat", "field": value}])
        found = search.documents[0].metadata["field"]
        assert (type(found), str(found)) == (type(after), str(after))
    assert search._state.version == version, "nothing changed the second time"


def test_a_change_is_in_memory_until_it_is_saved(search, path):
    opened = HybridSearch.open(path, search.model)
    more = {"new": "a cat that nobody knew", 7: "the rain", "d3": "another text"}
    for change in (
        lambda: opened.add(more),
        lambda: opened.remove([7, "d1"]),
        lambda: opened.update(after()),
        lambda: opened.update(after(), bm25_weight=0.7),
    ):
        before = path.read_bytes()
        change()
        assert path.read_bytes() == before
        opened.save(path)
        again = HybridSearch.open(path, search.model)
        assert_same(again, opened)
        assert again.bm25_weight == opened.bm25_weight
        np.testing.assert_array_equal(again.embeddings, opened.embeddings)
    assert_new(again, after())
    assert (again.bm25_weight, again.weight_source) == (0.7, "given")
    assert {document.id: document.text for document in search.documents} == BEFORE
    written = path.stat().st_mtime_ns
    opened.update(after())
    opened.save(path)
    assert path.stat().st_mtime_ns == written, "nor is anything written where nothing changed"


def test_another_search_is_replaced_only_on_demand(search, path):
    opened = HybridSearch.open(path, search.model)
    opened.remove(["d1"])
    opened.save(path)  # as another process may
    search.remove(["d2"])
    other = HybridSearch(search.model, ["a cat"], bm25_weight=0.1)
    for one, found in ((other, "which holds another search"), (search, "which has been changed since it was opened")):
        before = path.read_bytes()
        with pytest.raises(ValueError, match=rf"^path must be a new file or .*index.parquet', {found}.*overwrite=True"):
            one.save(path)
        assert path.read_bytes() == before
        one.save(path, overwrite=True)
        assert HybridSearch.open(path, search.model).ids == one.ids
        one.add({"more": "a cat"})
        one.save(path)
    path.unlink()
    search.save(path)
    assert HybridSearch.open(path, search.model).ids == search.ids


def test_a_copy_of_the_file_is_another_file(search, path):
    backup = path.with_name("backup.parquet")
    backup.write_bytes(path.read_bytes())
    search.save(backup)  # which is the same
    search.save(path)
    search.remove(["d1"])
    with pytest.raises(ValueError, match=r"backup.parquet', which holds another search"):
        search.save(backup)
    search.save(path)
    assert HybridSearch.open(backup, search.model).ids == [*BEFORE]


def test_a_process_that_saves_meanwhile_is_not_undone(search, path, monkeypatch):
    other, write = HybridSearch.open(path, search.model), hybrid.write_state
    other.add({"other": "a cat"})
    search.remove(["d1"])
    monkeypatch.setattr(hybrid, "write_state", lambda *given: (write(*given), monkeypatch.undo(), other.save(path)))
    with pytest.raises(ValueError, match="which has been changed since it was opened or saved"):
        search.save(path)
    assert [file.name for file in path.parent.iterdir()] == ["index.parquet"]
    assert HybridSearch.open(path, search.model).ids == [*BEFORE, "other"]


def test_a_process_that_saves_while_the_disk_writes_is_not_undone(search, path, monkeypatch):
    other = HybridSearch.open(path, search.model)
    other.add({"other": "a cat"})
    search.remove(["d1"])
    monkeypatch.setattr(os, "fsync", lambda _: (monkeypatch.undo(), other.save(path)))
    with pytest.raises(ValueError, match="which has been changed since it was opened or saved"):
        search.save(path)
    assert HybridSearch.open(path, search.model).ids == [*BEFORE, "other"]


def test_the_file_and_not_a_link_to_it_is_replaced(search, path):
    link = path.with_name("link.parquet")
    link.symlink_to(path)
    opened = HybridSearch.open(link, search.model)
    opened.remove(["d1"])
    opened.save(link)
    assert link.is_symlink()
    assert parquet_file.resolved(link) == path.resolve()
    assert parquet_file.resolved(f"{path}.new") == path.resolve().with_name("index.parquet.new")
    assert "d1" not in HybridSearch.open(path, search.model).ids


def test_an_interrupted_save_leaves_the_earlier_file(search, path, monkeypatch):
    before = path.read_bytes()
    table = parquet_file._table

    def fail(state, part, *given):
        if part.start:
            raise KeyboardInterrupt
        return table(state, part, *given)

    monkeypatch.setattr(parquet_file, "_ROWS", 20)
    monkeypatch.setattr(parquet_file, "_table", fail)
    search.add({"new": "a cat"})
    for file in (path, path.with_name("new.parquet")):
        with pytest.raises(KeyboardInterrupt):
            search.save(file)
    assert [file.name for file in path.parent.iterdir()] == ["index.parquet"]
    assert path.read_bytes() == before
    monkeypatch.undo()
    search.save(path)
    assert_new(HybridSearch.open(path, search.model), {**BEFORE, "new": "a cat"})


def test_what_was_removed_is_in_no_file(search, path):
    search.add({"secret": "Kowalski pays", "kept": "the cat pays"})
    search.save(path)
    assert b"kowalski" in path.read_bytes()
    search.remove(["secret"])
    search.save(path)
    content = path.read_bytes()
    assert (b"kowalski" in content.lower(), "pays" in search.bm25.vocabulary) == (False, True)
    assert "kowalski" not in search.bm25.vocabulary
    assert_new(HybridSearch.open(path, search.model), {**BEFORE, "kept": "the cat pays"})


def test_words_of_a_change_that_failed_are_nowhere(search, path, monkeypatch):
    monkeypatch.setattr(search._encoder, "embed", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        search.add({"failed": "Kowalski pays"})
    monkeypatch.undo()
    search.add({"new": "further words that nobody knew"})
    search.save(path)
    assert b"kowalski" not in path.read_bytes().lower()
    assert_new(HybridSearch.open(path, search.model), {**BEFORE, "new": "further words that nobody knew"})


@pytest.mark.parametrize("language", [None, "english"])
def test_words_that_are_compared_in_another_way_are_counted_again(still_encoder, tmp_path, monkeypatch, language):
    """As after an update of this package, or of what stems words."""
    words, path = term_weights.search_words, tmp_path / "index.parquet"
    search = HybridSearch(still_encoder, BEFORE, queries=QUERIES, passages=8, language=language)
    search.add([{"id": "titled", "title": QUERIES[0], "text": "a cat"}])
    search.save(path)
    with monkeypatch.context() as patch:
        patch.setattr(parquet_file.WordCounts, "of", lambda *_: pytest.fail("counted again"))
        assert HybridSearch.open(path, search.model).search(QUERIES) == search.search(QUERIES)
    monkeypatch.setattr(term_weights, "search_words", lambda text, *given, **named: words(text[::-1], *given, **named))
    opened = HybridSearch.open(path, search.model)
    options = {"bm25_weight": search.bm25_weight, "passages": 8, "language": language}
    assert_same(opened, HybridSearch(search.model, search.documents, **options))
    assert opened.language == language
    opened.remove(["titled"])
    assert opened.reload() is False
    opened.add({"new": "a new cat"})
    opened.save(path)
    assert_new(HybridSearch.open(path, search.model), {**BEFORE, "new": "a new cat"})


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills processes")
def test_a_killed_save_leaves_the_earlier_documents_or_the_new_ones(tmp_path):
    """The long form: python -m tests.search.kill_save --kills 40."""
    found = check_kills(3, tmp_path)
    assert sum(found.values()) == 3


def test_a_folder_that_cannot_be_written_is_named(search, path):
    if os.getuid() == 0:
        pytest.skip("root may write everything")
    path.parent.chmod(0o555)
    opened = HybridSearch.open(path, search.model)
    opened.add({"new": "a cat"})
    with pytest.raises(OSError, match=r"index.parquet"):
        opened.save(path)


# --- several processes, threads and copies ---


def test_a_reader_follows_a_file_that_another_process_saves(search, path, monkeypatch):
    reader, writer = (HybridSearch.open(path, search.model) for _ in range(2))
    writer.add({"new": "a cat"})
    assert reader.reload() is False
    writer.save(path)
    with count_rows(search.model) as encoded:
        assert (reader.reload(), reader.ids[-1], not encoded) == (True, "new", True)
    monkeypatch.setattr(hybrid, "read_state", lambda _: pytest.fail("read"))
    assert reader.reload() is False, "nothing new, nothing read"
    monkeypatch.undo()
    assert reader.search(QUERIES) == writer.search(QUERIES)
    reader.add({"mine": "a dog"})
    assert reader.reload() is False
    writer.remove(["new"])
    writer.save(path)
    with pytest.raises(ValueError, match=r"^the search must have no changes that .*index.parquet' lacks, got some"):
        reader.reload()
    assert reader.ids[-2:] == ["new", "mine"]
    path.unlink()
    with pytest.raises(ValueError, match="where there is no file"):
        writer.reload()
    with pytest.raises(ValueError, match=r"^reload needs a file"):
        HybridSearch(search.model, ["a cat"], bm25_weight=0.1).reload()


def test_following_a_file_undoes_no_change_that_is_made_meanwhile(search, path, monkeypatch):
    reader, read = HybridSearch.open(path, search.model), hybrid.read_state
    search.remove(["d1"])
    search.save(path)
    monkeypatch.setattr(hybrid, "read_state", lambda file: (reader.add({"mine": "a dog"}), read(file))[1])
    with pytest.raises(ValueError, match=r"^the search must have no changes that .*index.parquet' lacks, got some"):
        reader.reload()
    assert reader.ids == [*BEFORE, "mine"]


def test_a_file_of_another_encoder_is_not_followed(search, path, make_encoder):
    reader = HybridSearch.open(path, search.model)
    other = HybridSearch(make_encoder(dropout=0.0, seed=1), BEFORE, bm25_weight=0.1)
    other.save(path, overwrite=True)
    with pytest.raises(ValueError, match="must be the encoder that made the search"):
        reader.reload()
    dot = make_encoder(dropout=0.0)
    dot.similarity_fn_name = "dot"
    HybridSearch(dot, BEFORE, bm25_weight=0.1).save(path, overwrite=True)
    with pytest.raises(ValueError, match=r"^model.similarity_fn_name must be 'dot'"):
        reader.reload()
    assert_same(reader, search)


def test_threads_see_one_state_each(search, path):
    """Each hit has the text and metadata of the state that was searched, while the documents change ten times."""
    versions = [
        {f"d{i}": {"text": f"the cat {version} and the dog {i}", "version": version} for i in range(20 + version)}
        for version in range(10)
    ]
    texts = [{key: row["text"] for key, row in rows.items()} for rows in versions]
    search.update(versions[0])
    wrong, searched, done = [], [], threading.Event()

    def find():
        while not done.is_set():
            hits = search.search("the cat", 40)[0]
            searched.append(len(hits))
            states = [version for version, state in enumerate(texts)
                      if {hit["corpus_id"]: hit["text"] for hit in hits} == state]  # fmt: skip
            if len(states) != 1 or {hit["metadata"]["version"] for hit in hits} != {*states}:
                wrong.append(hits)

    threads = [threading.Thread(target=find) for _ in range(8)]
    for thread in threads:
        thread.start()
    for version in versions[1:]:
        search.update(version)
        search.save(path)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert {*searched} <= set(range(20, 30))
    assert HybridSearch.open(path, search.model).documents == search.documents


def test_two_threads_that_save_leave_the_later_state(search, path, monkeypatch):
    begun, saved, write = threading.Event(), threading.Event(), hybrid.write_state

    def slow(*given):
        write(*given)
        monkeypatch.undo()
        begun.set()
        saved.wait(1)

    monkeypatch.setattr(hybrid, "write_state", slow)
    search.add({"first": "a cat"})
    thread = threading.Thread(target=search.save, args=(path,))
    thread.start()
    assert begun.wait(60)
    search.add({"second": "a dog"})
    search.save(path)
    saved.set()
    thread.join()
    assert HybridSearch.open(path, search.model).ids == search.ids == [*BEFORE, "first", "second"]


def test_a_thread_may_reload_while_another_saves(search, path, monkeypatch):
    moved, whole_file = threading.Event(), hybrid.whole_file

    @contextmanager
    def slow(target):
        with whole_file(target) as partial:
            yield partial
        moved.set()
        time.sleep(0.3)

    monkeypatch.setattr(hybrid, "whole_file", slow)
    search.add({"new": "a cat"})
    thread = threading.Thread(target=search.save, args=(path,))
    thread.start()
    assert moved.wait(60)
    assert search.reload() is False
    thread.join()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda search: pickle.loads(pickle.dumps(search))])
def test_a_copy_changes_alone_and_may_be_saved_to_the_same_file(search, path, copied):
    other = copied(search)
    other.add({"new": "a cat"})
    assert "new" not in search.ids
    other.save(path)
    search.remove(["d1"])
    with pytest.raises(ValueError, match="which has been changed since"):
        search.save(path)
    assert HybridSearch.open(path, search.model).ids == [*BEFORE, "new"]


def search_in_child(search, queue):
    queue.put([hit["corpus_id"] for hit in search.search("a cat", 3)[0]])


@pytest.mark.slow
def test_a_search_goes_to_a_spawned_process(search):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=search_in_child, args=(search, queue))
    child.start()
    assert queue.get(timeout=120) == [hit["corpus_id"] for hit in search.search("a cat", 3)[0]]
    child.join()


# --- what a change costs ---


def test_a_change_copies_the_blocks_that_it_touches(still_encoder, monkeypatch):
    monkeypatch.setattr(ranking, "_BLOCK", 8)
    search = HybridSearch(still_encoder, BEFORE, bm25_weight=0.1)
    blocks = search._state.embeddings.blocks
    assert [*map(len, blocks)] == [8] * 5
    search.remove(["d9", "d10"])
    search.add({"new": "a cat in the rain"})
    found = search._state.embeddings.blocks
    assert [*map(len, found)] == [8, 6, 8, 8, 8, 1]
    shared = [np.shares_memory(one, other) for one, other in zip(found, blocks, strict=False)]
    assert shared == [True, False, True, True, True]
    search.add({f"n{i}": f"cat {i}" for i in range(9)})
    assert [*map(len, search._state.embeddings.blocks)] == [8, 6, 8, 8, 8, 1, 8, 1]
    search.remove([f"d{i}" for i in range(16, 40)])
    assert [*map(len, search._state.embeddings.blocks)] == [8, 7, 8, 1], "small ones are joined"
    documents = {document.id: document.text for document in search.documents}
    assert_new(search, documents)


def test_one_pass_adds_a_document(search, monkeypatch):
    passes, forward = [], type(search.model).forward
    monkeypatch.setattr(
        type(search.model), "forward", lambda *given, **named: passes.append(1) or forward(*given, **named)
    )
    search.add({"new": "a cat in the rain"})
    assert len(passes) == 1


# --- files that are refused ---


def test_files_of_others_are_refused_and_stay(search, tmp_path):
    for name, content in {"text.txt": b"mine", "binary": bytes(range(256)) * 40, "PAR1": b"PAR1" * 100}.items():
        (tmp_path / name).write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as file, file:
        file.execute("CREATE TABLE documents(text)")
    pd.DataFrame({"id": ["a"], "text": ["mine"]}).to_parquet(tmp_path / "theirs.parquet")
    (tmp_path / "folder").mkdir()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    found = dict.fromkeys(before, "which is not a Parquet file") | {
        "PAR1": "which is cut off, damaged, or was changed",
        "theirs.parquet": "a table that another program wrote",
        "folder": "a folder",
    }
    for name, reason in found.items():
        message = rf"^path must be a file that HybridSearch.save wrote, got .*{name}', {reason}.*\.$"
        for use in (
            lambda file: HybridSearch.open(file, search.model),
            search.save,
            lambda file: search.save(file, overwrite=True),
            parquet_file.stored_version,
        ):
            with pytest.raises(ValueError, match=message):
                use(tmp_path / name)
    with pytest.raises(ValueError, match="where there is no file"):
        HybridSearch.open(tmp_path / "none", search.model)
    with pytest.raises(ValueError, match="must be in a folder that exists"):
        search.save(tmp_path / "none" / "index")
    for use in (search.save, lambda file: HybridSearch.open(file, search.model), parquet_file.resolved):
        for nothing in ("", " "):
            with pytest.raises(ValueError, match=rf"^path must name a file, got '{nothing}'\."):
                use(nothing)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before
    (tmp_path / "nothing").touch()
    search.save(tmp_path / "nothing")
    assert_same(HybridSearch.open(tmp_path / "nothing", search.model), search)


@pytest.mark.parametrize("name", ["id", "title", "text", "product", "spans", "embeddings", "words", "counts", None])
def test_a_file_that_another_program_changed_is_refused(search, path, name):
    """Even one that keeps what the search says of itself; its embeddings would not be those of its texts."""
    search.update([{"id": key, "text": text, "product": "card"} for key, text in BEFORE.items()])
    search.save(path)
    table = parquet.read_table(path)
    about = dict(parquet.ParquetFile(path).metadata.metadata)
    if name is None:
        key = parquet_file.KEY_OF_SEARCH
        about[key] = about[key].replace(b'"passage_words": 8', b'"passage_words": 9')
    else:
        values = table.column(name).to_pylist()
        column = pa.array([values[1], *values[1:]], table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    parquet.write_table(table.replace_schema_metadata(about), path)
    with pytest.raises(ValueError, match=r"index.parquet', which is cut off, damaged, or was changed by another pro"):
        HybridSearch.open(path, search.model)


def test_all_of_a_large_file_is_summed(still_encoder, tmp_path):
    """It is read in parts of a mebibyte."""
    documents = [{"id": i, "text": "a cat", "note": random.Random(i).randbytes(1_500_000).hex()} for i in range(2)]
    path = tmp_path / "large.parquet"
    HybridSearch(still_encoder, documents, bm25_weight=0.1).save(path)
    assert path.stat().st_size > 2_500_000
    assert HybridSearch.open(path, still_encoder).documents[1].metadata["note"] == documents[1]["note"]
    content = bytearray(path.read_bytes())
    content[len(content) - 300_000] ^= 1  # after the first parts
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"large.parquet', which is cut off, damaged, or was changed"):
        HybridSearch.open(path, still_encoder)


def test_a_file_that_another_program_wrote_anew_is_refused(search, path):
    table = pd.read_parquet(path)
    table.to_parquet(path)
    with pytest.raises(ValueError, match=r"index.parquet', a table that another program wrote: give another file"):
        HybridSearch.open(path, search.model)


def test_a_damaged_file_is_refused_by_name_or_is_whole(search, path):
    """Nothing changes unseen, and nothing else is ever raised."""
    whole = path.read_bytes()
    for size in (4, 100, 3000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"index.parquet', which is cut off, damaged, or was"):
            HybridSearch.open(path, search.model)
    expected = search.search(QUERIES)
    draw, refused = np.random.default_rng(0), []
    for _ in range(80):
        damaged = bytearray(whole)
        place = int(draw.integers(4, len(whole) - 64))
        damaged[place : place + 16] = draw.bytes(16)
        path.write_bytes(damaged)
        try:
            found = HybridSearch.open(path, search.model).search(QUERIES)
        except ValueError as error:
            refused.append(str(error))
        else:
            assert found == expected
    assert len(refused) > 40
    assert all(one.startswith(("path must be a file that Hyb", "model must be the encoder")) for one in refused)
    path.write_bytes(whole)
    assert_same(HybridSearch.open(path, search.model), search)


@pytest.mark.parametrize(
    "error",
    [pa.ArrowMemoryError("malloc failed"), ImportError("no snowballstemmer"), OSError(errno.EIO, "Input/output error")],
    ids=repr,
)
def test_what_is_no_fault_of_the_file_is_not_blamed_on_it(search, path, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(parquet_file, "_state_in", fails)
    with pytest.raises(type(error), match=re.escape(str(error))):
        HybridSearch.open(path, search.model)


def test_another_encoder_is_refused(search, path, make_encoder):
    prompted, dot = make_encoder(dropout=0.0), make_encoder(dropout=0.0)
    prompted.prompts, dot.similarity_fn_name = {"document": "a red "}, "dot"
    for other in (make_encoder(dropout=0.0, seed=1), make_encoder(dropout=0.0, hidden_size=8), prompted, dot):
        with pytest.raises(ValueError, match=r"^model(\.similarity_fn_name)? must be"):
            HybridSearch.open(path, other)
