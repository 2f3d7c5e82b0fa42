"""Tables as people write them: what is read is what stood in the cell, and a fault is one sentence with its remedy."""

import csv
import gzip
import io
import json
import math
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from st_extras.evaluation import load_judged, load_labeled_texts, load_sts
from st_extras.text.corpus import read_sentences
from st_extras.text.documents import read_documents, read_queries
from st_extras.text.tables import DOCUMENT_IDS, QUERY_COLUMNS, QUERY_IDS, Column, open_file, read_number
from tests.helpers import write

TEXTS = [
    "NA",
    "null",
    "None",
    "1.0",
    "007",
    'he said "no"',
    "a, b; c",
    "two\nlines",
    "a\ttab",
    "x" * 200_000,
    "naïve ß",
    "True",
]
"""What readers of tables change, cut or drop."""
IDS = [f"{number:03}" for number in range(len(TEXTS))]
FRAME = pd.DataFrame({"id": IDS, "text": TEXTS})


def texts_by_id(path: Path | str) -> dict[int | str, str]:
    return {one.id: one.full_text for one in read_documents(path)}


def written(name: str, frame: pd.DataFrame = FRAME) -> bytes:
    """A table as pandas writes it."""
    data = io.BytesIO()
    if "parquet" in name:
        frame.to_parquet(data)
        return data.getvalue()
    if "json" in name:
        text = frame.to_json(orient="records", lines="jsonl" in name)
    else:
        separator = {"semicolon.csv": ";", "tab.csv": "\t", "a.tsv": "\t", "a.tsv.gz": "\t", "utf16.tsv": "\t"}.get(
            name, ","
        )
        text = frame.to_csv(index=False, sep=separator)
    content = text.encode({"utf16.tsv": "utf-16", "bom.csv": "utf-8-sig"}.get(name, "utf8"))
    return gzip.compress(content) if name.endswith("gz") else content


@pytest.mark.parametrize(
    "name",
    [
        "a.csv",
        "semicolon.csv",
        "tab.csv",
        "a.tsv",
        "a.tsv.gz",
        "a.csv.gz",
        "bom.csv",
        "utf16.tsv",
        "a.jsonl",
        "a.json",
        "a.parquet",
    ],
)
def test_cells_are_read_as_they_were_written(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(written(name))
    assert texts_by_id(path) == dict(zip(IDS, TEXTS, strict=True))
    assert read_sentences(path) == TEXTS
    labelled = load_labeled_texts(path, label_column="id")
    assert (labelled.texts, labelled.labels) == (TEXTS, IDS)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_a_large_file_is_read_in_flat_memory(tmp_path, name):
    frame = pd.DataFrame({"id": range(2000), "text": ["some words of a sentence, " * 40] * 2000})
    path = tmp_path / name
    path.write_bytes(written("a.tsv" if name == "a.txt" else name, frame))
    rows = open_file(path, {"text": Column(("text",))}).rows()
    tracemalloc.start()  # before the first row, at which all could be read
    assert sum(1 for _ in rows) == 2000 + (name == "a.txt")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000 < path.stat().st_size / 5


# --- quotes of .tsv files ---


@pytest.mark.parametrize("columns", [["id", "text"], ["text", "id"], ["text"]])
def test_a_field_of_several_lines_is_one_document_of_a_tsv(tmp_path, columns):
    path = tmp_path / "a.tsv"
    path.write_bytes(written("a.tsv", FRAME[columns]))
    assert [one.text for one in read_documents(path)] == TEXTS


@pytest.mark.parametrize(
    "rows",
    [
        '"one\t1\ntwo"\t2',
        '"all of it"\t1',
        '5" and 6"\t1',
        '"a" and "b"\t1',
        '""a"" b\t1',
        '"one\t1"\n"two\t2"',
        '"one\t1\ntwo\t2\n"three\t3',
    ],
)
def test_quotes_that_are_text_stay_and_swallow_no_row(tmp_path, rows):
    path = write(tmp_path / "a.tsv", f"text\tid\n{rows}\n")
    assert [one.text for one in read_documents(path)] == [row.split("\t")[0] for row in rows.split("\n")]


def test_a_quote_within_a_name_of_a_tsv_encloses_nothing(tmp_path):
    path = write(tmp_path / "a.tsv", 'text\tsize in "\n"one\t5\ntwo\t6\n')
    assert [(one.text, one.metadata) for one in read_documents(path)] == [
        ('"one', {'size in "': "5"}), ("two", {'size in "': "6"})
    ]  # fmt: skip


def test_a_list_in_a_json_file_may_begin_after_blank_lines(tmp_path):
    path = write(tmp_path / "a.json", '\n \n[{"text": "one"}, "two"]\n')
    assert read_sentences(path) == ["one", "two"]
    texts = [f"a text with the number {number}" for number in range(1000)]
    assert read_sentences(write(tmp_path / "b.json", json.dumps(texts, indent=1))) == texts


def test_quotes_around_the_names_of_a_tsv_enclose_all_fields(tmp_path):
    """As R's write.table does."""
    for blank in ("", "\n \n"):
        path = write(tmp_path / "a.tsv", f'{blank}"id"\t"text"\n1\t"a lost card"\n2\t"one"\n')
        assert texts_by_id(path) == {"1": "a lost card", "2": "one"}
    with pytest.raises(ValueError, match=r"a\.tsv, line 3: a quote is opened and never closed"):
        read_documents(write(tmp_path / "a.tsv", '"id"\t"text"\n1\t"one"\n2\t"two\n'))


def test_an_empty_first_field_of_a_tsv_is_a_field(tmp_path):
    (document,) = read_documents(write(tmp_path / "a.tsv", "title\ttext\tnote\n\tone\t\n"))
    assert (document.title, document.text, document.metadata) == ("", "one", {})


def test_space_at_the_beginning_of_a_field_of_a_tsv_stays(tmp_path):
    (document,) = read_documents(write(tmp_path / "a.tsv", 'id\ttext\tnote\n7\t"one\ntwo"\t  x\n'))
    assert (document.text, document.metadata) == ("one\ntwo", {"note": "  x"})


def test_a_quoted_field_that_comes_too_late_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("st_extras.text.tables._SNIFFED", 3)
    rows = "".join(f"{number}\ttext\n" for number in range(9))
    with pytest.raises(ValueError, match=r"a\.tsv, line 12: .* save the table as \.csv"):
        read_documents(write(tmp_path / "a.tsv", f'id\ttext\n{rows}9\t"more\nlines"\n'))


# --- parquet ---


@pytest.mark.parametrize("ids", [[5, 6, 7], [0, 1, 2], [7, 3, 5], ["b", "a", "c"], [4, 2, 0]])
@pytest.mark.parametrize("name", ["id", "_id"])
def test_a_named_index_holds_the_ids(tmp_path, ids, name):
    frame = pd.DataFrame({"text": ["one", "two", "three"]}, index=pd.Index(ids, name=name))
    for kept in (
        frame,
        frame if isinstance(ids[0], str) else frame.set_axis(pd.RangeIndex(ids[0], ids[0] + 3, name=name)),
    ):
        kept.to_parquet(tmp_path / "a.parquet")
        assert [*texts_by_id(tmp_path / "a.parquet")] == [str(one) for one in kept.index]


def test_a_consecutive_index_goes_on_after_many_rows(tmp_path):
    frame = pd.DataFrame({"text": [f"text {i}" for i in range(2500)]}, index=pd.RangeIndex(10, 5010, 2, name="id"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert texts_by_id(tmp_path / "a.parquet") == dict(zip(map(str, frame.index), frame["text"], strict=True))


def test_an_index_without_a_name_is_no_id(tmp_path):
    pd.DataFrame({"review": ["one", "two"]}, index=["x", "y"]).to_parquet(tmp_path / "a.parquet")
    assert texts_by_id(tmp_path / "a.parquet") == {"0": "one", "1": "two"}


def test_columns_of_lists_are_not_read(tmp_path):
    pd.DataFrame({"text": ["one"], "embedding": [[0.5, 1.0]]}).to_parquet(tmp_path / "a.parquet")
    assert read_sentences(tmp_path / "a.parquet") == ["one"]
    with pytest.raises(ValueError, match="has no column embedding: it has text;"):
        read_sentences(tmp_path / "a.parquet", column="embedding")
    table = pa.table({"text": ["one", "two"], "embedding": [[0.5] * 100, [1.0] * 100]})
    parquet.write_table(table, tmp_path / "b.parquet", compression={"embedding.list.element": "zstd"})
    chunk = parquet.ParquetFile(tmp_path / "b.parquet").metadata.row_group(0).column(1)
    content = bytearray((tmp_path / "b.parquet").read_bytes())
    start = chunk.dictionary_page_offset
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    (tmp_path / "b.parquet").write_bytes(content)
    assert read_sentences(tmp_path / "b.parquet") == ["one", "two"], "whatever stands there"


@pytest.mark.parametrize(
    "rows",
    [
        "ID, Text\n007, one\n",
        '" _id ",SENTENCE\n007 ,one\n',
        "Text,text,id\n9,one,007\n",
        "Id,Text,TEXT\n007,one,9\n",
    ],
)
def test_the_case_of_a_columns_name_and_space_around_it_do_not_matter(tmp_path, rows):
    assert texts_by_id(write(tmp_path / "a.csv", rows)) == {"007": "one"}
    assert read_sentences(write(tmp_path / "b.csv", "Body,text\none,two\n"), column="body") == ["one"]


# --- what is wrong ---


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "judged"])
def test_a_table_that_is_read_twice_is_no_pipe(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name}' must be a file, as a table is read twice, got a pipe: save it"):
        open_file(tmp_path / name, {}, other=".tsv")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "one,one\ntwo,three\n", "its first row must be a header that names each column once, got one, one"),
        (
            "a.csv",
            "id,text\n1,a, b\n",
            r"line 2: a row must have at most 2 fields, .*\(id, text\), got 3: put a field that holds a comma",
        ),
        (
            "a.csv",
            "Export of May,28 Feb 2023\nid,text,note\n1,a,b\n",
            r"line 2: .* one for each column of the header \(Export of May, 28 Feb 2023\), got 3: .* mend the header",
        ),
        ("a.csv", 'id,text\n1,"a\n', "line 2: a quote is opened and never closed"),
        ("a.csv", 'id,text\n\n1,"a\nb\nc"\n2,d,e\n', "line 6: a row must have at most 2 fields"),
        ("a.csv", "id,text\n\n1,a,b\n", "line 3: a row must have at most 2 fields"),
        ("a.csv", 'id,text\n1,"a" b\n', "line 2: .*double a quote that belongs to the text"),
        ("a.tsv", "id\ttext\n1\ta\tb\n", "line 2: a row must have at most 2 fields, .*a tab in double quotes"),
        ("a.csv", "id;text\n1;a;b\n", "line 2: a row must have at most 2 fields, .*a semicolon in double quotes"),
        ("a.csv", "id|text\n1|a|b\n", "line 2: a row must have at most 2 fields, .*a bar in double quotes"),
        (
            "a.csv",
            "id,body\n1,a\n",
            r"no column sentence .*: it has id, body .*header.*; column \(--column\) can",
        ),
        (
            "a.json",
            '{"version": 1, "data": [{"text": "a"}]}',
            "no column .*: it has version, data .*must be a list of",
        ),
        (
            "a.json",
            '{\n"data": [\n{"text": "a"}]}',
            "must be a list of objects, or hold one .*line 1: not JSON",
        ),
        ("a.json", b'["caf\xe9"]', "a.json: not UTF-8, got the byte 0xe9"),
        ("a.json", '[\n{"text": "a"},\n{"text": }]', r"a\.json: not JSON \(Expecting value: line 3 column 10"),
        ("a.jsonl", '{"text": "a"}\n{"body": "b"}\n', r"a\.jsonl, line 2 has no column .*: it has body"),
        (
            "a.csv",
            "id,text\n1,a\rb\n",
            "line 2: a carriage return within a line: put the field",
        ),
        ("a.json", "[1, 2]", "row 0: a row must be an object or a text, got 1"),
        (
            "a.jsonl",
            '\n[{"text": "a"}]\n',
            r"line 2: a row must be an object or a text, got \[.*: name a file that is one list \.json",
        ),
        ("a.jsonl", '{"text": "a"}\nnull\n', "line 2: a row must be an object or a text, got None"),
        ("a.jsonl", '{"text": "a"}\n{"text":\n', r"line 2: not JSON \(Expecting value: column 9\)"),
        (
            "a.jsonl",
            '{"text": "a"}\n{"text": null}\n',
            "line 2: .* got None: leave its row out, or fill it",
        ),
        ("a.jsonl", "{}\n", "has no column .*: it has none; column"),
        ("a.parquet", "PAR1 nothing PAR1", "could not be read"),
        ("a.parquet.gz", "", "could not be read"),
    ],
)
def test_a_fault_is_one_sentence(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_sentences(write(tmp_path / name, content))
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("value", "number"), [("3", 3.0), (2, 2.0), (" -0.5\n", -0.5), (True, 1.0), (0, 0.0), ("0", 0.0)]
)
def test_a_number_of_a_cell(value, number):
    assert read_number(value, "here", "grade") == number


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *((value, "a grade is missing, got .*: fill it, or leave its row out") for value in ("", " ", None, math.nan)),
        *((value, "a grade must be a finite number, got ") for value in ("x", "inf", "nan", -math.inf, [], 10**400)),
    ],
)
def test_a_cell_that_holds_no_number(value, message):
    with pytest.raises(ValueError, match=rf"^a\.csv, line 3: {message}"):
        read_number(value, "a.csv, line 3", "grade")


def test_all_of_20_columns_are_named(tmp_path):
    names = [f"c{number}" for number in range(20)]
    with pytest.raises(ValueError, match=rf"it has {', '.join(names)} \(its first row"):
        read_sentences(write(tmp_path / "a.csv", ",".join(names) + "\n1\n"))


def test_a_json_object_of_many_objects_is_refused_in_one_short_line(tmp_path):
    path = write(tmp_path / "a.json", json.dumps({f"d{number}": {"text": "a"} for number in range(5000)}))
    with pytest.raises(ValueError, match=r"it has d0, d1, .*, d19 and 4,980 more \(it must be a list") as caught:
        read_sentences(path)
    assert len(str(caught.value)) < 500


def test_a_large_json_that_is_no_list_is_refused_in_our_words(tmp_path, caplog):
    path = write(tmp_path / "a.json", json.dumps({"meta": {}, "data": [{"text": "a" * 100}] * 20_000}))
    with pytest.raises(ValueError, match=r"a\.json has no column .*must be a list of objects, or hold one per line"):
        read_sentences(path)
    assert not caplog.messages


# --- queries, pairs and labels ---


@pytest.mark.parametrize("column", ["query", "question", "sentence", "text"])
def test_queries_have_usual_names_of_their_own(tmp_path, column):
    path = write(tmp_path / "a.csv", f"qid,{column},notes\n1,one,two\n")
    assert read_queries(path) == {"1": "one"}
    with pytest.raises(ValueError, match=r"no column .* or question or .*; column \(--query-column\) can name"):
        read_queries(write(tmp_path / "b.csv", "qid,asked\n1,one\n"))
    assert read_queries(tmp_path / "b.csv", column="asked") == {"1": "one"}


TEXT_NAMES = ["sentence", "text", "sentence1", "content", "contents"]


@pytest.mark.parametrize(
    ("read", "texts", "ids"),
    [
        (
            read_documents,
            TEXT_NAMES,
            ["_id", "corpus-id", "corpus_id", "document_id", "doc_id", "docid", "docno", "pid", "id"],
        ),
        (read_queries, ["query", "question", *TEXT_NAMES], ["_id", "query-id", "query_id", "qid", "q_id", "id"]),
    ],
)
def test_of_the_usual_names_of_a_column_the_first_that_exists_is_read(tmp_path, read, texts, ids):
    """Whatever the order of the columns."""
    for names, other in ((texts, ids[-1]), (ids, texts[-1])):
        for first in range(len(names)):
            columns = [*names[first:][::-1], other]
            path = write(tmp_path / "a.csv", f"{','.join(columns)}\n{','.join(f'of {name}' for name in columns)}\n")
            (found,) = read(path).items() if read is read_queries else [(one.id, one.text) for one in read(path)]
            assert found == (
                (f"of {other}", f"of {names[first]}") if names is texts else (f"of {names[first]}", f"of {other}")
            )


def test_the_page_has_every_usual_name():
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text(encoding="utf8")
    table = page.partition("## Where text comes from")[2].partition("<!-- commands -->")[0]
    named = [*QUERY_COLUMNS, "_id", *DOCUMENT_IDS, *QUERY_IDS, "id", "title", "label"]
    assert [name for name in named if f"`{name}`" not in table] == []


def test_a_column_may_be_missing_in_a_table_of_few(tmp_path):
    """Columns without a name, as pandas writes its row numbers, do not count."""
    wanted = {"text": Column(("text",)), "grade": Column(("grade",), optional_up_to=2)}
    few, many = write(tmp_path / "a.csv", ",text,by\n0,one,me\n"), write(tmp_path / "b.csv", "text,by,on\none,me,x\n")
    assert [row for _, row in open_file(few, wanted).rows()] == [{"text": "one"}]
    with pytest.raises(ValueError, match=r"b\.csv has no column grade: it has text, by, on"):
        next(open_file(many, wanted).rows())


def test_missing_columns_of_labels_name_their_options(tmp_path):
    path = write(tmp_path / "a.csv", "topic,body\na,one\n")
    with pytest.raises(ValueError, match=r"it has topic, body.*; text_column \(--text-column\) can name another"):
        load_labeled_texts(path)
    with pytest.raises(ValueError, match=r"no column label: .*; label_column \(--label-column\) can name another"):
        load_labeled_texts(path, text_column="body")
    with pytest.raises(ValueError, match="has no column label"):
        load_labeled_texts(write(tmp_path / "b.jsonl", '"only a text"\n'))


def test_a_file_is_opened_once_for_all_columns(tmp_path, monkeypatch):
    opened: list[Any] = []
    path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": f"{i}", "label": i % 2}) + "\n" for i in range(9)))
    read = open_file(path, {"text": Column(("text",)), "label": Column(("label",))}).rows()
    monkeypatch.setattr("builtins.open", lambda *given, _open=open: opened.append(given) or _open(*given))
    assert [row for _, row in read] == [{"text": f"{i}", "label": i % 2} for i in range(9)]
    assert len(opened) == 1


def test_a_title_is_no_text_of_its_own_twice(tmp_path):
    pd.DataFrame({"title": ["one"], "stars": [3]}).to_parquet(tmp_path / "a.parquet")
    assert read_sentences(tmp_path / "a.parquet") == ["one"]


def test_pairs_may_hold_quotes(tmp_path):
    path = tmp_path / "pairs.tsv"
    rows = [("score", "sentence1", "sentence2"), (5, 'the "cat" sat', "two\nlines"), (1, "a", "b")]
    with open(path, "w", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)
    data = load_sts("mine", path)
    assert (data.sentences1, data.sentences2) == (['the "cat" sat', "a"], ["two\nlines", "b"])


# --- separators of .csv files: one rule for all tables ---

SEPARATED = {
    "a comma in a header": "id;text;comment, if any\n7;one, two;\n",
    "a quoted comma": 'id;"text";"comment, if any"\n7;one, two;x\n',
    "a quoted line end": '"comment,\nif any";id;text\nx;7;one, two\n',
    "a semicolon in a quoted header": '"note; see, below",id,text\nx,7,"one, two"\n',
    "sep of Excel": "sep=;\nid;text\n7;one, two\n",
    "quoted sep, tabs": '"sep=\t"\r\nid\ttext\r\n7\tone, two\r\n',
    "spaces before quotes": '"id", "text"\n7, "one, two"\n',
    "spaces before quotes below a plain header": 'id;text\n7; "one, two"\n',
    "sep in capitals": "SEP=;\nid;text\n7;one, two\n",
    "bars in a header": 'id,text,a|b|c|d\n7,"one, two",x\n',
    "commas at both ends": ',id,text,\n,7,"one, two",\n',
    "sep that names itself": "sep=:\nid:text\n7:one, two\n",
    "sep below blank lines": "\n\nsep=:\nid:text\n7:one, two\n",
    "rows that end in one": "id;text\n7;one, two;\n",
    "rows that end in three": "id;text\n7;one, two;;;\n",
    "a header that ends in two": "id;text;;\n7;one, two;;\n",
    "bars": "id|text\n7|one, two\n",
    "blank lines": "\n\nid;text\n\n7;one, two\n",
    "empty rows around": ";\n ; \nid;text\n7;one, two\n;\n; \n;\n",
    "more commas than semicolons": "id;text;a,b,c,d,e\n7;one, two;x\n",
}


@pytest.mark.parametrize("content", SEPARATED.values(), ids=SEPARATED)
def test_the_separator_is_the_one_that_gives_the_wanted_column(tmp_path, content):
    path = write(tmp_path / "a.csv", content)
    assert texts_by_id(path) == {"7": "one, two"}
    assert read_queries(path) == {"7": "one, two"}
    assert read_sentences(path, column="text") == ["one, two"]
    labelled = load_labeled_texts(path, label_column="id")
    assert (labelled.texts, labelled.labels) == (["one, two"], ["7"])


def test_empty_rows_between_others_count(tmp_path):
    path = write(tmp_path / "a.csv", "text,note\none,x\n,\n , \ntwo,\n,\n")
    assert [(one.id, one.text) for one in read_documents(path)] == [("0", "one"), ("3", "two")]


def test_a_column_is_found_in_other_letters(tmp_path):
    for header, column in (("body", "BODY"), ("BODY", "body"), (" Body ", "bODY")):
        path = write(tmp_path / "a.csv", f"x,{header}\n1,a cat\n")
        assert read_sentences(path, column=column) == ["a cat"]
    path = write(tmp_path / "a.csv", "body,BODY\na cat,a dog\n")
    assert [read_sentences(path, column=name) for name in ("body", "BODY", "Body")] == [["a cat"], ["a dog"], ["a cat"]]


def test_a_chosen_column_decides_the_separator(tmp_path):
    path = write(tmp_path / "a.csv", "id;note, if any;body\n7;one;two\n")
    assert read_sentences(path, column="note, if any") == ["one"]
    assert read_sentences(path, column="body") == ["two"]
    with pytest.raises(
        ValueError, match=r"no column text: it has id, note, if any, body .*first row.*; column \(--col"
    ):
        read_sentences(path, column="text")
    for header in ("a;b;c;d,label,text", "a;text;c;d,label,text"):
        path = write(tmp_path / "b.csv", f"{header}\n1;2,x,one\n")
        assert load_labeled_texts(path).labels == ["x"], "two wanted columns, though semicolons give more"
    path = write(tmp_path / "c.csv", 'id;title;x,text\n1;2;3,"one, two"\n')
    assert read_sentences(path) == ["one, two"], "the column that is needed, not two that are optional"


def test_other_tables_take_the_same_separators(tmp_path):
    documents = write(tmp_path / "d.csv", "sep=;\nid;text;note, or so\n7;one;x\n")
    judged = write(tmp_path / "j.csv", "query;id;grade;note, or so\nask, then;7;1;;\n")
    assert load_judged(documents, judged).relevant == {"ask, then": {"7": 1.0}}
    pairs = write(tmp_path / "p.csv", '"score";"sentence1";"sentence2";"a, b"\n1;one, two;x;\n2;three;y;;\n')
    assert load_sts("mine", pairs).sentences1 == ["one, two", "three"]


def test_lines_are_numbered_below_a_line_that_names_the_separator(tmp_path):
    with pytest.raises(ValueError, match=r"a\.csv, line 4: a row must have at most 2 fields.* holds ':' in double"):
        read_sentences(write(tmp_path / "a.csv", "sep=:\nid:text\n1:one\n2:two:three\n"))


@pytest.mark.parametrize("header", ["sentence_id;body", "sentence_id|body", "body"])
def test_a_missing_column_is_named_with_what_was_found(tmp_path, header):
    found = ", ".join(header.replace("|", ";").split(";"))
    with pytest.raises(ValueError, match=rf"it has {found} \(its first row must be a header; commas, semicolons, tabs"):
        read_sentences(write(tmp_path / "a.csv", f"{header}\n1\n"))


def test_ids_are_not_taken_for_the_only_column_of_text(tmp_path):
    pd.DataFrame({"id": ["x", "y"], "body": [None, "one"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="has no column sentence or text"):
        read_documents(tmp_path / "a.parquet")


def test_a_table_is_read_without_torch(tmp_path):
    write(tmp_path / "a.csv", "id;text\n7;one\n")
    write(tmp_path / "a.md", "---\ntitle: Cards\n---\none\n")
    code = (
        "import sys; from st_extras.text import read_sentences; from st_extras.text.documents import read_documents;"
        "print(read_sentences('a.csv'), read_documents('a.md')[0].title);"
        "print({'torch', 'transformers', 'datasets'} & {*sys.modules})"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout == "['one'] Cards\nset()\n", ended.stderr
