"""``st-extras evaluate``: STS sets, labelled texts, search, and tasks of MTEB."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import LabeledTextEvaluator, compare_retrieval, load_retrieval, mteb, sts_evaluator
from st_extras.evaluation.paired import compare_labeled
from tests.fixtures import SENTENCES

LABELS = ("a", "b", "a", "b", "c", "c", "a", "b")


@pytest.fixture
def data(run):
    """labels.tsv, and faq, a collection in BEIR's layout, in the test's folder."""
    rows = [f"{label}\t{sentence}\n" for label, sentence in zip(LABELS, SENTENCES, strict=True)]
    Path("labels.tsv").write_text("label\ttext\n" + "".join(rows))
    Path("faq/qrels").mkdir(parents=True)
    Path("faq/corpus.csv").write_text("id,text\n" + "".join(f"d{i},{text}\n" for i, text in enumerate(SENTENCES)))
    Path("faq/queries.csv").write_text("id,text\na,the old cat\nb,a dog in rain\nc,soup\n")
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
    metrics = sts_evaluator(names, places.get(source, inputs), setting=setting)
    assert json.loads(out) == percent(metrics(load_encoder(inputs / "encoder", device="cpu")))


@pytest.mark.parametrize("given", [(), ("--sets", "sts12")])
def test_without_data_it_names_what_else_there_is(run, monkeypatch, given):
    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("no connection")

    monkeypatch.setattr("st_extras.evaluation.sts_evaluator", unreachable)
    code, _, err = run("evaluate", "ENC", *given, "--quiet")
    assert (code != 0, "no connection" in err) == (True, True)
    assert err.count("--labeled FILE") == (0 if given else 2)


def test_a_refined_encoder_of_the_hub(run, inputs, monkeypatch):
    Path("modules.json").write_text('[{"type": "st_extras.modules.sif.SIFPooling"}]')
    monkeypatch.setattr("st_extras.encoder_names.find_encoder", str)
    monkeypatch.setattr("st_extras.cli.evaluate.find_encoder", str)
    loaded = load_encoder(inputs / "encoder", device="cpu")
    monkeypatch.setattr("sentence_transformers.util.load_file_path", lambda name, file: file)
    monkeypatch.setattr("st_extras.modules.load", lambda name: loaded if name == "me/refined" else None)
    assert run("evaluate", "me/refined", "--sts", "STS", "--sets", "sts12", "--json")[0] == 0


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("words", [("--sts", "STS"), ("--labeled", "labels.tsv"), ("--retrieval", "faq")])
def test_80_columns_show_every_score_of_encoders_with_long_paths(run, inputs, words):
    paths = [f"a/{'folder-of-many-letters/' * 3}encoder-{number}" for number in (1, 2)]
    for path in paths:
        shutil.copytree(inputs / "encoder", path)
    found = json.loads(run("evaluate", *paths, *words, "--json")[1])
    code, out, err = run("evaluate", *paths, *words, columns=80)
    assert [line for line in err.splitlines() if line.startswith("Encoding")] == [f"Encoding with {p}" for p in paths]
    table = [line for line in out.splitlines() if line[:1] in "┏┃│└"]
    assert (code, max(map(len, table)) <= 80) == (0, True)
    for row in found.values():
        assert [value for value in row.values() if f"{value:.2f}".lstrip("-") not in out] == []
    assert all(f"encoder-{number}: {path}" in out for number, path in enumerate(paths, start=1))


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
    out = run(*words, "--quiet")[1]
    assert f"{other['low']:+.2f} to {other['high']:+.2f}" in out
    shown = ("8 texts with 3 labels, x 100", " metric ", "map_at_r: mean average precision", "difference: in mean, to")
    assert [text in out for text in shown] == [True] * 4


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("prompts", [{}, {"query_prompt": "he ", "document_prompt": "a "}])
def test_search(run, inputs, prompts):
    words = [word for name, text in prompts.items() for word in (f"--{name.replace('_', '-')}", text)]
    code, out, err = run("evaluate", "ENC", "--retrieval", "faq", "--split", "dev", *words, "--json")
    assert code == 0, err
    models = [(str(inputs / "encoder"), load_encoder(inputs / "encoder", device="cpu"))]
    expected = compare_retrieval(load_retrieval("faq"), models, **prompts)
    assert {name: pytest.approx(row) for name, row in json.loads(out).items()} == {
        name: {key: 100 * value for key, value in row.items()} for name, row in expected.items()
    }


@pytest.mark.usefixtures("data")
def test_the_table_of_a_search(run, monkeypatch):
    code, out, _ = run("evaluate", "ENC", "--retrieval", "faq", "--quiet")
    shown = ("Search x 100, 3 queries, 8 documents", "recall@100", "100.00", " + BM25 ", " and BM25, RRF ", "│ BM25 ")
    assert (code, [text in out for text in shown]) == (0, [True] * 6)
    assert re.search(r"│ BM25 .* [+-]\d+\.\d\d \([+-]\d+\.\d\d to [+-]\d+\.\d\d\) │", out)
    monkeypatch.setattr("st_extras.cli.evaluate.find_spec", lambda name: None)
    code, out, err = run("evaluate", "ENC", "--retrieval", "faq", "--quiet")
    assert (code, "BM25" in out, "st-extras[search]" in err) == (0, False, True)


def test_tasks_of_mteb(run, monkeypatch):
    """The package itself is tried in tests/evaluation/test_mteb.py."""
    monkeypatch.setattr(mteb, "mteb_tasks", list)
    monkeypatch.setattr(mteb, "mteb_scores", lambda model, tasks, **_: dict.fromkeys(tasks, 0.25))
    code, out, _ = run("evaluate", "ENC", "--mteb", "STS12", "--mteb", "STS13", "--json")
    assert (code, json.loads(out)) == (0, {"STS12": 25.0, "STS13": 25.0})
