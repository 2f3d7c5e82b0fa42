"""``st-extras adapt`` and ``adapt-search``: what they print and refuse."""

import json
import re
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.adaptation import Adaptation, CandidateResult, DomainDetails
from st_extras.adaptation.search_transforms import BOTH_SIDES, QUERIES_ALONE
from st_extras.cli.adapt import _verdict
from tests.adaptation.texts import topical

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_picture")]
ADAPT = ("adapt", "ENC", "texts.txt", "-o", "out")
SEARCH = ("adapt-search", *ADAPT[1:])


@pytest.fixture(autouse=True)
def texts(run):
    """texts.txt, queries.txt and labels.tsv in the test's folder."""
    found = topical(640).texts
    Path("texts.txt").write_text("\n".join(found[:600]), "utf8")
    Path("queries.txt").write_text("\n".join(" ".join(text.split()[:4]) for text in found[600:]), "utf8")
    dev = topical(200, seed=9)
    rows = map("\t".join, zip(dev.labels, dev.texts, strict=True))
    Path("labels.tsv").write_text("\n".join(["label\ttext", *rows]), "utf8")


def test_what_was_chosen_and_how_to_load_it(run, inputs):
    code, out, err = run(*ADAPT, "--labeled", "labels.tsv", "--max-general-loss", "200", "--quiet")
    assert code == 0, err
    first, second, third, fourth, *table = out.splitlines()
    assert re.search(r"was best\. \d+% of the texts have another nearest neighbour\.", first)
    assert first.endswith(' Saved to out: SentenceTransformer("out")')
    assert str(Path("out/neighbors.md")) in second
    assert third == f"st-extras evaluate {inputs / 'encoder'} out --labeled FILE.tsv  # columns label and text"
    assert fourth.startswith("Text: 600 read, 600 different ones used, 6.0 words each, ")
    assert "Encoder: mean cosine 0." in fourth
    assert table[0] == "Gain over the base model: score on dev, x 100"
    assert all(word in out for word in ("candidate", "gain", "accepted", "base model"))
    assert "interval" not in out  # it would be empty
    assert max(map(len, out.splitlines())) > 80, "no row is broken where there is no terminal"
    assert len(SentenceTransformer("out", device="cpu")) == 3


@pytest.mark.parametrize("words", [ADAPT, (*SEARCH, "--queries", "queries.txt")])
def test_json_is_the_report(run, words):
    code, out, err = run(*words, "--json")
    report, written = json.loads(out), json.loads(Path("out/adaptation.json").read_text())
    assert (code, report.pop("output"), report) == (0, "out", written), err
    assert len(report["candidates"]) > 1


def test_an_encoder_that_is_left_unchanged_is_no_failure(run):
    words = ("adapt", "ENC", "TEXT", "-o", "out", "--overwrite")
    code, out, _ = run(*words, "--quiet")
    assert (code, out.splitlines()) == (
        0,
        [
            'Left unchanged: 500 different texts are needed, got 8. Saved to out: SentenceTransformer("out")',
            "Text: 8 read, 8 different ones used, 6.2 words each.",
        ],
    )
    assert len(SentenceTransformer("out", device="cpu")) == 2
    code, out, _ = run(*words, "--json")
    assert (code, json.loads(out)["changed"]) == (0, False)


def test_search(run, monkeypatch):
    gain = "st_extras.adaptation.pseudo_relevance.PseudoRelevanceComparison.compare"
    monkeypatch.setattr(gain, lambda *_: (0.02, 0.01))
    found = ("--queries", "queries.txt")
    code, out, err = run(*SEARCH, *found, "--query-prompt", "the dog ", "--document-prompt", "a ", "--quiet")
    assert code == 0, err
    first, second, third, fourth, *table, rule, score, search = out.splitlines()
    assert first.startswith(
        f"{BOTH_SIDES[0].name} was chosen: no harm was found. Gain +0.020 (average precision of BM25's"
    )
    assert str(Path("out/searches.md")) in second
    assert "--retrieval FOLDER" in third
    assert fourth == "Documents: 600 read, 600 different ones used; 40 queries."
    assert "general" not in "\n".join(table)  # it would be empty
    assert rule.startswith("Rule: ")
    assert score.startswith("Hybrid search: score = cosine + ")
    assert search.startswith("st-extras search out texts.txt --bm25-weight ")
    report = json.loads(Path("out/adaptation.json").read_text())
    assert [row["name"] for row in report["candidates"]] == [one.name for one in BOTH_SIDES]
    assert SentenceTransformer("out", device="cpu").prompts == {"query": "the dog ", "document": "a "}
    code, out, err = run(*SEARCH, *found, "--passages", "3", "--keep-index", "--overwrite", "--json")
    report = json.loads(out)
    assert (code, report["texts"]["read"]) == (0, 1200), err
    assert [row["name"] for row in report["candidates"]] == [one.name for one in QUERIES_ALONE]


def test_a_folder_in_beirs_layout_holds_documents_and_queries(run):
    Path("faq").mkdir()
    for name, file in (("corpus", "texts.txt"), ("queries", "queries.txt")):
        lines = (
            json.dumps({"_id": str(k), "text": text}) for k, text in enumerate(Path(file).read_text().splitlines())
        )
        Path("faq", f"{name}.jsonl").write_text("\n".join(lines))
    Path("faq", "qrels.txt").write_text("7 0 7 1")
    code, out, err = run("adapt-search", "ENC", "faq", "-o", "out", "--retrieval", "faq", "--json")
    report = json.loads(out)
    assert (code, report["texts"]["used"], report["details"]["queries"]) == (0, 600, 40), err
    assert report["details"]["dev"] is not None


def test_help_shows_the_most_used_options_first_and_an_example(run):
    for command in ("adapt", "adapt-search"):
        out = run(command, "--help")[1]
        titles = re.findall(r"^(\S.*):$", out, re.M)
        assert titles == ["Arguments", "Most used", "Choosing by labels", titles[3], "Running", "Example"]
        assert "--output" in out.partition("Most used:")[2].partition("Choosing")[0]
        assert out.rstrip().splitlines()[-1].startswith(f"  st-extras {command} ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("adapt-search", "TEXT"), "documents must hold at least 100 different ones|at least 100 different documents"),
        (("adapt-search", "TEXT", "--queries", "nowhere.txt"), r"nowhere\.txt"),
        (("adapt", "none.txt"), r"none\.txt"),
        (("adapt", "TEXT", "--dev", "nowhere"), "nowhere"),
        (("adapt", "TEXT", "--labeled", "none.tsv"), "no file of labelled texts"),
        (("adapt", "TEXT", "--dev", "STS", "--labeled", "TSV"), "--dev does not go with --labeled"),
        (("adapt", "TEXT", "--dev-set", "stsb_dev"), r"--dev-set needs --dev\."),
        (("adapt", "TEXT", "--label-column", "label"), r"--label-column needs --labeled\."),
        (("adapt", "TEXT", "--column", "text"), r"--column is not for \.txt files"),
        (("adapt-search", "TEXT", "--column", "text"), r"--column is not for \.txt files"),
        (("adapt", "TEXT", "--labeled", "TSV"), "--text-column and --label-column can name others"),
    ],
)
def test_mistakes(assert_refused, arguments, message):
    for file in ("texts.txt", "labels.tsv", "queries.txt"):
        Path(file).unlink()
    command, text, *more = arguments
    assert_refused((command, "ENC", text, "-o", "out", *more), message)


def test_the_verdict_shows_what_the_domain_gains_and_general_english_loses():
    chosen = CandidateResult("medium", 0.03, 0.02, 0.04, 79.15, True, "", 1.0)
    details = DomainDetails(2.0, general=80.45, expected_points=(0.9, 4.2), changed=0.17)
    verdict = _verdict(Adaptation(None, "medium", "medium was best.", "", [chosen], None, details, 1.0))
    assert "Expected on such text: +0.9 to +4.2 points" in verdict
    assert "General English: 80.5 -> 79.2 (-1.3)." in verdict
