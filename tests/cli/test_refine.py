"""``st-extras refine`` and ``repal``: every method on text."""

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import st_extras
from st_extras.evaluation import sts_evaluator
from st_extras.modules import RepALPostProcessor, locality_preserving
from tests.adaptation.texts import topical
from tests.fixtures import SENTENCES


@pytest.mark.slow
def test_a_linear_layer_is_a_stock_one(run, inputs):
    """With prompts and similarity of the model, and the settings that were given."""
    model = SentenceTransformer(str(inputs / "encoder"), prompts={"query": "the dog "}, similarity_fn_name="dot")
    model.default_prompt_name = "query"
    model.save("prompted")
    texts = topical(160).texts
    Path("domain.txt").write_text("\n".join(texts))
    words = ("refine", "locality-preserving", "prompted", "domain.txt", "--set", "recolor=0", "--set", "neighbors=7")
    code, out, err = run(*words, "-o", "stock", "--json")
    assert (code, json.loads(out)) == (0, {"method": "locality-preserving", "output": "stock"}), err
    stock = SentenceTransformer("stock", device="cpu")
    assert (stock.prompts["query"], stock.default_prompt_name, stock.similarity_fn_name) == ("the dog ", "query", "dot")
    expected = locality_preserving(model, texts, recolor=0.0, neighbors=7)
    np.testing.assert_allclose(stock.encode(SENTENCES), expected.encode(SENTENCES), atol=1e-4)


def test_a_refined_encoder_is_not_trained(run):
    assert run("refine", "repal", "ENC", "TEXT", "-o", "refined", "--set", "keywords=tfidf")[0] == 0
    for command in (("train", "simcse"), ("adapt",), ("adapt-search",)):
        code, _, err = run(*command, "refined", "TEXT", "-o", "out")
        assert (code, "got 'refined'" in err) == (2, True), err


@pytest.mark.slow
def test_repal_tuned(run, inputs):
    assert run("refine", "repal", "ENC", "TEXT", "-o", "fitted", "--set", "lambda_2=0.2")[0] == 0
    before = st_extras.load("fitted")[-1]
    assert (before.lambda_1, before.lambda_2, before.corpus_size) == (0.5, 0.2, 8)
    code, out, err = run("repal", "tune", "fitted", "--sts", "STS", "-o", "tuned", "--sentence-term-only", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["spearman"] >= found["plain"], found["lambda_2"]) == (True, 0)
    model = st_extras.load("tuned")
    for name, state in (("spearman", model), ("plain", RepALPostProcessor.detach(model))):
        again = sts_evaluator("stsb_dev", inputs)(state)["stsb_dev_spearman_cosine"]
        assert found[name] == pytest.approx(100 * again, abs=1e-3)
