"""The file of an index: what it holds, who may write to it, and which files are refused."""

import os
import sqlite3
import threading
from contextlib import closing

import numpy as np
import pytest

from st_extras.search import HybridSearch, index
from st_extras.text import term_weights
from tests.helpers import count_rows
from tests.search.kill_update import check_kills
from tests.search.test_hybrid import routed
from tests.search.test_update import BEFORE, QUERIES, after, assert_new, assert_same


@pytest.fixture
def search(still_encoder):
    return HybridSearch(still_encoder, BEFORE, queries=QUERIES, share=0.3)


@pytest.fixture
def path(search, tmp_path):
    search.save(tmp_path / "index.sqlite")
    return tmp_path / "index.sqlite"


def change(path, *statements):
    """Change a file as anybody may."""
    with closing(sqlite3.connect(path)) as file, file:
        for statement, *values in statements:
            file.execute(statement, *values)


def test_an_index_is_one_file_and_opens_without_the_documents(search, path):
    assert [file.name for file in path.parent.iterdir()] == ["index.sqlite"]
    with count_rows(search.model) as rows:
        opened = HybridSearch.open(path, search.model)
    assert sum(rows) == 2, "probes"
    assert_same(opened, search)
    assert opened.search(QUERIES) == search.search(QUERIES)
    assert (opened.bm25_weight, opened.weight_source) == (search.bm25_weight, "queries")
    assert opened._state.weight == search._state.weight
    assert (opened.passages, opened.language) == (search.passages, None)
    assert HybridSearch.open(path, routed(search.model)).search("a cat"), "queries alone differ"


def test_each_change_is_written(search, path):
    opened = HybridSearch.open(path, search.model)
    more = {"new": "a cat that nobody knew", 7: "the rain", "d3": "another text"}
    for change_it, expected in (
        (lambda: opened.add(more), {**{k: v for k, v in BEFORE.items() if k != "d3"}, **more}),
        (lambda: opened.remove([7, "d1"]), None),
        (lambda: opened.update(after()), after()),
        (lambda: opened.update(after(), bm25_weight=0.7), after()),
    ):
        change_it()
        again = HybridSearch.open(path, search.model)
        assert_same(again, opened)
        assert again.bm25_weight == opened.bm25_weight
        np.testing.assert_array_equal(again.embeddings, opened.embeddings)
        if expected is not None:
            assert_new(again, expected)
    assert (again.bm25_weight, again.weight_source) == (0.7, "given")
    assert {document.id: document.text for document in search.documents} == BEFORE


def test_a_search_that_was_saved_writes_to_its_file_and_a_copy_does_not(search, path):
    search.add({"new": "a cat"})
    assert HybridSearch.open(path, search.model).ids == search.ids
    other = path.with_name("other.sqlite")
    search.save(other)
    search.remove(["new"])
    assert HybridSearch.open(path, search.model).ids == [*BEFORE, "new"]
    assert HybridSearch.open(other, search.model).ids == [*BEFORE]


def test_an_index_of_another_search_is_replaced_only_on_demand(search, path):
    other = HybridSearch(search.model, ["a cat"], bm25_weight=0.1)
    HybridSearch.open(path, search.model).remove(["d1"])  # as another process may
    for one in (other, search):
        before = path.read_bytes()
        with pytest.raises(ValueError, match=r"^path must be a new file, got .*index.sqlite'.* overwrite=True to repl"):
            one.save(path)
        assert path.read_bytes() == before
        one.save(path, overwrite=True)
        assert HybridSearch.open(path, search.model).ids == one.ids


def test_a_change_costs_what_changes(search, path, monkeypatch):
    opened, written = HybridSearch.open(path, search.model), []
    insert = index._insert
    monkeypatch.setattr(index, "_insert", lambda file, state, first, words: written.append(len(state.documents) - first)
                        or insert(file, state, first, words))  # fmt: skip
    opened.add({"new": "a cat", **BEFORE})
    opened.add(BEFORE)
    opened.save(path)
    assert written == [1], "nor is anything written where nothing changes"


def test_nothing_is_written_when_a_change_fails(search, path, monkeypatch):
    opened = HybridSearch.open(path, search.model)
    before = path.read_bytes()
    insert = index._write_search

    def fail(*given):
        insert(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(index, "_write_search", fail)
    other = HybridSearch(search.model, ["x"], bm25_weight=0)
    for change_it in (
        lambda: opened.update(after()),
        lambda: opened.remove(["d1"]),
        lambda: other.save(path, overwrite=True),
    ):
        with pytest.raises(KeyboardInterrupt):
            change_it()
        assert opened.ids == [*BEFORE]
    new = path.with_name("new.sqlite")
    with pytest.raises(KeyboardInterrupt):
        other.save(new)
    assert (path.read_bytes(), new.read_bytes()) == (before, b"")
    monkeypatch.undo()
    other.save(new)
    assert HybridSearch.open(new, search.model).ids == [0]
    opened.update(after())
    assert_new(HybridSearch.open(path, search.model), after())


def test_words_of_a_change_that_failed_are_not_in_the_way(search, path, monkeypatch):
    monkeypatch.setattr(index, "_write_search", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        search.add({"failed": "words that nobody knew"})
    monkeypatch.undo()
    search.save(path.with_name("other.sqlite"))
    search.add({"new": "further words that nobody knew"})
    for document in ("a cat", "the last one"):
        search.add({"last": document})
        opened = HybridSearch.open(path.with_name("other.sqlite"), search.model)
        assert_new(opened, {**BEFORE, "new": "further words that nobody knew", "last": document})


def test_words_that_are_compared_in_another_way_are_counted_again(search, path, monkeypatch):
    """As after an update of this package, or of what stems words."""
    words = term_weights.search_words
    monkeypatch.setattr(term_weights, "search_words", lambda text, *given, **named: words(text[::-1], *given, **named))
    opened = HybridSearch.open(path, search.model)
    expected = HybridSearch(search.model, BEFORE, bm25_weight=search.bm25_weight)
    assert_same(opened, expected)
    assert opened.add({"new": "a new cat"}).encoded == 1
    assert_new(HybridSearch.open(path, search.model), {**BEFORE, "new": "a new cat"})
    opened.add({"newer": "a newer cat"})
    assert_new(HybridSearch.open(path, search.model), {**BEFORE, "new": "a new cat", "newer": "a newer cat"})


# --- several processes and threads ---


def test_another_process_that_changed_the_index_is_followed(search, path):
    first, second = (HybridSearch.open(path, search.model) for _ in range(2))
    first.add({"first": "a cat"})
    assert "first" not in second.ids, "it sees the earlier state until it changes the index"
    second.add({"second": "a dog"})
    second.remove(["d1"])
    assert second.ids[-2:] == ["first", "second"]
    first.add({"d1": "the river"})
    expected = {**BEFORE, "first": "a cat", "second": "a dog", "d1": "the river"}
    assert_new(first, expected)
    assert_new(HybridSearch.open(path, search.model), expected)


def test_a_file_that_another_process_writes_to_is_waited_for_and_named(search, path, monkeypatch):
    monkeypatch.setattr(index, "WAIT", 0.1)
    opened = HybridSearch.open(path, search.model)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM documents")
        assert_same(HybridSearch.open(path, search.model), search)  # readers see the earlier state
        for write in (lambda: opened.add({"new": "a cat"}), lambda: HybridSearch(search.model, ["a"]).save(path)):
            with pytest.raises(
                TimeoutError, match=r"index.sqlite' has been in use by another process for more than 0.1"
            ):
                write()
        other.execute("ROLLBACK")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TimeoutError, match=r"index.sqlite' has been in use by another process"):
            HybridSearch.open(path, search.model)
    opened.add({"new": "a cat"})
    assert_new(opened, {**BEFORE, "new": "a cat"})


def test_threads_see_one_state_each(search, path):
    """Each hit has the text of the state that was searched, while the documents change ten times."""
    texts = [{f"d{i}": f"the cat {version} and the dog {i}" for i in range(20 + version)} for version in range(10)]
    search.update(texts[0])
    wrong, searched, done = [], [], threading.Event()

    def find():
        while not done.is_set():
            hits = search.search("the cat", 40)[0]
            searched.append(len(hits))
            states = [version for version, state in enumerate(texts)
                      if {hit["corpus_id"]: hit["text"] for hit in hits} == state]  # fmt: skip
            if len(states) != 1:
                wrong.append(hits)

    threads = [threading.Thread(target=find) for _ in range(8)]
    for thread in threads:
        thread.start()
    for state in texts[1:]:
        search.update(state)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert {*searched} <= set(range(20, 30))
    assert_new(HybridSearch.open(path, search.model), texts[-1])


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills processes")
def test_a_killed_change_leaves_the_earlier_documents_or_the_new_ones(tmp_path):
    """The long form: python -m tests.search.kill_update --kills 40."""
    found = check_kills(3, tmp_path)
    assert sum(found.values()) == 3


def test_a_file_that_cannot_be_written_is_named(search, path):
    if os.getuid() == 0:
        pytest.skip("root may write everything")
    path.chmod(0o444)
    opened = HybridSearch.open(path, search.model)
    with pytest.raises(OSError, match=r"index.sqlite' could not be read or written"):
        opened.add({"new": "a cat"})
    assert opened.ids == [*BEFORE]


# --- files that are refused ---


def test_files_of_others_are_refused_and_stay(search, tmp_path):
    files = {"text.txt": b"mine", "long.txt": b"SQLite format 3" + b"x" * 5000, "binary": bytes(range(256)) * 40}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    change(tmp_path / "theirs.sqlite", ("CREATE TABLE documents(text)",), ("INSERT INTO documents VALUES ('mine')",))
    change(tmp_path / "empty.sqlite", ("CREATE TABLE documents(text)",), ("DROP TABLE documents",))
    (tmp_path / "folder").mkdir()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    refused = r"^path must be an index that HybridSearch.save wrote, got .*"
    for name in [*before, "folder", "none"]:
        with pytest.raises(ValueError, match=f"{refused}{name}'"):
            HybridSearch.open(tmp_path / name, search.model)
    for name in {*before, "folder"} - {"empty.sqlite"}:
        with pytest.raises(ValueError, match=f"{refused}{name}'"):
            search.save(tmp_path / name)
    with pytest.raises(ValueError, match="must be in a folder that exists"):
        search.save(tmp_path / "none" / "index")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before
    (tmp_path / "nothing").touch()  # what a first save that was killed may leave
    for name in ("nothing", "empty.sqlite"):
        search.save(tmp_path / name)
        assert_same(HybridSearch.open(tmp_path / name, search.model), search)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER more AFTER INSERT ON documents BEGIN DELETE FROM passages; END",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TABLE more(text)",
        "ALTER TABLE documents ADD COLUMN more",
        "PRAGMA application_id = 1",
        "PRAGMA user_version = 2",
        "DELETE FROM search",
        "INSERT INTO search SELECT * FROM search",
        "UPDATE search SET encoder = '{}'",
        "UPDATE search SET encoder = 'no JSON'",
        "UPDATE search SET similarity = 'euclidean'",
        "UPDATE search SET bm25_weight = -1",
        "UPDATE search SET bm25_weight = 'a'",
        "UPDATE search SET weight_queries = '3'",
        "UPDATE search SET weight_source = 'nowhere'",
        "UPDATE search SET passage_words = 1",
        "UPDATE search SET language = 'klingon'",
        "UPDATE passages SET embedding = x'00' WHERE number = 3",
        "UPDATE passages SET embedding = x'' WHERE number = 3",
        "UPDATE passages SET embedding = 'text'",
        "UPDATE passages SET start = -1 WHERE number = 3",
        "UPDATE passages SET stop = 100000 WHERE number = 3",
        "UPDATE passages SET stop = 'a' WHERE number = 3",
        "UPDATE passages SET document = 1 WHERE number = 3",
        "DELETE FROM passages WHERE number = 3",
        "DELETE FROM documents WHERE number = 3",
        "UPDATE documents SET words = x'0000' WHERE number = 3",
        "UPDATE documents SET words = x'ffffffffffffffff' WHERE number = 3",
        "UPDATE documents SET words = x'ffffff0001000000' WHERE number = 3",
        "UPDATE documents SET text = x'00' WHERE number = 3",
        "UPDATE documents SET text = cast(x'ff' AS TEXT) WHERE number = 3",
        "UPDATE documents SET id = 1.5 WHERE number = 3",
        "DELETE FROM words WHERE number = 3",
    ],
)
def test_a_file_that_was_changed_by_others_is_refused_by_name(search, path, statement):
    change(path, ("PRAGMA ignore_check_constraints = ON",), (statement,))
    with pytest.raises(ValueError, match=r"^path must be an index that HybridSearch.save wrote, got .*index.sqlite'"):
        HybridSearch.open(path, search.model)


def test_a_damaged_file_is_refused_by_name_or_is_whole(search, path):
    """A byte of a text or an embedding may change unseen; nothing else is ever raised."""
    whole = path.read_bytes()
    for size in (100, 3000, 4096, len(whole) // 2, len(whole) - 4096):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"index.sqlite', which is another file or damaged"):
            HybridSearch.open(path, search.model)
    draw, refused = np.random.default_rng(0), []
    for _ in range(60):
        damaged = bytearray(whole)
        place = int(draw.integers(0, len(whole) - 64))
        damaged[place : place + 64] = draw.bytes(64)
        path.write_bytes(damaged)
        try:
            HybridSearch.open(path, search.model).search("a cat")
        except ValueError as error:
            refused.append(str(error).partition(",")[0])
    assert len(refused) > 10
    named = {"path must be an index that HybridSearch.save wrote", "model must be the encoder that made the search"}
    assert {*refused} <= named
    path.write_bytes(whole)
    assert_same(HybridSearch.open(path, search.model), search)


def test_another_encoder_is_refused(search, path, make_encoder):
    prompted, dot = make_encoder(dropout=0.0), make_encoder(dropout=0.0)
    prompted.prompts, dot.similarity_fn_name = {"document": "a red "}, "dot"
    for other in (make_encoder(dropout=0.0, seed=1), make_encoder(dropout=0.0, hidden_size=8), prompted, dot):
        with pytest.raises(ValueError, match=r"^model(\.similarity_fn_name)? must be"):
            HybridSearch.open(path, other)
