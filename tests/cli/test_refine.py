"""``st-extras refine`` and ``repal``: every method on text and on what was computed from it before."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import st_extras
from st_extras.evaluation import sts_evaluator
from st_extras.modules import RepALPostProcessor
from tests.adaptation.texts import topical
from tests.fixtures import SENTENCES


def encoded(name: str) -> Any:
    return st_extras.load(name).encode(SENTENCES)


@pytest.mark.slow
def test_a_stock_layer_does_the_same(run, inputs):
    """With prompts and similarity of the model, and the settings that were given."""
    model = SentenceTransformer(str(inputs / "encoder"), prompts={"query": "the dog "}, similarity_fn_name="dot")
    model.default_prompt_name = "query"
    model.save("prompted")
    Path("domain.txt").write_text("\n".join(topical(160).texts))
    words = ("refine", "locality-preserving", "prompted", "domain.txt", "--set", "recolor=0", "--set", "neighbors=7")
    code, out, err = run(*words, "-o", "ours", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["settings"].items() >= {"recolor": 0.0, "neighbors": 7, "tfidf": True}.items()
    assert (report["stock"], report["sentences"]) == (False, report["settings"]["corpus_size"])
    assert run(*words, "-o", "stock", "--stock")[0] == 0
    stock = SentenceTransformer("stock", device="cpu")
    assert (stock.prompts["query"], stock.default_prompt_name, stock.similarity_fn_name) == ("the dog ", "query", "dot")
    np.testing.assert_allclose(encoded("ours"), stock.encode(SENTENCES), atol=1e-4)


def test_a_refined_encoder_is_not_trained(run):
    assert run("refine", "whitening", "ENC", "TEXT", "-o", "refined")[0] == 0
    for command in (("train", "simcse"), ("adapt",), ("adapt-search",)):
        code, _, err = run(*command, "refined", "TEXT", "-o", "out")
        assert (code, "got 'refined'" in err) == (2, True), err


@pytest.mark.slow
def test_repal_tuned_and_scored(run, inputs):
    assert run("refine", "repal", "ENC", "TEXT", "-o", "fitted", "--set", "lambda_2=0.2")[0] == 0
    before = st_extras.load("fitted")[-1]
    assert (before.lambda_1, before.lambda_2, before.corpus_size) == (0.5, 0.2, 8)
    code, out, err = run("repal", "tune", "fitted", "--sts", "STS", "-o", "tuned", "--sentence-term-only", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["spearman"] >= found["plain"], found["lambda_2"]) == (True, 0)
    code, out, err = run("repal", "evaluate", "tuned", "--sts", "STS", "--sets", "stsb_dev", "--json")
    assert code == 0, err
    columns = json.loads(out)
    model = st_extras.load("tuned")
    for name, state in (("RepAL", model), ("plain", RepALPostProcessor.detach(model))):
        again = sts_evaluator("stsb_dev", inputs)(state)["stsb_dev_spearman_cosine"]
        assert columns[name]["stsb_dev"] == pytest.approx(100 * again)
    assert columns["plain"]["stsb_dev"] == pytest.approx(found["plain"], abs=1e-3)
