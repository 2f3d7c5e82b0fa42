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


def written(tmp_path, name):
    kind = name.partition(".")[2].removesuffix(".gz")
    if kind == "parquet":
        datasets.Dataset.from_list(ROWS).to_parquet(str(tmp_path / name))
        return tmp_path / name
    if kind in ("jsonl", "json"):
        return write(tmp_path / name, "".join(json.dumps(row) + "\n" for row in ROWS))
    between = {"csv": ",", "tsv": "\t"}[kind]
    return write(
        tmp_path / name, "".join(between.join(row) + "\n" for row in [ROWS[0], *(row.values() for row in ROWS)])
    )


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.tsv.gz", "a.parquet", "a.json"])
def test_a_title_is_part_of_its_document(tmp_path, name):
    path = written(tmp_path, name)
    assert read_documents(path) == (["a", "b", "c"], TEXTS)
    assert read_sentences(path) == TEXTS
    assert read_sentences(path, column="title") == ["Cards", "Loans"]
    assert read_documents(path, column="text") == (["a", "c"], ["A lost card.", "An account."])


@pytest.mark.parametrize("kind", ["data set", "stream", "generator", "transform"])
def test_a_title_is_part_of_its_document_in_a_data_set(kind):
    data = datasets.Dataset.from_list(ROWS)
    if kind == "stream":
        data = data.to_iterable_dataset()
    elif kind == "generator":
        data = datasets.IterableDataset.from_generator(lambda: iter(ROWS))
    elif kind == "transform":
        data = data.with_transform(lambda batch: batch)
    assert list(iterate_sentences(data)) == TEXTS


def test_a_title_must_be_text(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"title": null, "text": "one"}\n{"title": 3, "text": "two"}\n')
    with pytest.raises(ValueError, match=r"line 2: .* got 3"):
        read_sentences(path)
    assert read_sentences(path, limit=1) == ["one"]


def test_a_title_alone_is_a_document(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"_id": "a", "title": "Loans", "text": null}\n')
    assert read_documents(path) == (["a"], ["Loans"])
    assert read_documents(write(tmp_path / "a.tsv", "_id\ttitle\ttext\na\tLoans\n")) == (["a"], ["Loans"])
    with pytest.raises(ValueError, match="line 1: expected a sentence, got None"):
        read_documents(write(tmp_path / "b.jsonl", '{"_id": "a", "title": null, "text": null}\n'))


@pytest.mark.parametrize(("name", "header"), [("a.csv", "id;text"), ("a.csv", "id\ttext"), ("a.tsv", "id,text")])
def test_fields_that_something_else_separates_are_named(tmp_path, name, header):
    with pytest.raises(ValueError, match=f"{name} has no column .* separated by (commas|tabs)"):
        read_sentences(write(tmp_path / name, f"{header}\n1\n"))


def test_texts_without_ids_are_numbered(tmp_path):
    assert read_documents(write(tmp_path / "a.txt", "one\n\ntwo\n")) == (["0", "1"], ["one", "two"])
    assert read_documents(write(tmp_path / "a.jsonl", '{"text": "one"}\n"two"\n')) == (["0", "1"], ["one", "two"])


@pytest.mark.parametrize(("read", "other"), [(read_documents, "doc_id"), (read_queries, "qid")])
def test_the_id_of_a_row_is_its_own_before_anothers(tmp_path, read, other):
    row = {other: "x", "_id": "a", "text": "one"}
    assert read(write(tmp_path / "a.jsonl", json.dumps(row)))[0] == ["a"]
    del row["_id"]
    assert read(write(tmp_path / "a.jsonl", json.dumps(row | {"id": 7})))[0] == ["x"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"_id": "a", "text": "one"}\n{"_id": "a", "text": "two"}\n', "line 2: .*'a'"),
        ('{"_id": "a", "text": "one"}\n{"text": "two"}\n', "line 2: each document must have an id"),
        ('{"_id": "", "text": "one"}\n', "line 1: the id"),
        ('{"_id": 1.5, "text": "one"}\n', "line 1: the id"),
    ],
)
def test_a_fault_in_an_id_names_its_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_documents(write(tmp_path / "a.jsonl", content))


def test_empty_documents_are_left_out_and_counted(tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", '{"_id": "a", "text": " "}\n{"_id": "b", "text": "two"}\n')
    assert read_documents(path) == (["b"], ["two"])
    assert "a.jsonl: 1 without text left out, 1 read" in caplog.text
    with pytest.raises(ValueError, match="holds no document"):
        read_documents(write(tmp_path / "b.jsonl", '{"_id": "a", "text": ""}\n'))
