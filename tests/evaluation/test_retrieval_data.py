"""Search collections: every kind of file gives the same task; what is wrong is named with its line."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_extras.evaluation import RetrievalTask, load_judged, load_retrieval
from tests.helpers import write

TASK = RetrievalTask(
    queries={"q1": 'gone, "lost"', "2": "loan", "q3": "none"},
    documents={"d1": "Cards A lost card.", "7": "A loan."},
    relevant={"q1": {"d1": 1.0}, "2": {"7": 2.0, "d1": 1.0}},
)
JUDGED = [("q1", "d1", 1), ("q1", "7", 0), ("2", "7", 2), ("2", "d1", 1)]


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CORPUS = lines({"_id": "d1", "title": "Cards", "text": "A lost card. "}, {"_id": 7, "title": "", "text": "A loan."})
QUERIES = lines({"_id": "q1", "text": 'gone, "lost"'}, {"_id": "2", "text": "loan"}, {"_id": "q3", "text": "none"})
QRELS = "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{g}\n" for q, d, g in JUDGED)
BEIR = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS}


def fill(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        write(folder / name, text)
    return folder


CSV = {
    "corpus.csv": "doc_id,title,contents\nd1,Cards,A lost card.\n7,,A loan.\n",
    "queries.csv.gz": 'qid,sentence\nq1,"gone, ""lost"""\n2,loan\nq3,none\n',
    "qrels.csv": "qid,docid,grade,by\n" + "".join(f"{q},{d},{g},me\n" for q, d, g in JUDGED),
    "qrels/.hidden": "x",
    "corpus.md": "x",
}


def test_tables_give_the_same_task(tmp_path):
    assert load_retrieval(fill(tmp_path / "beir", BEIR)) == TASK == load_retrieval(fill(tmp_path / "csv", CSV))


def test_a_collection_may_be_parquet_files(tmp_path):
    tables = {
        "corpus": [{"_id": key, "text": text} for key, text in TASK.documents.items()],
        "queries": [{"_id": key, "text": text} for key, text in TASK.queries.items()],
        "qrels/test": [{"query-id": q, "corpus-id": d, "score": float(g)} for q, d, g in JUDGED],
    }
    (tmp_path / "qrels").mkdir()
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    assert load_retrieval(tmp_path) == TASK


def test_a_split_is_chosen_by_its_name(tmp_path):
    fill(tmp_path, {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/dev.tsv.gz": QRELS})
    assert load_retrieval(tmp_path) == TASK == load_retrieval(tmp_path, "dev")
    with pytest.raises(ValueError, match=r"must hold the judgements qrels/test\.tsv .*got dev: name one"):
        load_retrieval(tmp_path, "test")
    fill(tmp_path, {"qrels/train.tsv": "query-id\tcorpus-id\nq3\t7\n"})
    assert load_retrieval(tmp_path, split="train").relevant == {"q3": {"7": 1.0}}
    for split, wanted in ((None, "test"), ("other", "other")):
        told = rf"must hold the judgements qrels/{wanted}\.tsv .*got dev, train: name one of these as split\.$"
        with pytest.raises(ValueError, match=told):
            load_retrieval(tmp_path, split)
    with pytest.raises(ValueError, match=r"^split must be a str or None"):
        load_retrieval(tmp_path, split=3)
    fill(tmp_path, {"qrels/test.tsv": QRELS})
    assert load_retrieval(tmp_path) == TASK
    for folder in ("", tmp_path / "none", tmp_path / "corpus.jsonl"):
        with pytest.raises(ValueError, match=r"^There is no folder of a search collection "):
            load_retrieval(folder)


def test_judged_documents_stand_in_several_places(tmp_path):
    fill(
        tmp_path,
        {"a.jsonl": CORPUS, "notes/a.txt": "one\ntwo", "notes/b.txt": "three", "j.tsv": "query\tid\nloan\td1\n"},
    )
    sources = [tmp_path / "a.jsonl", tmp_path / "notes"]
    task = load_judged(sources, tmp_path / "j.tsv", whole_files=True)
    first = load_judged(sources[0], tmp_path / "j.tsv").documents
    notes = {str(tmp_path / "notes/a.txt"): "one\ntwo", str(tmp_path / "notes/b.txt"): "three"}
    assert (task.documents, task.relevant) == (first | notes, {"loan": {"d1": 1.0}})
    with pytest.raises(ValueError, match="whole_files"):
        load_judged(sources, tmp_path / "j.tsv")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("qrels/test.tsv", QRELS + "q1\t\t0\n", "line 6: the id of a document"),
        ("qrels/test.tsv", QRELS + "q1\td1\tinf\n", "line 6: a grade"),
        ("qrels/test.tsv", QRELS + "q1\td1\t9\n", "is judged twice"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tstars\nq1\td1\t0\n", r"test\.tsv has no column score"),
        ("qrels/test.tsv", "", r"test\.tsv: relevant must"),
        ("queries.jsonl", '{"text": "one"}\n', "line 1: each query must have an id"),
        ("corpus.jsonl", '{"text": "one"}\n', "line 1: each document must have an id"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, text, message):
    fill(tmp_path, BEIR | {name: text})
    with pytest.raises(ValueError, match=message):
        load_retrieval(tmp_path)


# --- judged queries of your own ---


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("j.tsv", "query\tid\tgrade\nlost card \td1\t2\nlost card\t7\t0\na loan\t7\t1\n"),
        ("j.txt", "id\tquery\tgrade\nd1\tlost card\t2\n7\ta loan\t1\n"),
        ("j.jsonl", '{"query": "lost card", "id": "d1", "grade": 2}\n{"query": "a loan", "id": 7}\n'),
        ("j.tsv", "Question\tcorpus-id\tScore\nlost card\td1\t2\nlost card\t7\t0\na loan\t7\t1\n"),
        ("j.csv", "id,query,doc_id,relevance\n1,lost card,d1,2\n2,lost card,7,0\n3,a loan,7,1\n"),
    ],
)
def test_judged_queries_are_one_table(tmp_path, name, text):
    fill(tmp_path, {"corpus.jsonl": CORPUS, name: text})
    task = load_judged(tmp_path / "corpus.jsonl", tmp_path / name)
    assert task.relevant == {"lost card": {"d1": 2.0}, "a loan": {"7": 1.0}}
    assert task.queries == {"lost card": "lost card", "a loan": "a loan"}
    assert task.documents.keys() == {"d1", "7"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("query\tdocument\na\td1\n", r"j\.tsv has no column .* or id: it has query, document"),
        ("query\tid\na\td1\n \td1\n", r"j\.tsv, line 3: a query must have text"),
        ("query\tid\na\t\n", r"j\.tsv, line 2: the id of a document"),
        ("query\tid\tgrade\na\td1\thigh\n", r"j\.tsv, line 2: a grade must"),
        ("query\tid\tgrade\na\td1\t1\na\td1\t2\n", r"j\.tsv, line 3: 'd1' is judged twice for 'a', by 1 and by 2"),
        ("query\tid\na\td9\n", r"j\.tsv: relevant must"),
        ("query\tid\n", r"j\.tsv must have a header, such as query and id, and rows below it, got no row\."),
    ],
)
def test_what_is_wrong_in_judged_queries_is_named(tmp_path, rows, message):
    fill(tmp_path, {"corpus.jsonl": CORPUS, "j.tsv": rows})
    with pytest.raises(ValueError, match=message):
        load_judged(tmp_path / "corpus.jsonl", tmp_path / "j.tsv")


MISSING = {
    "query-id\tcorpus-id\tscore\na\td1\t1\na d1 1\n": "3: the id of a document is missing, as its row has 'a d1 1' "
    "alone: fill it, or separate the fields as in the first line",
    "query-id\tcorpus-id\tscore\na,d1,1\n": "2: the id of a document is missing, as its row has 'a,d1,1' alone",
    "query-id\tcorpus-id\na d1\n": "2: the id of a document is missing, as its row has 'a d1' alone",
    "a\t0\td1\t1\na 0 d1 1\n": "2: the id of a document is missing, as its row has 'a 0 d1 1' alone",
    "query-id\tcorpus-id\tscore\na\t\t1\n": "2: the id of a document is missing, got '': ",
    "query-id\tcorpus-id\tscore\n \td1\t1\n": "2: the id of a query is missing, got ' ': ",
    "query-id\tcorpus-id\tscore\na\td1\n": "2: a grade is missing, got None: fill it, or leave its row out",
    "query-id\tcorpus-id\tscore\na\td1\t\n": "2: a grade is missing, got ''",
    "a 0 d1 1\na 0 d1\n": "2: a grade is missing, got None",
}


@pytest.mark.parametrize("rows", MISSING)
def test_a_missing_cell_of_a_judgement_is_named_as_missing(tmp_path, rows):
    fill(tmp_path, BEIR | {"qrels/test.tsv": rows})
    with pytest.raises(ValueError, match=rf"test\.tsv, line {MISSING[rows]}"):
        load_retrieval(tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "query\tid\tgrade\nlost card d1 1\n",
            "2: the id of a document is missing, as its row has 'lost card d1 1' alone",
        ),
        ("query\tid\tgrade\nlost card\t\t1\n", "2: the id of a document is missing, got ''"),
        ("query\tid\tgrade\nlost card\td1\t\n", "2: a grade is missing"),
    ],
)
def test_a_missing_cell_of_a_judged_query_is_named_as_missing(tmp_path, rows, message):
    fill(tmp_path, {"corpus.jsonl": CORPUS, "j.tsv": rows})
    with pytest.raises(ValueError, match=rf"j\.tsv, line {message}"):
        load_judged(tmp_path / "corpus.jsonl", tmp_path / "j.tsv")


BIG = 2**64 - 1


@pytest.mark.parametrize("big", [2**63, BIG, 10**30])
def test_ids_beyond_64_bits_are_texts_where_files_are_read(tmp_path, big):
    files = {
        "corpus.jsonl": f'{{"_id": {big}, "text": "one"}}\n', "queries.jsonl": f'{{"_id": {-big}, "text": "two"}}\n',
        "qrels/test.jsonl": f'{{"query-id": {-big}, "corpus-id": {big}, "score": 1}}\n',
    }  # fmt: skip
    fill(tmp_path, files)
    task = RetrievalTask({str(-big): "two"}, {str(big): "one"}, {str(-big): {str(big): 1}})
    assert load_retrieval(tmp_path) == task
    fill(tmp_path, {"j.jsonl": f'{{"query": "two", "id": {big}}}\n'})
    assert load_judged(tmp_path / "corpus.jsonl", tmp_path / "j.jsonl").relevant == {"two": {str(big): 1}}
    assert RetrievalTask({-big: "two"}, {big: "one"}, {-big: {big}}) == task


def test_unsigned_ids_of_parquet_are_texts(tmp_path):
    pq.write_table(
        pa.table({"_id": pa.array([BIG, 7], pa.uint64()), "text": ["one", "two"]}), tmp_path / "corpus.parquet"
    )
    pq.write_table(pa.table({"_id": pa.array([BIG], pa.uint64()), "text": ["two"]}), tmp_path / "queries.parquet")
    fill(tmp_path, {"qrels/test.tsv": f"query-id\tcorpus-id\tscore\n{BIG}\t{BIG}\t1\n"})
    assert load_retrieval(tmp_path) == RetrievalTask({BIG: "two"}, {BIG: "one", 7: "two"}, {BIG: [BIG]})


GRADES = ("score", "relevance", "grade", "label", "rating", "rel", "gain", "judgement", "judgment", "relevancy", "qrel")


@pytest.mark.parametrize("name", [*GRADES, " Rating "])
def test_usual_names_of_grades_are_read_and_0_is_not_relevant(tmp_path, name):
    fill(tmp_path, BEIR | {"qrels/test.tsv": QRELS.replace("score", name)})
    assert load_retrieval(tmp_path) == TASK
    for end, sign in (("tsv", "\t"), ("csv", ";")):
        rows = [("query", "id", name), ("lost card", "d1", "2"), ("lost card", "7", "0"), ("a loan", "7", "1")]
        judged = write(tmp_path / f"j.{end}", "".join(sign.join(row) + "\n" for row in rows))
        assert load_judged(tmp_path / "corpus.jsonl", judged).relevant == {
            "lost card": {"d1": 2.0},
            "a loan": {"7": 1.0},
        }


@pytest.mark.parametrize("name", ["stars", "title", "useful", "Bewertung"])
def test_a_third_column_of_another_name_is_refused(tmp_path, name):
    fill(tmp_path, BEIR | {"qrels/test.tsv": QRELS.replace("score", name), "j.tsv": f"query\tid\t{name}\na\td1\t0\n"})
    fill(tmp_path, {"j.jsonl": f'{{"query": "a", "id": 7}}\n{{"query": "b", "id": "d1", "{name}": 0}}\n'})
    told = rf"no column score or .*: it has .*, {name}.*; name the column of grades so, or leave all but two"
    with pytest.raises(ValueError, match=rf"test\.tsv has {told}"):
        load_retrieval(tmp_path)
    with pytest.raises(ValueError, match=rf"j\.tsv has {told}"):
        load_judged(tmp_path / "corpus.jsonl", tmp_path / "j.tsv")
    with pytest.raises(ValueError, match=rf"j\.jsonl, line 2 has {told}"):
        load_judged(tmp_path / "corpus.jsonl", tmp_path / "j.jsonl")


def test_columns_without_a_name_are_no_third_one(tmp_path):
    fill(tmp_path, {"corpus.jsonl": CORPUS, "j.csv": "query;id;;\na;d1;;\n", "i.csv": "id,query,\n7,a,\n"})
    assert load_judged(tmp_path / "corpus.jsonl", tmp_path / "j.csv").relevant == {"a": {"d1": 1.0}}
    assert load_judged(tmp_path / "corpus.jsonl", tmp_path / "i.csv").relevant == {"a": {"7": 1.0}}


# --- judgements ---


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("qrels/test.txt", "{q} 0\t{d} {g}"), ("qrels/test.tsv", "{q} 0 {d} {g:.1f}"),
        ("qrels/test.csv", "{q},0,{d},{g}"), ("qrels/test.tsv", "{q}\t{d}\t{g}"), ("qrels.qrel", "\n \n{q} 0 {d} {g}"),
        ("qrels.csv", "query_id;corpus_id;relevance\n{q};{d};{g}"), ("qrels.csv", "qid|docid|rel\n{q}|{d}|{g}"),
        ("qrels.csv", "{q};{d};{g}"), ("qrels.tsv", "query\tq0\tdocid\trel\n{q}\tQ0\t{d}\t{g}"),
        ("qrels.csv", "qid,docno,label\n{q},{d},{g}"), ("qrels.csv", "q_id,doc_id,score\n{q},{d},{g}"),
        ("qrels.tsv", "query-id\tcorpus-id\tjudged by\tscore\n{q}\t{d}\tme\t{g}"),
        ("qrels.csv", "topic,q0,docid,relevance\n{q},0,{d},{g}"), ("qrels.csv", "qid, docid, gain\n{q}, {d}, {g}"),
        ("qrels/test.csv", "{q} 0,1 {d} {g}"), ("qrels.tsv", "query-id\tcorpus-id\tscore\n{q} \t{d} \t{g}"),
        ("qrels.jsonl", '{{"_id": 5, "query_id": "{q}", "doc_id": "{d}", "label": {g}}}'),
    ],
)  # fmt: skip
def test_judgements_of_every_form_are_read(tmp_path, name, form):
    header, _, form = form.rpartition("\n")
    rows = [form.format(q=q, d=d, g=-1 if g == 0 and "0 {d}" in form else g) for q, d, g in JUDGED]
    files = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, name: "\n".join([header, *rows])}
    assert load_retrieval(fill(tmp_path, files)) == TASK


@pytest.mark.parametrize(
    ("header", "between"),
    [
        ("query-id corpus-id score", "\t"), ("query-id  corpus-id   score ", "\t"), ("query-id corpus-id score", " "),
        ("qid   cid     score", "\t"), ("qid 0 docid rel", " "), ("qid iteration docid rel", "\t"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["qrels/test.tsv", "qrels.txt", "qrels/test.csv", "qrels/test.qrels"])
def test_a_header_need_not_be_separated_like_its_rows(tmp_path, header, between, name):
    middle = ["0"] if "docid rel" in header else []
    rows = [between.join([q, *middle, d, str(g)]) for q, d, g in JUDGED]
    files = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES}
    for before in ("", "\n \n"):
        assert load_retrieval(fill(tmp_path, files | {name: before + "\n".join([header, *rows])})) == TASK


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (["q1\td1\tpublication\t1", "q1\t7\tpublication\t0"], "'publication' is judged twice"),
        (["q1 d1 1 0", "2 7 2 0"], "relevant must hold at least one query"),
        (["q1\td1\t1\t3", "2\t7\t2\t4"], "relevant must hold ids .* 2 of 2"),
        (["q1\td9\t1"], "relevant must hold ids .* 1 of 1"),
        (["q1\td1\t1", "q1\td1\tmany"], "line 2: a grade must be"),
    ],
)
def test_what_the_columns_without_a_header_were_taken_for_is_named(tmp_path, rows, found):
    fill(tmp_path, {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": "\n".join(rows)})
    columns = "query, iteration, document and grade" if len(rows[0].split()) == 4 else "query, document and grade"
    with pytest.raises(
        ValueError, match=rf"test\.tsv.*{found}.* \(its columns, which no header names, were read as {columns}\)"
    ):
        load_retrieval(tmp_path)


def test_judgements_of_what_is_not_there_are_left_out_and_counted(tmp_path, caplog):
    for missing, named in (("q9\td1\t1\n", "q9"), ("q1\td9\t1\n", "d9"), ("q8\td8\t1\n", "q8")):
        fill(tmp_path, BEIR | {"qrels/test.tsv": QRELS + missing})
        caplog.clear()
        assert load_retrieval(tmp_path) == TASK
        (message,) = caplog.messages
        assert f"1 of 4, such as '{named}'" in message
    most = "".join(f"q1\td9{i}\t1\n" for i in range(9))
    fill(tmp_path, {"qrels/test.tsv": "query-id\tcorpus-id\tscore\n" + most})
    with pytest.raises(ValueError, match=r"relevant .* 9 of 9 .* 'd90': a query is 'q1', a document 'd1'\.$"):
        load_retrieval(tmp_path)


def test_a_judgement_that_stands_twice_counts_once_and_half_of_them_may_be_of_what_is_not_there(tmp_path, caplog):
    fill(tmp_path, BEIR | {"qrels/test.tsv": QRELS + "q1\td1\t1.0\n" + "".join(f"q{i}\td1\t1\n" for i in (7, 8, 9))})
    assert load_retrieval(tmp_path) == TASK
    assert "3 of 6" in caplog.text
    fill(tmp_path, {"j.tsv": "query\tid\nloan\td1\nloan\td1\nx\td9\n"})
    assert load_judged(tmp_path / "corpus.jsonl", tmp_path / "j.tsv").relevant == {"loan": {"d1": 1.0}}


def test_missing_files_are_named(tmp_path):
    for name in ("corpus", "queries", "qrels"):
        folder = fill(tmp_path / name, {path: text for path, text in BEIR.items() if not path.startswith(name)})
        with pytest.raises(ValueError, match=rf"must hold .*{name}.* got none"):
            load_retrieval(folder)


# --- tasks made in Python ---


@pytest.mark.parametrize(
    "relevant",
    [
        {"1": {"a"}, "2": {"b", "3"}},
        {"1": "a", "2": ("b", 3)},
        {1: {"a": 1, "b": 0}, 2: {"b": True, 3: 1.0}},
        {1: ["a"], 2: {"b": 1, "3": 1, "a": -1}, "7": {}},
    ],
)
def test_the_shapes_of_other_libraries_are_taken(relevant):
    task = RetrievalTask({1: "one", "2": "two"}, {"a": "A", "b": "B", 3: "C"}, relevant)
    assert task.relevant == {"1": {"a": 1.0}, "2": {"b": 1.0, "3": 1.0}}
    assert (list(task.queries), list(task.documents)) == (["1", "2"], ["a", "b", "3"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": ["one"]}, "queries must"), ({"relevant": {"1": 2.5}}, r"relevant\['1'\]"),
        ({"relevant": {"1": {"a": 10**400}}}, r"relevant\['1'\]\['a'\]"),
        ({"relevant": {"1": ["c", "d", "a"]}}, "relevant .* 2 of 3 .* 'c': "),
        ({"relevant": {"1": {"a": 0}}}, "relevant must"), ({"queries": {"1": "one", 1: "two"}}, "queries .*'1' twice"),
        ({"queries": {None: "one"}}, "queries: the id"), ({"documents": {"a": 3}}, r"documents\['a'\]"),
    ],
)  # fmt: skip
def test_what_is_no_task_is_refused(change, message):
    good = {"queries": {"1": "one"}, "documents": {"a": "A"}, "relevant": {"1": {"a": 1.0}}}
    with pytest.raises(ValueError, match=rf"^{message}"):
        RetrievalTask(**(good | change))


@pytest.mark.parametrize("name", ["corpus.csv", "queries.csv"])
def test_no_option_is_named_where_there_is_none(tmp_path, name):
    fill(tmp_path, {path: text for path, text in BEIR.items() if not path.startswith(name[:6])})
    write(tmp_path / name, "id,body,by\n1,one,me\n")
    with pytest.raises(ValueError, match=rf"{name} has no column .* separates? .*fields\)\.$"):
        load_retrieval(tmp_path)
