"""``st-extras whiten``, ``center``, ``locality`` and ``sif``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import st_extras
from tests.cli.conftest import Run
from tests.conftest import SENTENCES
from tests.modules.cases import corpus_of_words


class TestWhitening:
    def test_whitening(self, run: Run) -> None:
        assert run("whiten", "fit", "ENC", "TEXT", "-o", "white", "--dimensions", 4)[0] == 0
        assert run("whiten", "fit", "ENC", "TEXT", "-o", "stock", "--dimensions", 4, "--stock")[0] == 0
        ours = st_extras.load("white").encode(SENTENCES)
        stock = SentenceTransformer("stock", device="cpu").encode(SENTENCES)
        assert ours.shape == (len(SENTENCES), 4)
        np.testing.assert_allclose(ours, stock, atol=1e-4)

    def test_stock_whitening_keeps_prompts_and_similarity(self, run: Run, inputs: Path) -> None:
        model = SentenceTransformer(str(inputs / "encoder"), prompts={"query": "the dog "}, similarity_fn_name="dot")
        model.default_prompt_name = "query"
        model.save("prompted")
        for name, options in (("white", ()), ("stock", ("--stock",))):
            assert run("whiten", "fit", "prompted", "TEXT", "-o", name, *options)[0] == 0
        stock = SentenceTransformer("stock", device="cpu")
        assert (stock.prompts["query"], stock.default_prompt_name, stock.similarity_fn_name) == (
            "the dog ", "query", "dot",
        )  # fmt: skip
        np.testing.assert_allclose(stock.encode(SENTENCES), st_extras.load("white").encode(SENTENCES), atol=1e-4)

    def test_soft_whitening(self, run: Run) -> None:
        code, out, err = run("whiten", "fit", "ENC", "TEXT", "-o", "soft", "--epsilon", 0.1, "--json")
        assert code == 0, err
        assert json.loads(out) == {
            "sentences": 8, "dimensions": None, "epsilon": 0.1, "stock": False, "output": "soft",
        }  # fmt: skip
        assert st_extras.load("soft")[2].epsilon == 0.1


class TestCentring:
    def test_centring_and_all_but_the_top(self, run: Run, inputs: Path) -> None:
        plain = SentenceTransformer(str(inputs / "encoder"), device="cpu").encode(SENTENCES)
        assert run("center", "fit", "ENC", "TEXT", "-o", "centred")[0] == 0
        np.testing.assert_allclose(st_extras.load("centred").encode(SENTENCES), plain - plain.mean(axis=0), atol=1e-5)
        assert run("center", "fit", "ENC", "TEXT", "-o", "stock", "--components", 2, "--stock")[0] == 0
        out = SentenceTransformer("stock", device="cpu").encode(SENTENCES)
        assert np.linalg.matrix_rank(out - out.mean(axis=0), tol=1e-4) == 5

    def test_more_components_than_text(self, assert_refused) -> None:
        words = ("center", "fit", "ENC", "TEXT", "-o", "out", "--components", "7")
        assert_refused(words, r"components must be below .*8 sentences vary \(7\), got 7")


class TestLocality:
    def test_locality(self, run: Run) -> None:
        Path("domain.txt").write_text("\n".join(corpus_of_words(160)))
        code, out, err = run("locality", "fit", "ENC", "domain.txt", "-o", "ours", "--recolor", 0, "--json")
        assert code == 0, err
        report = json.loads(out)
        assert report.pop("sentences") > 100
        assert report == {
            "neighbors": 10, "power": 1.0, "recolor": 0.0, "epsilon": 0.1, "words": True, "stock": False,
            "output": "ours",
        }  # fmt: skip
        assert run("locality", "fit", "ENC", "domain.txt", "-o", "stock", "--recolor", 0, "--stock")[0] == 0
        ours, stock = st_extras.load("ours"), SentenceTransformer("stock", device="cpu")
        assert ours[2].recolor == 0
        np.testing.assert_allclose(ours.encode(SENTENCES), stock.encode(SENTENCES), atol=1e-4)

    def test_too_few_texts(self, assert_refused) -> None:
        message = r"sentences must have at least 50 different embeddings for neighbors=10, got 8: fit on more text, or"
        assert_refused(("locality", "fit", "ENC", "TEXT", "-o", "out"), message)


class TestSIF:
    def test_text_or_counts(self, run: Run) -> None:
        code, out, err = run("sif", "fit", "ENC", "TEXT", "-o", "one", "--a", 0.01)
        assert (code, out) == (0, 'Fitted on 8 sentences, saved to one: st_extras.load("one")\n'), err
        assert run("frequencies", "count", "ENC", "TEXT", "-o", "counts.json")[0] == 0
        assert run("sif", "fit", "ENC", "--frequencies", "counts.json", "-o", "two", "--a", 0.01)[0] == 0
        one, two = (st_extras.load(name).encode(SENTENCES) for name in ("one", "two"))
        assert np.array_equal(one, two)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("whiten", "fit", "ENC", "TEXT", "-o", "out", "--dimensions", "99"), "99"),
        (("whiten", "fit", "ENC", "-o", "out"), r"text or --statistics must be given, .* got neither\.$"),
        (("center", "fit", "ENC", "TEXT", "--statistics", "s", "-o", "out"), r"only one of them, got both\.$"),
        (("whiten", "fit", "ENC", "--statistics", "s", "-o", "out"), "path must be an existing file, got 's'"),
        (("whiten", "fit", "ENC", "--statistics", "TEXT", "-o", "out"), "not a complete safetensors file"),
        (("center", "fit", "ENC", "TEXT", "EMPTY", "-o", "out"), r"empty\.txt"),
        (("center", "fit", "ENC", "LATIN", "-o", "out"), r"latin\.txt, line 3"),
        (("center", "fit", "ENC", "none.txt", "-o", "out"), r"none\.txt"),
        (("center", "fit", "ENC", "TEXT", "-o", "FOLDER"), "--output|output"),
        (("sif", "fit", "ENC", "-o", "out"), r"text or --frequencies must be given, .* got neither\.$"),
        (("sif", "fit", "ENC", "--frequencies", "none.json", "-o", "out"), r"none\.json"),
        (("whiten", "fit", "none", "TEXT", "-o", "out"), "'none' could not be loaded"),
    ],
)
def test_mistakes(assert_refused, arguments: tuple[str, ...], message: str) -> None:
    assert_refused(arguments, message)
