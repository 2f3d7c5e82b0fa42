"""``st-extras evaluate --text``: cosines of unrelated texts, a threshold that moves, and the label-free comparison."""

import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Router, StaticEmbedding

from st_extras.adaptation.run import sample_texts
from st_extras.cli import evaluate
from st_extras.cli.console import threshold_line
from st_extras.evaluation import LabelFreeComparison, LabelFreeScore, TextComparison
from st_extras.evaluation.geometry import MovedThreshold, moved_threshold, unrelated_cosines
from st_extras.evaluation.unrelated_pairs import UnrelatedCosine
from tests.adaptation.texts import topical
from tests.fixtures import build_encoder
from tests.helpers import draw

COSINES = (("a", 0.1), ("b", 0.2), ("c", -0.3))
"""Of three encoders."""


@pytest.fixture
def texts(run):
    """texts.txt, and beir, a folder with queries.jsonl."""
    texts = topical(300).texts
    Path("texts.txt").write_text("\n".join(texts), "utf8")
    Path("beir").mkdir()
    for name, rows in {"corpus": texts, "queries": [f"{text[:20]} a" for text in texts[:90]]}.items():
        lines = [json.dumps({"_id": f"{name}{i}", "text": text}) for i, text in enumerate(rows)]
        Path(f"beir/{name}.jsonl").write_text("\n".join(lines))
    return texts


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Folders of two encoders: one with other weights, and one with routes for queries and documents."""
    folder = tmp_path_factory.mktemp("others")
    plain = build_encoder(folder / "plain", seed=1)
    router = Router({"query": [Dense(16, 16)], "document": [Dense(16, 16)]}, default_route="document")
    SentenceTransformer(modules=[*plain, router], device="cpu").save(str(folder / "routed"))
    return folder / "plain", folder / "routed"


@pytest.mark.usefixtures("texts")
def test_a_sample_of_the_text_is_compared(run, inputs, others):
    """The figures are those of the functions in Python."""
    code, out, err = run("evaluate", "ENC", others[0], "--text", "texts.txt", "--threshold", "0.5", "--json")
    assert code == 0, err
    report, names = json.loads(out), [str(inputs / "encoder"), str(others[0])]
    sample = sample_texts(topical(300).texts, 2000, 42).texts
    before, after = (SentenceTransformer(name, device="cpu").encode(sample, convert_to_tensor=True) for name in names)
    assert (report["texts"], report["read"], list(report["cosines"])) == (300, 300, names)
    for name, rows in zip(names, (before, after), strict=True):
        marks = {int(n): tuple(mark.values()) for n, mark in report["cosines"][name].items()}
        assert marks == {n: pytest.approx(mark, abs=1e-5) for n, mark in unrelated_cosines(rows).items()}
    assert report["thresholds"] == {names[1]: asdict(moved_threshold(0.5, before, after))}
    score = LabelFreeComparison(sample, before).compare(after)
    assert report["label_free"][names[1]] == pytest.approx(asdict(score), abs=1e-6)
    code, out, err = run("evaluate", "ENC", others[0], "--text", "texts.txt", "--threshold", "0.5")
    assert code == 0, err
    assert "between two encoders of other origin it may be wrong" in out
    assert f"{score.gain:+.3f} │ {score.low:+.3f} to {score.high:+.3f}" in out
    assert f"Threshold: 0.50 of {names[0]} is " in out
    assert out.startswith("300 different texts of 300 compared with each other.\n")
    found = json.loads(run("evaluate", "ENC", others[0], "--text", "texts.txt", "--prompt", "the ", "--json")[1])
    prompted = SentenceTransformer(names[0], device="cpu").encode(sample, prompt="the ", convert_to_tensor=True)
    assert found["cosines"][names[0]]["100"]["cosine"] == pytest.approx(unrelated_cosines(prompted)[100][0], abs=1e-5)


@pytest.mark.usefixtures("texts")
def test_one_encoder_has_cosines_alone(run):
    code, out, err = run("evaluate", "ENC", "--text", "texts.txt")
    assert (code, "1 in 1,000" in out, "Label-free" in out or "Not compared" in out) == (0, True, False), err
    one = json.loads(run("evaluate", "ENC", "--text", "texts.txt", "--json")[1])
    assert (one["label_free"], one["not_compared"], one["thresholds"], one["queries"]) == ({}, None, {}, None)


def test_texts_that_are_too_few_to_compare_without_labels(run, others):
    Path("few.txt").write_text("\n".join(topical(80).texts), "utf8")
    code, out, err = run("evaluate", "ENC", others[0], "--text", "few.txt")
    assert (code, "Not compared without labels: the number of texts must be" in out) == (0, True), err
    code, out, err = run("evaluate", "ENC", others[0], "--text", "few.txt", "--json")
    assert json.loads(out)["not_compared"].startswith("the number of texts must be")


@pytest.mark.usefixtures("texts")
def test_an_encoder_with_routes_compares_sentences_with_documents(run, others):
    """Documents compared with documents would give a threshold above nearly all relevant pairs."""
    code, out, err = run("evaluate", "ENC", others[1], "--text", "beir")
    assert code == 0, err
    assert out.startswith("200 sentences of the documents compared, as queries, with 300 documents of 300.\n")
    assert "Not compared without labels: the score is for texts that are compared with each other" in out
    Path("docs.txt").write_text("\n".join(f"{text}. The {text[:20]} of the park." for text in topical(300).texts))
    code, _, err = run("evaluate", others[1], "--text", "docs.txt", "--prompt", "a ")
    assert (code, "prompt must be left out for an encoder with routes" in err) == (2, True)


def test_queries_of_a_folder_do_not_spoil_the_bound(run, still_encoder):
    """Which documents answer them is not known, and one for each is 1 pair in 300 here."""
    generator, words = random.Random(0), sorted(filter(str.isalpha, still_encoder.tokenizer.vocab))
    texts = [" ".join(generator.sample(words, 8)) for _ in range(300)]
    queries = [" ".join(generator.sample(text.split(), 6)) for text in texts]
    for name, rows in {"corpus": texts, "queries": queries}.items():
        lines = [json.dumps({"_id": f"{name}{i}", "text": text}) for i, text in enumerate(rows)]
        Path(f"{name}.jsonl").write_text("\n".join(lines))
    tokenizer, weights = still_encoder.tokenizer.backend_tokenizer, draw(len(still_encoder.tokenizer), 64).numpy()
    routes = {name: [StaticEmbedding(tokenizer, embedding_weights=weights)] for name in ("query", "document")}
    model = SentenceTransformer(modules=[Router(routes, default_route="document")], device="cpu")
    model.save("words")
    code, out, err = run("evaluate", "words", "--text", ".", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["texts"] == 300
    answers = model.similarity_pairwise(model.encode_query(queries), model.encode_document(texts))
    assert (answers > report["cosines"]["words"]["1000"]["cosine"]).float().mean() > 0.5


def lines_of(out: str) -> list[str]:
    """Lines, those of tables as cells between spaces."""
    lines = [" ".join(line.replace("│", " ").replace("┃", " ").split()) for line in out.splitlines()]
    return [line for line in lines if not set(line) <= {*"┏━┳┓┡╇┩└─┴┘"}]


def test_all_that_a_comparison_has_found_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    marks = {name: {n: UnrelatedCosine(x + n / 1e4, x - 0.01, x + 0.2) for n in (100, 1000)} for name, x in COSINES}
    moved = {"b": MovedThreshold(0.8, 0.86, 413, 4950), "c": MovedThreshold(0.8, None, 0, 4950)}
    scores = {
        name: LabelFreeScore(gain, gain - 0.1, gain + 0.2, 0.0, 0.0, 0.0) for name, gain in (("b", 0.3), ("c", -0.5))
    }
    whole = TextComparison(1, 1_310, None, marks, moved, scores, None)
    evaluate._print_text(whole)
    table = [
        "Cosines that few unrelated pairs exceed, 95 % interval",
        "pairs above a b c",
        "1 in 100 0.110 (0.090 to 0.300) 0.210 (0.190 to 0.400) -0.290 (-0.310 to -0.100)",
        "1 in 1,000 0.200 (0.090 to 0.300) 0.300 (0.190 to 0.400) -0.200 (-0.310 to -0.100)",
    ]
    assert lines_of(capsys.readouterr().out) == [
        "1 different text of 1,310 compared with each other.",
        *table,
        threshold_line(moved["b"], "of a", "of b"),
        threshold_line(moved["c"], "of a", "of c"),
        "Label-free score beside a, above 0 is better",
        "encoder score 95 % interval",
        "b +0.300 +0.200 to +0.500",
        "c -0.500 -0.600 to -0.300",
        "The score is not in points. It holds only for texts that no encoder here was fitted on, and was tried on "
        "transforms and short trainings of the first encoder: between two encoders of other origin it may be wrong.",
    ]
    evaluate._print_text(replace(whole, queries=2_000, thresholds={}, label_free={}, not_compared="they are too few."))
    assert lines_of(capsys.readouterr().out) == [
        "2,000 sentences of the documents compared, as queries, with 1 document of 1,310.",
        *table,
        "Not compared without labels: they are too few.",
    ]


def test_a_threshold_has_the_decimals_that_decide():
    """Two decimals where they do; none of a threshold that was given is lost."""
    assert threshold_line(MovedThreshold(0.8, 0.86, 413, 4950), "before", "now") == (
        "Threshold: 0.80 before is 0.86 now: as many pairs lie above it (413 of the 4,950 pairs compared)."
    )
    assert "0.825 of a is 0.8614 of b: " in threshold_line(MovedThreshold(0.825, 0.8614, 413, 4950), "of a", "of b")
    none, each = MovedThreshold(0.99, None, 0, 4950), MovedThreshold(-1, None, 4950, 4950)
    assert threshold_line(none, "before", "now") == "Threshold: No pair of 4,950 lies above 0.99 before."
    assert threshold_line(each, "before", "now") == "Threshold: Each pair of 4,950 lies above -1.00 before."
