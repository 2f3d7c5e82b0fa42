"""``st-extras calibrate``: the cosines of unrelated texts."""

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Router

from st_extras.cli import calibrate
from st_extras.evaluation import unrelated_pairs
from tests.adaptation.texts import topical
from tests.fixtures import build_encoder

pytestmark = pytest.mark.slow


@pytest.fixture
def texts(run):
    """texts.txt, and beir, a folder with queries.jsonl."""
    texts = topical(300).texts
    Path("texts.txt").write_text("\n".join(texts), "utf8")
    Path("queries.txt").write_text("\n".join(text[:30] for text in texts), "utf8")
    Path("beir").mkdir()
    for name, rows in {"corpus": texts, "queries": [f"{text[:20]} a" for text in texts[:90]]}.items():
        lines = [json.dumps({"_id": f"{name}{i}", "text": text}) for i, text in enumerate(rows)]
        Path(f"beir/{name}.jsonl").write_text("\n".join(lines))
    return texts


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    """A saved encoder with routes for queries and documents."""
    folder = tmp_path_factory.mktemp("routed")
    router = Router({"query": [Dense(16, 16)], "document": [Dense(16, 16)]}, default_route="document")
    model = SentenceTransformer(modules=[*build_encoder(folder / "plain"), router], device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


def test_an_encoder_with_routes_compares_queries_with_documents(run, texts, routed, monkeypatch):
    """Documents compared with documents would give a threshold above nearly all relevant pairs."""
    seen, encode_pairs = [], unrelated_pairs.encode_pairs
    monkeypatch.setattr(
        unrelated_pairs, "encode_pairs", lambda *given, **options: seen.append(given) or encode_pairs(*given, **options)
    )
    plain = json.loads(run("calibrate", "ENC", "texts.txt", "--json")[1])
    assert (plain["texts"], plain["cosines"]["100"]["cosine"] < plain["cosines"]["1000"]["cosine"]) == (300, True)
    Path("docs.txt").write_text("\n".join(f"{text}. The {text[:20]} of the park." for text in texts), "utf8")
    report = json.loads(run("calibrate", routed, "docs.txt", "--json")[1])
    assert (report["documents"], report["queries from"]) == (300, "sentences of the documents")
    report = json.loads(run("calibrate", routed, "beir", "--json")[1])
    assert (report["queries from"], all(query.endswith(" a") for query in seen[-1][2])) == ("beir", True)
    given = ("docs.txt", "--queries", "queries.txt")
    report = json.loads(run("calibrate", routed, *given, "--before", "ENC", "--json")[1])
    assert (report["queries from"], report["cosines"] != report["before"]) == ("queries.txt", True)
    code, out, err = run("calibrate", "ENC", *given, "--quiet")
    assert f"{report['queries']} queries (queries.txt) compared with 300 documents." in out, err
    assert f"{report['before']['1000']['cosine']:.3f}" in out
    code, _, err = run("calibrate", routed, "docs.txt", "--prompt", "a ")
    assert (code, "--prompt is not for queries and documents" in err) == (2, True)


def test_what_is_wrong_with_the_picture_is_known_before_anything_is_encoded(run, texts, monkeypatch):
    code, _, err = run("calibrate", "ENC", "texts.txt", "--before", "ENC", "--picture", "cosines.svg")
    assert (code, "<svg" in Path("cosines.svg").read_text("utf8")) == (0, True), err
    monkeypatch.setattr(calibrate, "load_any", lambda path: pytest.fail("loaded"))
    for wrong in ("nowhere/cosines.png", "beir", "cosines.xyz", "texts.txt"):
        code, _, err = run("calibrate", "ENC", "texts.txt", "--picture", wrong)
        assert (code, "--picture must" in err) == (2, True), err
