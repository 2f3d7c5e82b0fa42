"""Documents with ids: a title is part of its document, whatever kind of file it stands in."""

import json
import math
import pickle
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_extras.search import HybridSearch
from st_extras.text import tables
from st_extras.text.corpus import iterate_sentences, read_sentences, stream_sentences
from st_extras.text.documents import Document, as_documents, as_metadata, read_documents, read_queries, same_metadata
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
    read = read_documents(path)
    assert [(one.id, one.full_text) for one in read] == list(zip("abc", TEXTS, strict=True))
    assert read == [
        Document("a", "Cards", "A lost card."),
        Document("b", "Loans", ""),
        Document("c", "", "An account."),
    ]
    assert read_sentences(path) == TEXTS
    assert read_queries(path) == dict(zip("abc", TEXTS, strict=True))
    assert read_sentences(path, column="title") == ["Cards", "Loans"]
    read = read_documents(path, column="text")
    assert [(one.id, one.title, one.text) for one in read] == [("a", "", "A lost card."), ("c", "", "An account.")]


def test_a_title_is_part_of_its_document_in_a_data_set():
    data = datasets.Dataset.from_list(ROWS)
    stream = datasets.IterableDataset.from_generator(lambda: iter(ROWS))
    for given in (data, data.to_iterable_dataset(), stream, data.with_transform(lambda batch: batch)):
        assert list(iterate_sentences(given)) == TEXTS


def test_the_index_of_a_frame_is_no_metadata_of_a_data_set():
    data = datasets.Dataset.from_pandas(pd.DataFrame({"text": ["one"], "day": ["x"]}, index=[5]))
    assert as_documents(data) == [Document(0, "", "one", {"day": "x"})]


@pytest.mark.parametrize(("read", "other"), [(read_documents, "doc_id"), (read_queries, "qid")])
def test_the_id_of_a_row_is_its_own_before_anothers(tmp_path, read, other):
    row = {other: "x", "text": "one"}
    for wanted, given in (("a", row | {"_id": "a"}), ("x", row | {"id": 7})):
        (found,) = read(write(tmp_path / "a.jsonl", json.dumps(given)))
        assert wanted == getattr(found, "id", found)  # a query's id is the key of its dict


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"_id": "a", "text": "one"}\n{"_id": "a", "text": "two"}\n', "line 2: .*'a' stands twice"),
        ('{"_id": "a", "text": "one"}\n{"text": "two"}\n', "line 2: each document must have an id"),
        ('{"_id": 1.5, "text": "one"}\n', "line 1: the id .* must be a text or a whole number, got 1.5"),
        ('{"_id": true, "text": "one"}\n', "line 1: the id .* must be a text or a whole number, got True"),
        (
            '{"_id": "a", "text": "one"}\n{"_id": null, "text": "two"}\n',
            "line 2: the id of a document is missing, got None",
        ),
        ('{"_id": "a", "title": 3, "text": "one"}\n', "line 1, title: .* got 3"),
    ],
)
def test_a_fault_names_its_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_documents(write(tmp_path / "a.jsonl", content))


@pytest.mark.parametrize("big", [2**63, -(10**30)])
def test_ids_beyond_64_bits_are_texts_in_files(tmp_path, big):
    path = write(tmp_path / "a.jsonl", f'{{"_id": {big}, "text": "one"}}\n')
    assert read_documents(path) == [Document(str(big), "", "one")]
    assert read_queries(path) == {str(big): "one"}


def test_ids_are_asked_for_where_they_are_needed(tmp_path):
    lines, table = write(tmp_path / "a.txt", "one\n"), write(tmp_path / "a.csv", "body,text\nx,one\n")
    for read, kind, remedy in ((read_documents, "document", "whole_files"), (read_queries, "query", "give a table")):
        assert len(read(lines)) == len(read(table)) == 1
        with pytest.raises(ValueError, match=rf"line 1: each {kind} must have an id, and a line of .* none: {remedy}"):
            read(lines, require_ids=True)
        with pytest.raises(ValueError, match=rf"line 2: each {kind} must have an id, in one of the columns .* id\.$"):
            read(table, require_ids=True)
    with pytest.raises(ValueError, match=r"^texts, row 0: each document must have an id, in one of .*, id\.$"):
        as_documents(["one"], "texts", require_ids=True)


@pytest.mark.parametrize(("read", "kind"), [(read_documents, "document"), (read_queries, "query")])
def test_a_column_is_chosen_and_one_that_is_missing_has_a_remedy(tmp_path, read, kind):
    path = write(tmp_path / "a.csv", "id,body,text\n7,one,\n")
    (found,) = read(path, column="body", remedy="ask me").items() if kind == "query" else read(path, column="body")
    assert found == (("7", "one") if kind == "query" else Document("7", "", "one", {}))
    with pytest.raises(ValueError, match=r"has no column x: it has id, body, text .*; ask me\.$"):
        read(path, column="x", remedy="ask me")
    for sources, named in ((path, f"{str(path)!r}"), ([], "sources")):
        with pytest.raises(ValueError, match=rf"^{re.escape(named)} holds no {kind}\.$"):
            read(sources)


def test_several_sources_come_one_after_the_other(tmp_path):
    files = [write(tmp_path / f"{name}.csv", f"id,text\n{name}1,one\n{name}2,two\n") for name in "cab"]
    assert [one.id for one in read_documents(files)] == ["c1", "c2", "a1", "a2", "b1", "b2"]
    assert [*read_queries(files)] == ["c1", "c2", "a1", "a2", "b1", "b2"]
    lines = [write(tmp_path / f"{name}.txt", "one\n\ntwo\n") for name in "ab"]
    assert [one.id for one in read_documents(lines)] == [*read_queries(lines)] == ["0", "2", "3", "5"]


def test_texts_without_ids_are_numbered(tmp_path, caplog):
    assert read_documents(write(tmp_path / "a.txt", "one\n\ntwo\n")) == [
        Document("0", "", "one"),
        Document("2", "", "two"),
    ]
    assert not caplog.messages, "blank lines are no documents"


def test_empty_documents_are_left_out_and_counted(tmp_path, caplog):
    rows = '{"_id": "a", "text": " "}\n{"_id": "b", "title": "Loans", "text": null}\n'
    assert read_documents(write(tmp_path / "a.jsonl", rows)) == [Document("b", "Loans", "")]
    assert "a.jsonl: 1 without text left out, 1 read" in caplog.text


# --- documents held in Python ---

TITLED = [{"id": 7, "title": " Cards ", "text": "A lost card."}, {"id": "b", "text": " "}, {"id": -1, "title": "Loans"}]

FRAME = pd.DataFrame({"id": [1, 2, 3], "title": ["Cards", None, "Loans"], "text": ["one", "two", None]})


def columns_of(rows: list[dict[str, object]]) -> datasets.Dataset:
    return datasets.Dataset.from_list([dict(row) for row in rows])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["one", "", "one"], [(0, "", "one"), (1, "", ""), (2, "", "one")]),
        pytest.param((text for text in ["one"]), [(0, "", "one")], id="generator"),
        (np.array(["one"]), [(0, "", "one")]),
        ({"a": " one\n", 7: "two", np.int32(3): ""}, [("a", "", " one\n"), (7, "", "two"), (3, "", "")]),
        ({"a": "one", "b": "two"}.keys(), [(0, "", "a"), (1, "", "b")]),  # which has an order, unlike a set
        ({7: {"title": "Cards", "text": "one"}, "8": {"text": "two"}}, [(7, "Cards", "one"), ("8", "", "two")]),
        ([{"text": "one"}, {"text": "two"}], [(0, "", "one"), (1, "", "two")]),
        ([{"doc_id": "a", "_id": 2, "contents": "one"}], [(2, "", "one", {"doc_id": "a"})]),
        ([{"id": "3", "body": "one"}], [("3", "", "one")]),
        (columns_of([{"id": 7, "title": "Cards", "text": "one"}]), [(7, "Cards", "one")]),
        (columns_of([{"id": "7", "text": "one"}]).to_iterable_dataset(), [("7", "", "one")]),
        ({"a": {"title": None, "text": "one"}}, [("a", "", "one")]),
        (dict.fromkeys(np.array(["a"]), "one"), [("a", "", "one")]),
        ({2**63 - 1: "one", -(2**63) + 1: "two"}, [(2**63 - 1, "", "one"), (-(2**63) + 1, "", "two")]),
        (FRAME.to_dict("records"), [(1, "Cards", "one"), (2, "", "two"), (3, "Loans", "")]),
        ([], []),
    ],
    ids=str,
)
def test_documents_keep_their_ids(given, wanted):
    assert (found := as_documents(given)) == [Document(*one) for one in wanted]
    assert [type(document.id) for document in found] == [type(key) for key, *_ in wanted]
    assert as_documents(found) == found


BERLIN = datetime(2024, 5, 1, 10, tzinfo=ZoneInfo("Europe/Berlin"))


class Day(date):
    """A date as other packages have their own."""


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        *(("card", "card"), (7, 7), (0.5, 0.5), (True, True), (date(2024, 5, 1), date(2024, 5, 1)), (BERLIN, BERLIN)),
        *((np.str_("card"), "card"), (np.int64(7), 7), (np.float32(0.5), 0.5), (np.bool_(True), True)),
        *((Decimal("0.5"), 0.5), (pd.Timestamp(BERLIN), BERLIN), (np.datetime64("2024-05-01"), datetime(2024, 5, 1))),
        *((value, value) for value in ("", " ", 0, 0.0, False)),
        *((["lost", "", "stolen", None, "found"], "lost, stolen, found"), (("lost",), "lost"), ([], None)),
        (Day(2024, 5, 1), date(2024, 5, 1)),
        *((value, None) for value in (None, math.nan, np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT"))),
    ],
    ids=repr,
)
def test_metadata_holds_scalars_of_python(given, wanted):
    (document,) = as_documents([{"id": "a", "text": "one", "field": given}])
    assert document.metadata == ({} if wanted is None else {"field": wanted})
    assert [*map(type, document.metadata.values())] == [type(wanted)] * len(document.metadata)
    assert as_documents([document]) == [document] == pickle.loads(pickle.dumps([document]))
    assert hash(document) == hash(Document("a", "", "one"))
    assert as_metadata({"field": given}, "here") == (document.metadata, []), "nothing that metadata cannot hold"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        *((True, 1, False), (False, 0.0, False), (1, 1.0, True), ("7", 7, False)),
        *((date(2024, 5, 1), datetime(2024, 5, 1), False), (BERLIN, BERLIN.astimezone(timezone.utc), False)),
        *((date(2024, 5, 1), "2024-05-01", False), ("card", "card", True), ("card", "loan", False), (1.5, 1, False)),
    ],
)
def test_metadata_is_the_same_where_values_and_their_kinds_are(one, other, same):
    assert same_metadata({"field": one}, {"field": other}) is same
    assert not same_metadata({"field": one}, {"field": one, "more": other})


def test_the_second_of_two_equal_hours_stays_the_second():
    """When summer time ends, "==" does not see which."""
    hour = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    (document,) = as_documents([{"text": "one", "at": pd.Timestamp(hour)}])
    assert document.metadata["at"].isoformat() == "2024-10-27T02:30:00+01:00"


def test_further_keys_are_metadata_and_what_is_no_scalar_is_named_once(caplog):
    fields = {
        "product": "card",
        "tags": [1],
        "ratio": -math.inf,
        "metadata": {"url": "/a", "parents": {}},
        3: "x",
        "": "y",
    }
    found = as_documents([{"id": number, "title": "Cards", "text": "one"} | fields for number in range(3)])
    assert [one.metadata for one in found] == [{"product": "card", "3": "x", "url": "/a"}] * 3
    (record,) = caplog.records
    assert record.getMessage() == (
        "documents: left out of the metadata, which holds texts, finite numbers, truth values and dates alone: tags, "
        "ratio, '', parents."
    )
    given = {"a": {"id": "a", "text": "one", "date": 3}}
    assert as_documents(given) == [Document("a", "", "one", {"date": 3})]
    assert given == {"a": {"id": "a", "text": "one", "date": 3}}, "as it was"
    assert as_documents({"a": {"id": "b", "text": "one", " day ": 3}})[0].metadata == {"id": "b", "day": 3}
    assert as_documents({"a": {"_id": "b", "text": "one"}}) == [Document("a", "", "one")], "by the key of the dict"
    for field in ({"field": "\ud800"}, {"\ud800": "field"}, {"metadata": {"\ud800": 1}}):
        with pytest.raises(ValueError, match=r"row 0: a text must be valid, got a lone surrogate"):
            as_documents([{"text": "one", **field}])


def test_a_title_stands_apart_and_is_searched():
    found = as_documents([*TITLED[:1], TITLED[1] | {"title": None}, TITLED[2] | {"text": None}])
    assert found == [Document(7, "Cards", "A lost card."), Document("b", "", " "), Document(-1, "Loans", "")]
    assert [document.full_text for document in found] == ["Cards A lost card.", " ", "Loans"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            {"one", "two"}, "documents must have an order, got a set, .*: give a list or a dict by id.", id="set"
        ),
        (frozenset({"one"}), "documents must have an order"),
        ("one", "documents must be an iterable of strings, got the string 'one'"),
        (b"one", "documents must be an iterable of strings"),
        (datasets.DatasetDict(train=columns_of(TITLED[:1])), r"give one of them, as in data\['train'\]"),
        (pd.DataFrame({"text": ["one"]}), r'documents .*, got a DataFrame: .* frame.to_dict\("records"\) of pandas,'),
        (pa.table({"id": ["a"], "text": ["one"]}), r"documents .*, got a Table: .* table.to_pylist\(\) of pyarrow\.$"),
        (pd.Series(["one"]), r"documents .*, got a Series: give list\(series\), series.to_dict\(\) by id"),
        ([*TITLED, TITLED[0]], "documents, row 3: .*"),
        ([{"id": "a", "text": "one"}, {"id": "a", "text": "two"}], "documents, row 1: the id 'a' stands twice"),
        (
            [{"id": 1, "text": "one"}, {"text": "two"}],
            "documents, row 1: each document must have an id, in one .* or none of them",
        ),
        ([{"text": "one"}, {"id": 1, "text": "two"}], "documents, row 1: each document must have an id, in one"),
        (
            [{"id": 1, "text": "one"}, "two"],
            "documents, row 1: each document must have an id, in one .* or none of them",
        ),
        ([{"id": 1, "text": None}], "documents, row 0: expected a sentence, got None"),
        (
            [{"id": 1, "text": math.nan}],
            "documents, row 0: expected a sentence, got nan: leave its row out, or fill it",
        ),
        ([{"id": 1, "text": "one", "title": 3}], "documents, row 0, title: expected a sentence, got 3"),
        ({" ": "one"}, r"documents\[' '\]: the id of a document is missing, got ' ': give a text or a whole number"),
        ({True: "one"}, "got True"),
        ({1.0: "one"}, "got 1.0"),
        ({None: "one"}, r"documents\[None\]: the id of a document is missing, got None"),
        ({2**63: "one"}, "a whole number"),
        ({-(2**63): "one"}, "a whole number"),
        ({"\ud800": "one"}, "lone surrogate"),
        ({"a": "\ud800"}, r"documents\['a'\]: .*lone surrogate"),
        ({"id": ["a"], "text": ["one"]}, r"documents\['id'\]: expected a sentence"),
        ([{"id": "a", "body": "one", "by": "me"}], r"documents has no column .*: it has id, body, by\.$"),
        ([["one"]], "documents, row 0: expected a sentence"),
    ],
    ids=str,
)
def test_documents_that_cannot_be_meant_are_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        as_documents(given)


# --- metadata of files and data sets ---


def test_further_cells_of_a_file_are_metadata_as_texts(tmp_path, caplog):
    header, rows = ["", "id", "text", "product", "zip"], [["0", "a", "one", "card", "007"], ["1", "b", "two", "", " "]]
    for name, separator in {"a.csv": ",", "b.csv": ";", "a.tsv": "\t"}.items():
        path = write(tmp_path / name, "".join(separator.join(row) + "\n" for row in [header, *rows]))
        assert [one.metadata for one in read_documents(path)] == [{"product": "card", "zip": "007"}, {}]
    assert read_documents(write(tmp_path / "a.csv", " ,id,text\n0,a,one\n")) == [Document("a", "", "one")]
    path = write(tmp_path / "a.csv", "id,text,product\na,one\nb,two,card\n")
    assert [one.metadata for one in read_documents(path)] == [{}, {"product": "card"}]
    assert not caplog.messages


def test_further_fields_of_json_lines_keep_their_types(tmp_path, caplog):
    row = {
        "_id": "a",
        "text": "one",
        "n": 2,
        "open": True,
        "closed": False,
        "zero": 0,
        "none": None,
        "tags": ["x", "y"],
        "empty": "",
        "in": {"a": 1},
    }
    path = write(tmp_path / "a.jsonl", json.dumps(row | {"nan": math.nan}) + "\n" + '{"_id": "b", "text": "two"}\n')
    assert [*read_queries(path)] == ["a", "b"]
    assert not caplog.messages, "queries have no metadata"
    first, second = read_documents(path)
    assert first.metadata == {"n": 2, "open": True, "closed": False, "zero": 0, "tags": "x, y"}
    assert second.metadata == {}
    assert caplog.messages == [
        f"{path}: left out of the metadata, which holds texts, finite numbers, truth values and dates alone: in."
    ]


NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
COLUMNS = {
    "id": pa.array(["a", "b"]),
    "text": pa.array(["one", "two"], pa.large_string()),
    "product": pa.array(["card", None]).dictionary_encode(),
    "tags": pa.array([["lost", "stolen"], []]),
    "large": pa.array([["x"], None], pa.large_list(pa.large_string())),
    "vector": pa.array([[0.5], [1.0]]),
    "image": pa.array([{"bytes": b"x"}, None]),
    "binary": pa.array([b"x", None]),
    "rate": pa.array([0.5, math.nan]),
    "cents": pa.array([Decimal("0.50"), None]),
    "day": pa.array([date(2024, 5, 1), None]),
    "at": pa.array([NOON, None], pa.timestamp("us", "Europe/Berlin")),
    "nano": pa.array([0, None], pa.timestamp("ns")),
    "big": pa.array([2**64 - 1, None], pa.uint64()),
}
METADATA = {
    "product": "card", "tags": "lost, stolen", "large": "x",
    "rate": 0.5, "cents": 0.5, "day": date(2024, 5, 1), "at": NOON, "nano": datetime(1970, 1, 1), "big": 2**64 - 1,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "row groups", "data set", "streamed"])
def test_further_columns_of_parquet_and_data_sets_are_metadata(tmp_path, caplog, kind):
    table = pa.table(COLUMNS)
    source = tmp_path / "a.parquet"
    pq.write_table(table, source, row_group_size=1 if kind == "row groups" else 1000)
    if kind in ("parquet", "row groups"):
        found, name = read_documents(source), str(source)
    else:
        data = datasets.Dataset(table.drop_columns("image"))
        found, name = as_documents(data if kind == "data set" else data.to_iterable_dataset()), "documents"
    assert [one.text for one in found] == ["one", "two"]
    assert found[0].metadata == METADATA
    assert found[0].metadata["at"].utcoffset().total_seconds() == 7200
    assert found[1].metadata == {}
    image = "" if name == "documents" else " image,"
    assert caplog.messages == [
        f"{name}: left out of the metadata, which holds texts, finite numbers, truth values and dates alone: "
        f"vector,{image} binary."
    ]


def test_dates_that_python_does_not_have_are_left_out_and_named(tmp_path, caplog):
    times = pa.array([10**13, 0, None], pa.timestamp("s"))
    columns = {"text": ["one", "two", "three"], "far": times, "day": pa.array([10**8, 0, None], pa.date32())}
    zone = {"nowhere": pa.array([0, None, 0], pa.timestamp("s", "Nowhere/City"))}
    pq.write_table(pa.table(columns | zone), tmp_path / "a.parquet")
    assert [one.metadata for one in read_documents(tmp_path)] == [
        {}, {"far": datetime(1970, 1, 1), "day": date(1970, 1, 1)}, {}
    ]  # fmt: skip
    assert [message.partition("alone: ")[2] for message in caplog.messages] == ["far, day, nowhere."]
    assert read_sentences(tmp_path) == ["one", "two", "three"]


def test_dates_in_the_old_form_of_spark_keep_their_years(tmp_path):
    table = pa.table({"text": ["one"], "day": pa.array([datetime(1000, 1, 1)])})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert read_documents(tmp_path)[0].metadata == {"day": datetime(1000, 1, 1)}


@pytest.mark.parametrize("twice", ["text", "value"])
def test_a_column_that_stands_twice_in_parquet_is_refused(tmp_path, twice):
    table = pa.Table.from_arrays([pa.array(["one"]), pa.array(["two"]), pa.array(["x"])], ["text", twice, "value"])
    pq.write_table(table, tmp_path / "a.parquet")
    for read in (read_documents, read_sentences):
        with pytest.raises(ValueError, match=rf"a\.parquet: its columns must have different names, got {twice} twice"):
            read(tmp_path / "a.parquet")


def test_a_dot_in_the_name_of_a_column_is_part_of_it(tmp_path):
    columns = {"text": ["one"], "a": pa.array([{"b": "nested"}]), "a.b": ["x"], "text.length": [3]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert read_documents(tmp_path)[0].metadata == {"a.b": "x", "text.length": 3}


def test_lists_of_categories_and_with_gaps_are_texts(tmp_path, caplog):
    lists = pa.ListArray.from_arrays([0, 2], pa.array(["lost", "stolen"]).dictionary_encode())
    pq.write_table(pa.table({"text": ["one"], "tags": lists, "gaps": [["a", None]]}), tmp_path / "a.parquet")
    assert read_documents(tmp_path)[0].metadata == {"tags": "lost, stolen", "gaps": "a"}
    assert not caplog.messages


def test_the_file_of_a_search_is_read_as_its_documents(still_encoder, tmp_path, caplog):
    """What the search made of them is no metadata, such as a list of all their words."""
    rows = [{"id": "a", "title": "Cards", "text": "a lost card", "product": "card"}, {"id": "b", "text": "a loan"}]
    HybridSearch(still_encoder, rows, bm25_weight=0.1).save(tmp_path / "a.parquet")
    assert read_documents(tmp_path / "a.parquet") == as_documents(rows)
    assert not caplog.messages


def test_lists_are_not_read_where_sentences_are(tmp_path, monkeypatch):
    pq.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    seen = []
    rows = tables._parquet
    monkeypatch.setitem(tables._READERS, ".parquet", (lambda *args: seen.extend(rows(*args)) or iter(seen), ""))
    assert read_sentences(tmp_path / "a.parquet")
    assert "tags" not in seen[0][1]
    assert "product" in seen[0][1]


# --- text files as documents ---


def test_whole_text_files_are_documents_with_their_paths_as_ids(tmp_path, caplog):
    contents = {"a.txt": "\ufeffCards\r\n\r\nA lost card.\r\n", "b/c.txt.gz": "Loans\n", "d.txt": " \n"}
    for name, text in contents.items():
        write(tmp_path / name, text)
    wanted = [
        Document(str(tmp_path / "a.txt"), "", "Cards\r\n\r\nA lost card."),
        Document(str(tmp_path / "b/c.txt.gz"), "", "Loans"),
    ]
    for source in (tmp_path, f"{tmp_path}/**/*.txt*", [tmp_path / name for name in contents]):
        assert read_documents(source, whole_files=True) == wanted
        assert read_sentences(source) == ["Cards", "A lost card.", "Loans"]
        assert [*stream_sentences(source, whole_files=True)] == [one.text for one in wanted]
    assert read_documents(tmp_path / "a.txt", whole_files=True) == wanted[:1]
    assert read_documents(write(tmp_path / "notes", "one\ntwo"), whole_files=True)[0].text == "one\ntwo"
    csv = write(tmp_path / "a.csv", "id,text\n7,one\n")
    assert read_documents([csv, tmp_path / "a.txt"], whole_files=True) == [Document("7", "", "one"), wanted[0]]


@pytest.mark.parametrize("first", [0, 1])
def test_lines_of_text_files_beside_documents_with_ids_say_how_these_get_ids(tmp_path, first):
    """Whichever is read first, the file without ids is named."""
    lines, table = write(tmp_path / "a.txt", "one\ntwo"), write(tmp_path / "b.csv", "id,text\n7,one\n")
    place = (table, lines)[first]
    with pytest.raises(ValueError, match=f"^{re.escape(str(place))}, .*a line of '.*a\\.txt' has none: whole_files"):
        read_documents([lines, table][:: -1 if first else 1])


def test_many_text_files_get_a_hint(tmp_path, caplog):
    for number in range(20):
        write(tmp_path / f"{number:02}.txt", "one\n\ntwo\n")
    assert len(read_documents(tmp_path)) == 40
    assert caplog.messages == [
        f"Each line of 20 text files, such as '{tmp_path}/00.txt', is a document, 60 in all: whole_files "
        "(--whole-files) makes each file one."
    ]
    caplog.clear()
    assert len(read_documents(tmp_path, whole_files=True)) == 20
    assert read_sentences(tmp_path)
    assert read_queries(tmp_path)
    assert read_documents([tmp_path, write(tmp_path / ".table/a.csv", "text\none\n")]), "not text files alone"
    (tmp_path / "00.txt").unlink()
    assert read_documents(tmp_path)
    assert not caplog.messages


def test_a_field_under_metadata_counts_before_one_beside_it():
    row = {"text": "a cat", "product": "card", "metadata": {"product": "loan"}}
    assert as_documents([row])[0].metadata == {"product": "loan"}
