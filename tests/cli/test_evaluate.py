"""``st-extras evaluate``: STS sets, labelled texts and search."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from st_extras.cli import evaluate as command
from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import LabeledTextEvaluator, compare_retrieval, load_retrieval, sts_evaluator
from st_extras.evaluation.paired import compare_labeled
from st_extras.modules import SIFPooling
from st_extras.samples import write_samples
from tests.fixtures import SENTENCES, build_encoder

LABELS = ("a", "b", "a", "b", "c", "c", "a", "b")


@pytest.fixture
def data(run):
    """labels.tsv, and faq, a collection in BEIR's layout, in the test's folder."""
    rows = [f"{label}\t{sentence}\n" for label, sentence in zip(LABELS, SENTENCES, strict=True)]
    Path("labels.tsv").write_text("label\ttext\n" + "".join(rows))
    Path("faq/qrels").mkdir(parents=True)
    Path("faq/corpus.csv").write_text("id,text\n" + "".join(f"d{i},{text}\n" for i, text in enumerate(SENTENCES)))
    Path("faq/queries.csv").write_text("id,text\na,the old cat\nb,a dog in rain\nc,soup\nd,not judged\n")
    Path("faq/qrels/dev.txt").write_text("a 0 d0 1\nb 0 d1 1\nb 0 d5 2\nc 0 d7 1\n")


def percent(metrics: dict[str, float]) -> Any:
    return pytest.approx({name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()})


@pytest.mark.parametrize(
    ("source", "more", "names", "setting"),
    [
        ("STS", ("--sets", "sts12", "--sets", "stsb"), ["sts12", "stsb_test"], "all"),
        ("STS", ("--setting", "wmean", "--sets", "sts13"), ["sts13"], "wmean"),
        ("TSV", (), "stsb_dev", "all"),
        ("TSV", ("--sets", "mine"), "mine", "all"),
    ],
)
def test_sets_of_a_folder_and_one_file_which_is_a_set_of_its_name(run, inputs, places, source, more, names, setting):
    code, out, err = run("evaluate", "ENC", "--sts", places.get(source, source), *more, "--json")
    assert code == 0, err
    metrics = sts_evaluator(names, places.get(source, inputs), setting=setting)(
        load_encoder(inputs / "encoder", device="cpu")
    )
    compared = {"difference": 0.0, "low": 0.0, "high": 0.0}
    assert json.loads(out) == {str(inputs / "encoder"): percent(metrics | compared)}


@pytest.mark.parametrize("given", [(), ("--sets", "sts12")])
def test_without_data_it_names_what_else_there_is(run, monkeypatch, given):
    monkeypatch.setattr("st_extras.evaluation.sts_data.load_sets", lambda *_, **__: Path("no connection").stat())
    code, _, err = run("evaluate", "ENC", *given, "--quiet")
    assert (code, "no connection" in err, err.count("--labeled FILE")) == (2, True, 0 if given else 2)


def test_an_encoder_with_modules_of_this_package(run, inputs):
    model = load_encoder(inputs / "encoder", device="cpu")
    SIFPooling.attach(model, corpus=SENTENCES).save("refined")
    words = ("--sts", "STS", "--sets", "sts12", "--json")
    code, _, err = run("evaluate", "refined", *words)
    assert code == 0, err


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_labelled_texts_and_the_difference_to_the_first_encoder(run, inputs, make_encoder):
    make_encoder(seed=5).save("other")
    words = ("evaluate", "ENC", "other", "--labeled", "labels.tsv")
    code, out, err = run(*words, "--json")
    assert code == 0, err
    first, other = json.loads(out).values()
    models = [(name, load_encoder(path, device="cpu")) for name, path in (("a", inputs / "encoder"), ("b", "other"))]
    expected = compare_labeled(LabeledTextEvaluator(SENTENCES, LABELS), models)
    assert (first, other) == (percent(expected["a"]), percent(expected["b"]))
    assert (first["difference"], other["difference"]) == (0, pytest.approx(other["mean"] - first["mean"]))
    _, out, err = run(*words)
    assert [line for line in err.splitlines() if line.startswith("Encoding")] == [
        f"Encoding with {path}" for path in (inputs / "encoder", "other")
    ]
    assert f"{other['low']:+.2f} to {other['high']:+.2f}" in out
    assert [value for value in other.values() if f"{value:.2f}".lstrip("-") not in out] == []


def test_what_is_printed_of_several_encoders(capsys):
    one = {"sts12_spearman_cosine": 0.5, "mean_spearman_cosine": 0.25, "difference": 0.0, "low": 0.0, "high": 0.0}
    other = one | {"mean_spearman_cosine": 0.375, "difference": 0.125, "low": -0.0625, "high": 0.31}
    command._print_scores({"a": one, "b": other, "c": one}, "Spearman x 100", "set", "mean", "pairs", False)
    title, *table, last = capsys.readouterr().out.splitlines()
    assert (title, last) == ("Spearman x 100", "difference: in mean, to a; interval: bootstrap over the pairs")
    rows = [[cell.strip() for cell in line[1:-1].replace("┃", "│").split("│")] for line in table if line[0] in "┃│"]
    assert rows == [
        ["set", "a", "b", "c"],
        ["sts12", "50.00", "50.00", "50.00"],
        ["mean", "25.00", "37.50", "25.00"],
        ["difference", "", "+12.50", "+0.00"],
        ["95 % interval", "", "-6.25 to +31.00", "+0.00 to +0.00"],
    ]


@pytest.mark.usefixtures("data")
def test_what_the_metrics_of_labelled_texts_mean(run):
    code, out, err = run("evaluate", "ENC", "--labeled", "labels.tsv")
    assert (code, "8 texts with 3 labels, x 100" in out, "difference" in out) == (0, True, False), err
    explained = {line.partition(": ")[0] for line in out.splitlines() if ": " in line}
    rows = {line.split("│")[1].strip(): line.split("│")[2] for line in out.splitlines() if line.startswith("│")}
    assert [cell for cell in rows.values() if not re.fullmatch(r" +-?\d+\.\d\d ", cell)] == []
    assert rows.keys() - explained == {"knn5_accuracy", "v_measure_std"}, "each is in the line of another row"


@pytest.mark.usefixtures("data")
def test_search(run, inputs, monkeypatch):
    words = ("evaluate", "ENC", "--retrieval", "faq", "--split", "dev")
    code, out, err = run(*words, "--query-prompt", "he ", "--document-prompt", "a ", "--json")
    assert code == 0, err
    models = [(str(inputs / "encoder"), load_encoder(inputs / "encoder", device="cpu"))]
    expected = compare_retrieval(load_retrieval("faq"), models, query_prompt="he ", document_prompt="a ")
    assert json.loads(out) == {name: percent(row) for name, row in expected.rows.items()}
    code, out, _ = run(*words, "--quiet")
    shown = ("3 queries, 8 documents", "recall@100", " + BM25 ", " and BM25, RRF ")
    assert (code, [text in out for text in shown]) == (0, [True] * 4)
    assert re.search(r"│ BM25 .* [+-]\d+\.\d\d \([+-]\d+\.\d\d to [+-]\d+\.\d\d\) │", out)


@pytest.fixture
def judged(run):
    """documents.jsonl with titles, and judged.tsv, one file of queries and judgements."""
    rows = [json.dumps({"id": f"d{i}", "text": text}) for i, text in enumerate(SENTENCES)]
    Path("documents.jsonl").write_text("\n".join(rows))
    rows = ["the old cat\td0\t1", "a dog in rain\td1\t1", "a dog in rain\td5\t2", "soup\td7\t1", "soup\td6\t0"]
    Path("judged.tsv").write_text("query\tid\tgrade\n" + "\n".join(rows))


@pytest.mark.usefixtures("data", "judged")
def test_one_file_of_judged_queries_beside_bm25(run, inputs):
    """The figures are those of the same collection in BEIR's layout; differences are to BM25, which comes first."""
    words = ("evaluate", "ENC", "--json", "--retrieval")
    code, out, err = run(*words, "documents.jsonl", "--judged", "judged.tsv", "--baseline", "bm25", "--ranks", "r.tsv")
    assert code == 0, err
    found, beir = json.loads(out), json.loads(run(*words, "faq", "--split", "dev")[1])
    encoder = str(inputs / "encoder")
    assert list(found) == ["BM25", encoder, f"{encoder} + BM25", f"{encoder} and BM25, RRF"]
    for name, row in found.items():
        assert row["ndcg@10"] == pytest.approx(beir[name]["ndcg@10"])
        assert row["difference"] == pytest.approx(row["ndcg@10"] - found["BM25"]["ndcg@10"])
    assert b"\r" not in Path("r.tsv").read_bytes()
    header, *rows = (line.split("\t") for line in Path("r.tsv").read_text().splitlines())
    assert header == ["rank of the first relevant document of", *found]
    assert run(*words, "documents.jsonl", "--judged", "judged.tsv", "--ranks", "r.tsv")[0] == 0  # in its place
    assert [row[0] for row in rows] == ["the old cat", "a dog in rain", "soup"]
    for column, name in enumerate(header[1:], start=1):
        reciprocal = [1 / int(row[column]) if row[column] else 0 for row in rows]
        assert found[name]["mrr@10"] == pytest.approx(100 * sum(reciprocal) / 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query\tgrade\nsoup\t1", " or pid or id: it has query, grade"),
        ("soup\td7\t1", "must have a header, such as query and id, and rows below it, got no row."),
        ("query\tid\nsoup\t", "the id of a document is missing, got ''"),
        ("query\tid\tgrade\nsoup\td7\tmuch", "a grade must be a finite number"),
        ("query\tid\tgrade\nsoup\td7\t1\nsoup\td7\t2", "is judged twice"),
        ("query\tid\nsoup\td77", "judged.tsv: "),
    ],
)
@pytest.mark.usefixtures("judged")
def test_judgements_that_cannot_be_used(run, text, message):
    Path("judged.tsv").write_text(text)
    code, _, err = run("evaluate", "ENC", "--retrieval", "documents.jsonl", "--judged", "judged.tsv")
    assert (code, message in err) == (2, True), err


def test_one_query_has_no_interval(run):
    Path("documents.jsonl").write_text('{"id": "a", "text": "a cat"}\n{"id": "b", "text": "a dog"}\n')
    Path("judged.tsv").write_text("query\tid\nthe cat\ta\n")
    words = ("evaluate", "ENC", "--retrieval", "documents.jsonl", "--judged", "judged.tsv")
    code, out, err = run(*words)
    assert (code, "(one query)" in out, "nan" in out) == (0, True, False), err
    assert json.loads(run(*words, "--json")[1])["BM25"]["low"] is None


@pytest.mark.parametrize("data", [("--sts", "STS"), ("--labeled", "labels.tsv"), ("--retrieval", "search")])
def test_the_report_of_one_encoder_is_part_of_that_of_several(run, tmp_path, data):
    write_samples(Path("samples"))
    shutil.copytree("samples/search", "search")
    rows = [f"{i % 3}\t{text} {i}\n" for i, text in enumerate(SENTENCES * 3)]
    Path("labels.tsv").write_text("label\ttext\n" + "".join(rows))
    build_encoder(tmp_path / "other", seed=3)
    one, several = (
        json.loads(run("evaluate", *encoders, *data, "--json")[1])
        for encoders in (["ENC"], ["ENC", tmp_path / "other"])
    )
    assert {name: several[name] for name in one} == one
    if "--retrieval" not in data:
        assert {frozenset(metrics) for metrics in several.values()} == {frozenset(next(iter(one.values())))}
