"""Search collections: every kind of file gives the same task; what is wrong is named with its line."""

import json
from pathlib import Path

import pytest

from st_extras.evaluation import RetrievalTask, load_retrieval
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
    "corpus.csv": "id,title,text\nd1,Cards,A lost card.\n7,,A loan.\n",
    "queries.csv": 'qid,text\nq1,"gone, ""lost"""\n2,loan\nq3,none\n',
    "qrels.csv": "qid,docid,grade,by\n" + "".join(f"{q},{d},{g},me\n" for q, d, g in JUDGED),
}
TSV = {
    "corpus.tsv": "doc_id\ttitle\tcontents\nd1\tCards\tA lost card.\n7\t\tA loan.\n",
    "queries.tsv": 'query_id\tsentence\nq1\tgone, "lost"\n2\tloan\nq3\tnone\n',
}
TREC = "".join(f"{q} 0\t{d} {g}\n" for q, d, g in JUDGED)


@pytest.mark.parametrize(
    "files",
    [
        BEIR,
        {f"{name}.gz": text for name, text in BEIR.items()},
        CSV,
        {f"{name}.gz": text for name, text in CSV.items()},
        TSV | {"qrels.tsv": QRELS},
        TSV | {"qrels/test.txt": TREC + "\n", "qrels/.hidden": "x", "qrels/train.tsv": "x"},
        TSV | {"qrels.qrel": TREC.replace("q1 0\t7 0", "q1 0\t7 -1"), "corpus.md": "x"},
        TSV | {"qrels.jsonl": lines(*({"query_id": q, "doc_id": d, "label": g} for q, d, g in JUDGED))},
    ],
    ids=["beir", "beir.gz", "csv", "csv.gz", "tsv", "trec", "trec with -1", "jsonl"],
)
def test_every_kind_of_file_gives_the_same_task(tmp_path, files):
    assert load_retrieval(fill(tmp_path, files)) == TASK == load_retrieval(str(tmp_path))


def test_judgements_without_a_grade_are_all_relevant(tmp_path):
    fill(tmp_path, BEIR | {"qrels/test.tsv": "query-id\tcorpus-id\nq1\td1\n"})
    assert load_retrieval(tmp_path).relevant == {"q1": {"d1": 1.0}}


def test_a_split_is_chosen_by_its_name(tmp_path):
    fill(tmp_path, {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/dev.tsv.gz": QRELS})
    assert load_retrieval(tmp_path) == TASK == load_retrieval(tmp_path, "dev")
    fill(tmp_path, {"qrels/train.tsv": "query-id\tcorpus-id\nq3\t7\n"})
    assert load_retrieval(tmp_path, split="train").relevant == {"q3": {"7": 1.0}}
    message = r"must hold the judgements qrels/test\.tsv or qrels\.tsv, got dev, train: name one of these as split\.$"
    with pytest.raises(ValueError, match=message):
        load_retrieval(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("qrels/test.tsv", QRELS + "q9\td1\t1\n", r"test\.tsv, line 6: there is no query with the id 'q9'"),
        ("qrels/test.tsv", QRELS + "q1\td9\t0\n", r"test\.tsv, line 6: there is no document with the id 'd9'"),
        ("qrels/test.tsv", QRELS + "q1\t\t0\n", r"line 6: the id of a document must be .*, got ''"),
        ("qrels/test.tsv", QRELS + "q1\n", r"line 6: the id of a document must be a string .*, got None"),
        ("qrels/test.tsv", QRELS + "q1\td1\thigh\n", r"line 6: a grade must be a finite number, got 'high'"),
        ("qrels/test.tsv", QRELS + "q1\td1\tinf\n", r"line 6: a grade must be a finite number, got 'inf'"),
        ("qrels/test.tsv", QRELS + QRELS[QRELS.index("\n") + 1 :].replace("1\n", "9\n"), "is judged twice for .* by 9"),
        ("qrels/test.tsv", "query-id\tcorpus-id\trating\nq1\td1\t0\n", "line 2 has no column score or .*, rating"),
        ("qrels/test.tsv", "q1 0 d1 1\nq1 0 d1 1 9\n", "line 2: a grade must be a finite number, got '1 9"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t0\n", "names no relevant document for any query"),
        ("qrels/test.tsv", "", "names no relevant document for any query"),
        ("qrels/test.tsv", "query\tdocument\nq1\td1\n", "line 2 has no column query-id or .*: it has query, document"),
        ("qrels/test.tsv", "q1 0 d1 1\nq1 0\n", "line 2: the id of a document must be a string .*, got None"),
        ("corpus.jsonl", CORPUS + lines({"_id": "e", "text": None}), "line 3: expected a sentence, got None"),
        ("corpus.jsonl", CORPUS + lines({"_id": "7", "text": "x"}), r"jsonl, line 3: the id '7' stands twice"),
        ("corpus.jsonl", CORPUS + lines({"_id": "e"}), "line 3 has no column sentence or text .*: it has _id"),
        ("corpus.jsonl", CORPUS + lines({"text": "x"}), "line 3: each document must have an id, .*_id"),
        ("corpus.jsonl", lines({"text": "x"}), "line 1: each document must have an id, .*_id"),
        ("corpus.jsonl", CORPUS + '"x"\n', "line 3: each document must have an id"),
        ("corpus.jsonl", "", "corpus.jsonl' holds no document"),
        ("queries.csv", "id,text\n", r"must hold one queries file .*, got queries\.csv and queries\.jsonl"),
        ("qrels/test.csv", "id,id\n", r"test\.csv must name each column once, got id, id"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, text, message):
    files = {key: value for key, value in BEIR.items() if not (key.startswith("qrels") and name.startswith("qrels"))}
    fill(tmp_path, files | {name: text})
    with pytest.raises(ValueError, match=rf"{message}.*\.$"):
        load_retrieval(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"^There is no folder of a search collection '.*nowhere'\.$"):
        load_retrieval(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"^There is no folder of a search collection ''\.$"):
        load_retrieval("")
    with pytest.raises(ValueError, match=r"must hold one corpus file \(.*also \.gz\), got none\.$"):
        load_retrieval(tmp_path)
    fill(tmp_path, {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES})
    with pytest.raises(ValueError, match=r"must hold the judgements qrels/test\.tsv or qrels\.tsv, got none\.$"):
        load_retrieval(tmp_path)
    with pytest.raises(ValueError, match="split must be a str or None, got 3"):
        load_retrieval(tmp_path, 3)  # type: ignore[arg-type]
