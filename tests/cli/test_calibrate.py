"""``st-extras calibrate``: the cosines of unrelated texts."""

import json
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Router

from st_extras.cli import calibrate
from st_extras.evaluation.unrelated_pairs import encode_pairs
from tests.adaptation.texts import topical
from tests.fixtures import build_encoder

pytestmark = pytest.mark.slow


@pytest.fixture
def texts():
    Path("texts.txt").write_text("\n".join(topical(300).texts), "utf8")
    return topical(300).texts


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    """A saved encoder with routes for queries and documents."""
    folder = tmp_path_factory.mktemp("routed")
    router = Router({"query": [Dense(16, 16)], "document": [Dense(16, 16)]}, default_route="document")
    model = SentenceTransformer(modules=[*build_encoder(folder / "plain"), router], device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


def test_texts(run, texts):
    code, out, err = run("calibrate", "ENC", "texts.txt", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["texts"] == 300
    assert list(report["cosines"]) == ["100", "1000"]
    assert report["cosines"]["100"]["low"] <= report["cosines"]["100"]["cosine"] < report["cosines"]["1000"]["cosine"]
    code, out, err = run("calibrate", "ENC", "texts.txt", "--quiet")
    assert (code, "Batches" in err) == (0, False), err
    assert f"{report['cosines']['1000']['cosine']:.3f}" in out
    code, out, err = run("calibrate", "ENC", "texts.txt", "--before", "ENC", "--prompt", "a ", "--json")
    compared = json.loads(out)
    assert compared["before"] == compared["cosines"] != report["cosines"]


def test_an_encoder_with_routes_compares_queries_with_documents(run, texts, routed, inputs):
    """Documents compared with documents would give a threshold above nearly all relevant pairs."""
    documents = [f"{text}. The {text[:20]} of the park." for text in texts]
    Path("docs.txt").write_text("\n".join(documents), "utf8")
    Path("queries.txt").write_text("\n".join(text[:30] for text in texts), "utf8")
    report = json.loads(run("calibrate", routed, "docs.txt", "--json")[1])
    assert (report["documents"], report["queries from"]) == (300, "sentences of the documents")
    given = ("calibrate", routed, "docs.txt", "--queries", "queries.txt", "--before", "ENC")
    asked = json.loads(run(*given, "--json")[1])
    assert asked["queries from"] == "queries.txt"
    assert asked["cosines"] != asked["before"]
    code, out, err = run(*given)
    assert (code, "Cosines of unrelated queries and documents" in out) == (0, True), err
    assert f"{asked['queries']} queries (queries.txt) compared with 300 documents." in out
    plain = json.loads(run("calibrate", "ENC", "docs.txt", "--queries", "queries.txt", "--json")[1])
    assert plain["cosines"] == asked["before"]
    code, _, err = run("calibrate", routed, "docs.txt", "--prompt", "a ")
    assert (code, "--prompt is not for queries and documents" in err) == (2, True)


def test_a_folder_in_the_layout_of_beir_brings_its_queries(run, texts, routed, monkeypatch):
    Path("beir").mkdir()
    write = {"corpus": texts, "queries": [f"{text[:20]} a" for text in texts[:90]]}
    for name, rows in write.items():
        lines = [json.dumps({"_id": f"{name}{i}", "text": text}) for i, text in enumerate(rows)]
        Path(f"beir/{name}.jsonl").write_text("\n".join(lines))
    seen = []
    monkeypatch.setattr(
        "st_extras.evaluation.unrelated_pairs.encode_pairs",
        lambda models, texts, queries=None, **options: (seen.append(queries), encode_pairs(models, texts, queries))[1],
    )
    code, out, err = run("calibrate", routed, "beir", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["queries from"] == "beir"
    assert {*seen[0]} <= {*write["queries"]}


def test_what_is_wrong_with_the_picture_is_known_before_anything_is_encoded(run, texts, monkeypatch):
    code, _, err = run("calibrate", "ENC", "texts.txt", "--before", "ENC", "--picture", "cosines.svg")
    assert (code, "<svg" in Path("cosines.svg").read_text("utf8")) == (0, True), err
    monkeypatch.setattr(calibrate, "load_any", lambda path: pytest.fail("loaded"))
    Path("folder.png").mkdir()
    for wrong in ("nowhere/cosines.png", "folder.png", "cosines.xyz", "texts.txt/cosines.png"):
        code, _, err = run("calibrate", "ENC", "texts.txt", "--picture", wrong)
        assert (code, "--picture must" in err) == (2, True), err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run("calibrate", "ENC", "texts.txt", "--picture", "cosines.png")
    assert (code, "st-extras[plot]" in err) == (2, True)
