"""``st-extras adapt``: what it prints and refuses; what it calls is tested with its own package."""

import json
import re
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.adaptation.search import BOTH_SIDES, QUERIES_ALONE
from tests.adaptation.texts import topical

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_picture")]
ADAPT = ("adapt", "ENC", "texts.txt", "-o", "out")


@pytest.fixture(autouse=True)
def texts(run):
    """texts.txt and labels.tsv in the test's folder."""
    Path("texts.txt").write_text("\n".join(topical(600).texts), "utf8")
    dev = topical(200, seed=9)
    rows = map("\t".join, zip(dev.labels, dev.texts, strict=True))
    Path("labels.tsv").write_text("\n".join(["label\ttext", *rows]), "utf8")


def test_what_was_chosen_and_how_to_load_it(run, inputs):
    code, out, err = run(*ADAPT, "--labeled", "labels.tsv", "--any-general-loss", "--quiet")
    assert code == 0, err
    assert all(word in out for word in ("candidate", "gain", "general", "interval", "seconds", "yes", "as it is"))
    first, second, third, fourth, *_ = out.splitlines()
    assert re.search(r"was best\. \d+% of the texts have another nearest neighbour\.", first)
    assert first.endswith(' Saved to out: SentenceTransformer("out")')
    assert str(Path("out/neighbors.md")) in second
    assert third == f"st-extras evaluate {inputs / 'encoder'} out --labeled FILE.tsv  # columns label and text"
    assert fourth.startswith("Text: 600 read, 600 different ones used, 6.0 words each, ")
    assert "near-duplicates. Encoder: mean cosine 0." in fourth
    assert max(map(len, out.splitlines())) > 80, "no row is broken where there is no terminal"
    assert len(SentenceTransformer("out", device="cpu")) == 3


def test_without_labels(run):
    code, out, err = run(*ADAPT, "--json")
    report, written = json.loads(out), json.loads(Path("out/adaptation.json").read_text())
    assert (code, report["output"]) == (0, "out"), err
    assert all(report[name] == written[name] for name in ("chosen", "reason", "candidates", "facts"))
    assert len(report["candidates"]) > 1


def test_left_as_it_is_is_no_failure(run):
    code, out, _ = run("adapt", "ENC", "TEXT", "-o", "out", "--quiet")
    assert (code, out.splitlines()) == (
        0,
        [
            'Left as it is: 500 different texts are needed, got 8. Saved to out: SentenceTransformer("out")',
            "Text: 8 read, 8 different ones used, 6.2 words each.",
        ],
    )
    assert len(SentenceTransformer("out", device="cpu")) == 2


def test_search(run):
    texts = topical(640).texts
    Path("queries.txt").write_text("\n".join(" ".join(text.split()[:4]) for text in texts[600:]), "utf8")
    found = ("--search", "--queries", "queries.txt")
    code, out, err = run(*ADAPT, *found, "--query-prompt", "the dog ", "--document-prompt", "a ", "--quiet")
    assert code == 0, err
    assert "Text: 600 read, 600 different ones used, 40 queries.\n" in out
    assert "Gain over the start, in the average precision of BM25's first documents" in out
    assert ("Left as it is" in out) or f"to read: {Path('out/searches.md')}" in out.splitlines()[1]
    report = json.loads(Path("out/adaptation.json").read_text())
    assert [row["name"] for row in report["candidates"]] == [step.name for step in BOTH_SIDES]
    assert SentenceTransformer("out", device="cpu").prompts == {"query": "the dog ", "document": "a "}
    code, out, err = run(*ADAPT, *found, "--passages", "3", "--keep-index", "--overwrite", "--json")
    report = json.loads(out)
    assert (code, report["facts"]["read"]) == (0, 1200), err
    assert [row["name"] for row in report["candidates"]] == [step.name for step in QUERIES_ALONE]
    Path("faq").mkdir()
    files = {"corpus.csv": "id,text\n7,a cat", "queries.csv": "id,text\na,cat", "qrels.txt": "a 0 7 1"}
    for name, written in files.items():
        Path("faq", name).write_text(written)
    code, out, err = run(*ADAPT, *found, "--retrieval", "faq", "--overwrite", "--json")
    assert (code, json.loads(out)["facts"]["dev"]) == (0, 100), err
    Path("asked.csv").write_text("query\nwhat\n")
    assert "the one with queries must be sentence or text" in run(*ADAPT, *found[:2], "asked.csv", "--overwrite")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("TEXT", "--queries", "TEXT"), r"--queries needs --search\."),
        (("TEXT", "--keep-index"), r"--keep-index needs --search\."),
        (("TEXT", "--passages", "3"), r"--passages needs --search\."),
        (("TEXT", "--document-prompt", "a"), r"--document-prompt needs --search\."),
        (("TEXT", "--search", "--train"), "--train does not go with --search"),
        (("TEXT", "--search", "--labeled", "TSV"), "--labeled does not go with --search"),
        (("TEXT", "--search"), "sentences must hold at least 100 different documents, got 8"),
        (("TEXT", "--search", "--queries", "nowhere.txt"), r"nowhere\.txt"),
        (("none.txt",), r"none\.txt"),
        (("TEXT", "--dev", "nowhere"), "nowhere"),
        (("TEXT", "--labeled", "none.tsv"), "no file of labelled texts"),
        (("TEXT", "--dev", "STS", "--labeled", "TSV"), "--dev does not go with --labeled"),
        (("TEXT", "--dev-set", "stsb_dev"), r"--dev-set needs --dev\."),
        (("TEXT", "--labeled", "TSV", "--dev-set", "x"), r"--dev-set needs --dev\."),
        (("TEXT", "--max-general-loss", "0", "--any-general-loss"), "--max-general-loss does not go with --any-gen"),
        (("TEXT", "--label-column", "label"), r"--label-column needs --labeled\."),
        (("TEXT", "--column", "text"), r"--column is not for \.txt files"),
        (("TEXT", "--labeled", "TSV"), "stsb_dev.*--text-column and --label-column can name others"),
        (("TEXT", "--limit", "3"), "--limit must be"),
    ],
)
def test_mistakes(assert_refused, arguments, message):
    for file in ("texts.txt", "labels.tsv"):
        Path(file).unlink()
    assert_refused(("adapt", "ENC", arguments[0], "-o", "out", *arguments[1:]), message)
