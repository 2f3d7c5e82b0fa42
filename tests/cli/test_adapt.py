"""``st-extras adapt`` and ``adapt-search``: what they print and refuse."""

import dataclasses
import json
import math
import re
import shlex
import shutil
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.adaptation import Adaptation, CandidateResult, DomainDetails, SearchDetails, TextSummary
from st_extras.adaptation.search_transforms import BOTH_SIDES, QUERIES_ALONE
from st_extras.cli.adapt import _changes
from st_extras.evaluation.geometry import MovedThreshold
from tests.adaptation.texts import topical

ADAPT = ("adapt", "ENC", "texts.txt", "-o", "out")
SEARCH = ("adapt-search", *ADAPT[1:], "--queries", "queries.txt")


@pytest.fixture
def texts(run):
    """texts.txt, queries.txt, labels.tsv and faq, a search collection, in the test's folder."""
    found = topical(540).texts
    queries = [" ".join(text.split()[:4]) for text in found[500:]]
    Path("texts.txt").write_text("\n".join(found[:500]), "utf8")
    Path("queries.txt").write_text("\n".join(queries), "utf8")
    dev = topical(200, seed=9)
    rows = map("\t".join, zip(dev.labels, dev.texts, strict=True))
    Path("labels.tsv").write_text("\n".join(["label\ttext", *rows]), "utf8")
    Path("faq").mkdir()
    for name, of in (("corpus", found[:500]), ("queries", queries)):
        lines = [json.dumps({"_id": str(number), "text": text}) for number, text in enumerate(of)]
        Path("faq", f"{name}.jsonl").write_text("\n".join(lines))
    Path("faq", "qrels.txt").write_text("7 0 7 1")


@pytest.mark.slow
@pytest.mark.usefixtures("texts")
def test_what_was_chosen_and_how_to_load_it(run, inputs):
    words = (*ADAPT, "--labeled", "labels.tsv", "--max-general-loss", "inf")
    code, out, err = run(*words, "--quiet")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].endswith(' was best. Saved to out: SentenceTransformer("out")')
    assert "% of the texts have another nearest neighbour." in out
    assert "Text: 500 read, 500 different ones used, 6.0 words each, " in out
    assert str(Path("out/neighbors.md")) in out
    assert f"st-extras evaluate {inputs / 'encoder'} out --labeled FILE.tsv  # columns label and text" in lines
    assert "Gain over the base model: score on dev, x 100" in lines
    assert all(word in out for word in ("candidate", "gain", "accepted", "base model"))
    assert "--strength NAME" in lines[-1]
    assert re.search(r"1 in 100 .* -?0\.\d\d .* -?0\.\d\d ", out)
    compare = next(line for line in lines if line.startswith("st-extras evaluate ") and " out --text " in line)
    code, shown, err = run(*shlex.split(compare)[1:])  # as it stands
    assert (code, "Threshold: " in shown and " 0.80 of " in shown) == (0, True), err
    assert len(SentenceTransformer("out", device="cpu")) == 3
    code, out, err = run(*words, "--overwrite", "--threshold", "0.5", "--quiet")
    moved = json.loads(Path("out/adaptation.json").read_text())["details"]["threshold"]
    shown = re.search(r"0\.50 before is (\S+) now: as many pairs lie above it \(([\d,]+) of the ", out)
    assert shown is not None, err
    assert (float(shown[1]), shown[2]) == (moved["after"], f"{moved['above']:,}")
    code, out, err = run(*words, "--overwrite", "--json")
    report, written = json.loads(out), json.loads(Path("out/adaptation.json").read_text())
    assert (code, report.pop("output"), report) == (0, "out", written), err


MEDIUM = CandidateResult("medium", 0.03, 0.02, 0.04, 79.15, seconds=2.0)
STRONG = CandidateResult("strong", 0.05, 0.03, 0.07, 70.0, "it loses too much", seconds=3.0)
TEXTS = TextSummary(1_900, 1_600, 1_509, 1_500, 7.0, 1_200, 0.25)
CUT = "Cut short by its minutes: 1,509 of 1,600 texts were encoded."


def printed(run, monkeypatch, found, *words):
    """Run a command that finds this adaptation; return its lines, those of tables as cells between spaces."""
    monkeypatch.setattr(f"st_extras.adaptation.{words[0].replace('-', '_')}", lambda *_, **__: found)
    code, out, err = run(*words)
    assert code == 0, err
    lines = [" ".join(line.replace("│", " ").replace("┃", " ").split()) for line in out.splitlines()]
    return [line for line in lines if not set(line) <= {*"┏━┳┓┡╇┩└─┴┘"}]


@pytest.mark.parametrize("threshold", [None, MovedThreshold(0.8, 0.753, 1_234, 56_789)])
def test_all_that_an_adaptation_has_found_is_printed(run, inputs, monkeypatch, threshold):
    before = {1_000: (0.41, 0.40, 0.42), 100: (0.3, 0.29, 0.31)}
    details = DomainDetails(
        2.0, general=80.45, mean_cosine=0.12, not_tried="strongest: too few texts", expected_points=(0.9, 4.2),
        changed=0.17, unrelated_before=before, unrelated_after=dict.fromkeys(before, (0.2, 0.1, 0.3)),
        threshold=threshold,
    )  # fmt: skip
    found = Adaptation(None, "medium", "medium was best.", "score, x 100", [MEDIUM, STRONG], TEXTS, details, 1.0)
    Path("my texts.csv").write_text("text,b\na cat,d\n")
    encoder, text = inputs / "encoder", inputs / "text.txt"
    words = ("my texts.csv", "TEXT", "-o", "out", "--column", "text", "--prompt", "topic: ")
    sources = f"--text 'my texts.csv' --text {text} --prompt 'topic: ' --column text"
    moved = (
        f"st-extras evaluate {encoder} out {sources} --threshold 0.8"
        if threshold is None
        else "Threshold: 0.80 before is 0.753 now: as many pairs lie above it (1,234 of the 56,789 pairs compared)."
    )
    assert printed(run, monkeypatch, found, "adapt", "ENC", *words) == [
        CUT,
        'medium was best. Saved to out: SentenceTransformer("out")',
        "Expected by labels: +0.9 to +4.2 points (mean of 1-NN, V-measure and MAP@R), as in 8 of 10 cases measured, "
        "and 6 of 10 in a domain that the range was not computed from.",
        "General English: 80.5 -> 79.2 (-1.3).",
        "17% of the texts have another nearest neighbour.",
        "Text: 1,900 read, 1,500 different ones used (9 not, as they have no embedding), 7.0 words each, 1,200 of them "
        "scored by transforms computed without them, 25% repeat another nearly word for word. Encoder: mean cosine "
        "0.12, 80.5 on general pairs.",
        f"Before and after, to read: {Path('out/neighbors.md')}. Whether it is better, your own labels show:",
        f"st-extras evaluate {encoder} out --labeled FILE.tsv # columns label and text",
        "Gain over the base model: score, x 100",
        "candidate gain 95 % interval general seconds accepted",
        "base model 80.45",
        "medium +0.0300 +0.0200 to +0.0400 79.15 (-1.30) 2 yes",
        "strong +0.0500 +0.0300 to +0.0700 70.00 (-10.45) 3 no: it loses too much",
        "Encode stored texts again: old and new embeddings do not mix.",
        "Thresholds on cosines have to change, as all cosines do:",
        "pairs of texts above cosine before now",
        "1 in 1,000 0.41 0.20",
        "1 in 100 0.30 0.20",
        moved,
        "Not tried: strongest: too few texts.",
        "Another one: the same command with --overwrite and --strength NAME, such as medium.",
    ]


@pytest.mark.parametrize("judged", [False, True])
def test_all_that_an_adaptation_for_search_has_found_is_printed(run, inputs, monkeypatch, judged):
    model = SentenceTransformer(str(inputs / "encoder"), device="cpu")
    details = SearchDetails(40, False, 30, changed=0.1, bm25_weight=0.02)
    found = Adaptation(model, "medium", "medium was best.", "precision", [MEDIUM, STRONG], TEXTS, details, 1.0)
    Path("faq/qrels").mkdir(parents=True)
    Path("faq/corpus.csv").write_text("id,text\nd1,a cat\n")
    Path("faq/queries.csv").write_text("id,text\nq1,of the folder\n")
    Path("faq/qrels/test.txt").write_text("q1 0 d1 1\n")
    shutil.copytree("faq", "judged")
    Path("more.txt").write_text("a dog\n")
    words = ("TEXT", "faq", "more.txt", "-o", "out", "--whole-files", "--language", "german", "--query-prompt", "q: ")
    lines = printed(run, monkeypatch, found, "adapt-search", "ENC", *words, *("--retrieval", "judged") * judged)
    rule = (
        "Rule: the first candidate that is not worse than the base model by more than one standard error is chosen. "
        "BM25 shows harm, not how much better a search is."
    )
    assert lines == [
        CUT,
        'medium was best. Saved to out: SentenceTransformer("out")',
        "Gain over the base model: +0.030 (precision).",
        "10% of the queries have another first document.",
        "Documents: 1,900 read, 1,500 different ones used (9 not, as they have no embedding); 40 queries.",
        f"Before and after, to read: {Path('out/searches.md')}. Whether it is better, your own judgements show:",
        f"st-extras evaluate {inputs / 'encoder'} out --retrieval {'judged' if judged else 'faq'}",
        "Gain over the base model: precision",
        "candidate gain 95 % interval general seconds accepted",
        "base model",
        "medium +0.0300 +0.0200 to +0.0400 79.15 2 yes",
        "strong +0.0500 +0.0300 to +0.0700 70.00 3 no: it loses too much",
        *[rule] * (not judged),
        "Hybrid search: score = cosine + 0.02 x BM25.",
        f"st-extras search out {inputs / 'text.txt'} --language german --whole-files --documents faq --documents "
        'more.txt "your query" --bm25-weight 0.02',
    ]


def test_too_few_documents_are_no_matter_of_time(run):
    code, out, _ = run("adapt-search", "ENC", "TEXT", "-o", "out", "--quiet")
    reason, documents, *_ = out.splitlines()
    assert (code, reason.startswith("Left unchanged: 100 different documents are needed, got 8.")) == (0, True)
    assert documents == "Documents: 8 read, 8 different ones used; 8 queries made from them."


def test_an_encoder_that_is_left_unchanged_is_no_failure(run):
    code, out, _ = run("adapt", "ENC", "TEXT", "-o", "out", "--quiet")
    reason, text = out.splitlines()
    assert (code, reason.startswith("Left unchanged: ")) == (0, True)
    assert text == "Text: 8 read, 8 different ones used, 6.2 words each."
    assert len(SentenceTransformer("out", device="cpu")) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("texts")
def test_search(run, monkeypatch):
    gain = "st_extras.adaptation.search.PseudoRelevanceComparison.compare"
    monkeypatch.setattr(gain, lambda *_: (0.02, 0.01))
    code, out, err = run(*SEARCH, "--query-prompt", "the dog ", "--document-prompt", "a ", "--quiet")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith(f"{BOTH_SIDES[0].name} was chosen: no harm was found. Saved to out: ")
    assert lines[1].startswith("Gain over the base model: +0.020 (average precision")
    assert "Documents: 500 read, 500 different ones used; 40 queries." in lines
    assert str(Path("out/searches.md")) in out
    assert "--retrieval FOLDER" in out
    assert lines[-1].startswith('st-extras search out texts.txt "your query" --bm25-weight ')
    weight = json.loads(Path("out/adaptation.json").read_text())["details"]["bm25_weight"]
    words = shlex.split(lines[-1])
    assert float(words[-1]) == pytest.approx(weight, rel=1e-3)
    assert len(json.loads(run(*words[1:], "--json")[1])["searches"][0]["hits"]) == 10
    assert SentenceTransformer("out", device="cpu").prompts == {"query": "the dog ", "document": "a "}
    code, out, err = run(*SEARCH, "--passages", "4", "--keep-index", "--overwrite", "--json")
    report = json.loads(out)
    assert (code, report["texts"]["read"]) == (0, 500), err
    assert [row["name"] for row in report["candidates"]] == [one.name for one in QUERIES_ALONE]
    code, out, err = run("adapt-search", "ENC", "faq", "-o", "other", "--retrieval", "faq", "--json")
    report = json.loads(out)
    assert (code, report["texts"]["used"], report["details"]["queries"]) == (0, 500, 40), err
    assert report["details"]["dev"] is not None


@pytest.mark.parametrize(("passages", "used"), [(None, 9), ("30", 8), ("0", 9)])
def test_printed_commands_run_as_they_stand(run, inputs, monkeypatch, passages, used):
    """With a folder that has a space, a column, and passages, with which the weight was found."""
    chosen = CandidateResult("half", 0.03, 0.02, 0.04)
    summary, details = TextSummary(9, 9, 9, used, 7.0), SearchDetails(30, True, 30, changed=0.1, bm25_weight=0.02)
    model = SentenceTransformer(str(inputs / "encoder"), device="cpu")
    found = Adaptation(model, "half", "half was best.", "", [chosen], summary, details, 1.0)
    monkeypatch.setattr("st_extras.adaptation.adapt_search", lambda *_, **__: found)
    Path("my texts.csv").write_text("title,body\na,b\n")
    options = [] if passages is None else ["--passages", passages]
    code, out, err = run("adapt-search", "ENC", "my texts.csv", "-o", "my search", "--column", "body", *options)
    assert code == 0, err
    commands = [shlex.split(line) for line in out.splitlines() if line.startswith("st-extras ")]
    evaluate, *search = [words[1:] for words in commands]
    assert (evaluate[0], evaluate[2:4]) == ("evaluate", ["my search", "--retrieval"])
    source = ["my texts.csv", "--column", "body", *options]
    assert search == [["search", "my search", *source, "your query", "--bm25-weight", "0.02"]]
    monkeypatch.setattr(
        "st_extras.adaptation.adapt_search",
        lambda *_, **__: dataclasses.replace(found, details=dataclasses.replace(details, bm25_weight=None)),
    )
    code, out, err = run("adapt-search", "ENC", "my texts.csv", "-o", "my search", "--column", "body", *options)
    assert (code, "x BM25." in out, "--bm25-weight" in out) == (0, False, False), err
    assert ("as not all documents were used here." in out) == (summary.used < summary.read)
    assert f"st-extras search 'my search' {shlex.join(source)} \"your query\"\n" in out


@pytest.mark.parametrize("given", [False, True])
def test_queries_that_are_given_take_the_place_of_those_of_the_folder(run, monkeypatch, given):
    Path("faq/qrels").mkdir(parents=True)
    Path("faq/corpus.csv").write_text("id,text\nd1,a cat\n")
    Path("faq/queries.csv").write_text("id,text\nq1,of the folder\n")
    Path("faq/qrels/test.txt").write_text("q1 0 d1 1\n")
    Path("mine.txt").write_text("one of mine\nanother\n")
    received = []

    def note(*_, queries, **__):
        received.append(list(queries))
        raise ValueError("enough.")

    monkeypatch.setattr("st_extras.adaptation.adapt_search", note)
    run("adapt-search", "ENC", "faq", "-o", "out", *(("--queries", "mine.txt") if given else ()))
    assert received == [["one of mine", "another"] if given else ["of the folder"]]


@pytest.mark.parametrize(("budget", "allowed"), [(2.0, ""), (math.inf, ", any loss is allowed")])
def test_the_verdict_shows_what_the_domain_gains_and_general_english_loses(budget, allowed):
    chosen = CandidateResult("medium", 0.03, 0.02, 0.04, 79.15)
    details = DomainDetails(budget, general=80.45, expected_points=(0.9, 4.2), changed=0.17)
    adapted = Adaptation(None, "medium", "medium was best.", "", [chosen], TextSummary(9, 9, 9, 8, 7.0), details, 1.0)
    expected, general, *_ = _changes(adapted)
    assert expected.startswith("Expected by labels: +0.9 to +4.2 points")
    assert general == f"General English: 80.5 -> 79.2 (-1.3{allowed})."


@pytest.mark.parametrize("command", ["adapt", "adapt-search"])
def test_a_run_that_was_cut_short_says_so_in_the_first_line(run, monkeypatch, command):
    texts = TextSummary(1600, 1509, 313, 313, 7.0, 313)
    details = DomainDetails(2.0) if command == "adapt" else SearchDetails(30, False)
    found = Adaptation(None, None, "Left unchanged: too few.", "", [], texts, details, 1.0)
    monkeypatch.setattr(f"st_extras.adaptation.{command.replace('-', '_')}", lambda *_, **__: found)
    code, out, err = run(command, "ENC", "TEXT", "-o", "out", "--minutes", "10")
    first, second, *_ = out.splitlines()
    assert code == 0, err
    assert first == "Cut short by its minutes: 313 of 1,509 texts were encoded."
    assert second.startswith("Left unchanged: too few. Saved to out")
    assert (", 313 of them scored by transforms computed without them" in out) is (command == "adapt")


def test_the_printed_search_has_all_sources(run, inputs):
    Path("one.txt").write_text("my lost card\nis blocked\n")
    code, out, err = run("adapt-search", "ENC", "one.txt", "TEXT", "-o", "other", "--whole-files")
    assert code == 0, err
    words = shlex.split(out.splitlines()[-1])[1:]
    assert words[:6] == ["search", "other", "one.txt", "--whole-files", "--documents", str(inputs / "text.txt")]
    words[1] = str(inputs / "encoder")
    code, out, err = run(*words, "--json")
    assert {hit["id"] for hit in json.loads(out)["searches"][0]["hits"]} == {"one.txt", str(inputs / "text.txt")}, err
