"""Documents with ids: a title is part of its document, whatever kind of file it stands in."""

import json

import datasets
import pytest

from st_extras.text.corpus import iterate_sentences, read_sentences
from st_extras.text.documents import read_documents, read_queries
from tests.helpers import write

ROWS = [
    {"_id": "a", "title": "Cards ", "text": " A lost card."},
    {"_id": "b", "title": "Loans", "text": ""},
    {"_id": "c", "title": "", "text": "An account."},
]
TEXTS = ["Cards A lost card.", "Loans", "An account."]
FILES = {
    "a.jsonl.gz": "".join(json.dumps(row) + "\n" for row in ROWS),
    "a.json": "".join(json.dumps(row) + "\n" for row in ROWS),
    "a.csv": "".join(",".join(row) + "\n" for row in [ROWS[0], *(row.values() for row in ROWS)]),
    "a.tsv": "".join("\t".join(row) + "\n" for row in [ROWS[0], *(row.values() for row in ROWS)]),
}


@pytest.mark.parametrize("name", [*FILES, "a.parquet"])
def test_a_title_is_part_of_its_document(tmp_path, name):
    path = tmp_path / name
    if name in FILES:
        write(path, FILES[name])
    else:
        datasets.Dataset.from_list(ROWS).to_parquet(str(path))
    assert read_documents(path)[:2] == (["a", "b", "c"], TEXTS)
    assert read_sentences(path) == TEXTS
    assert read_sentences(path, column="title") == ["Cards", "Loans"]
    assert read_documents(path, column="text")[:2] == (["a", "c"], ["A lost card.", "An account."])


def test_a_title_is_part_of_its_document_in_a_data_set():
    data = datasets.Dataset.from_list(ROWS)
    stream = datasets.IterableDataset.from_generator(lambda: iter(ROWS))
    for given in (data, data.to_iterable_dataset(), stream, data.with_transform(lambda batch: batch)):
        assert list(iterate_sentences(given)) == TEXTS


@pytest.mark.parametrize(("read", "other"), [(read_documents, "doc_id"), (read_queries, "qid")])
def test_the_id_of_a_row_is_its_own_before_anothers(tmp_path, read, other):
    row = {other: "x", "_id": "a", "text": "one"}
    assert read(write(tmp_path / "a.jsonl", json.dumps(row)))[0] == ["a"]
    del row["_id"]
    assert read(write(tmp_path / "a.jsonl", json.dumps(row | {"id": 7})))[0] == ["x"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"_id": "a", "text": "one"}\n{"_id": "a", "text": "two"}\n', "line 2: .*'a' stands twice"),
        ('{"_id": "a", "text": "one"}\n{"text": "two"}\n', "line 2: each document must have an id"),
        ('{"_id": 1.5, "text": "one"}\n', "line 1: the id"),
        ('{"_id": "a", "title": 3, "text": "one"}\n', "line 1: .* got 3"),
    ],
)
def test_a_fault_names_its_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_documents(write(tmp_path / "a.jsonl", content))


def test_texts_without_ids_are_numbered(tmp_path):
    assert read_documents(write(tmp_path / "a.txt", "one\n\ntwo\n")) == (["0", "2"], ["one", "two"], ["", ""])


def test_empty_documents_are_left_out_and_counted(tmp_path, caplog):
    rows = '{"_id": "a", "text": " "}\n{"_id": "b", "title": "Loans", "text": null}\n'
    assert read_documents(write(tmp_path / "a.jsonl", rows))[:2] == (["b"], ["Loans"])
    assert "a.jsonl: 1 without text left out, 1 read" in caplog.text
