"""``st-extras repal`` and ``st-extras whiten``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import st_extras
from st_extras.evaluation import sts_evaluator
from tests.cli.conftest import Run
from tests.conftest import SENTENCES


@pytest.fixture(scope="module")
def fitted(run_in: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with RepAL fitted on the text."""
    folder = tmp_path_factory.mktemp("repal")
    code, _, err = run_in(folder, "repal", "fit", "ENC", "TEXT", "-o", "fitted", "--lambda-1", 0.3, "--lambda-2", 0.2)
    assert code == 0, err
    return folder / "fitted"


@pytest.fixture(scope="module")
def tuned(run_in: Run, fitted: Path) -> tuple[Path, dict[str, Any]]:
    """A folder with both weights chosen on the pairs, and the JSON report."""
    code, out, err = run_in(fitted.parent, "repal", "tune", "fitted", "--sts", "STS", "-o", "tuned", "--json")
    assert code == 0, err
    return fitted.parent / "tuned", json.loads(out)


class TestRepAL:
    def test_fit_tune_evaluate(self, run: Run, inputs: Path, tuned: tuple[Path, dict[str, Any]]) -> None:
        folder, found = tuned
        assert found["settings"] >= 2000
        assert found["spearman"] >= found["plain"]
        code, out, _ = run("repal", "evaluate", folder, "--sts", "STS", "--sets", "stsb_dev", "--json")
        assert code == 0
        columns = json.loads(out)
        assert columns["RepAL"]["stsb_dev"] == pytest.approx(found["spearman"], abs=1.0)
        model = st_extras.load(str(folder))
        again = sts_evaluator("stsb_dev", inputs)(model)["stsb_dev_spearman_cosine"]
        assert columns["RepAL"]["stsb_dev"] == pytest.approx(100 * again)
        plain = sts_evaluator("stsb_dev", inputs)(st_extras.modules.RepALPostProcessor.detach(model))
        assert columns["plain"]["stsb_dev"] == pytest.approx(100 * plain["stsb_dev_spearman_cosine"])
        assert columns["plain"]["stsb_dev"] != pytest.approx(columns["RepAL"]["stsb_dev"])
        assert columns["plain"]["stsb_dev"] == pytest.approx(found["plain"], abs=1e-3)
        code, out, _ = run("evaluate", folder, "--sts", "STS", "--sets", "stsb_dev", "--json")
        assert json.loads(out)["stsb_dev"] == pytest.approx(columns["RepAL"]["stsb_dev"])

    def test_tuning_the_sentence_term_alone(self, run: Run, fitted: Path) -> None:
        code, out, err = run("repal", "tune", fitted, "--sts", "STS", "-o", "tuned", "--sentence-term-only", "--json")
        assert code == 0, err
        found = json.loads(out)
        assert found["lambda_2"] == 0
        assert found["settings"] < 100
        assert all(getattr(module, "lambda_2", 0) == 0 for module in st_extras.load("tuned"))

    def test_tuning_by_subset(self, run: Run, fitted: Path, tuned: tuple[Path, dict[str, Any]]) -> None:
        code, out, err = run("repal", "tune", fitted, "--sts", "STS", "-o", "subset", "--json", "--by-subset")
        assert code == 0, err
        assert json.loads(out)["plain"] != tuned[1]["plain"]

    def test_a_refined_encoder_of_the_hub(self, run: Run, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        load = st_extras.load
        monkeypatch.setattr("sentence_transformers.util.load_file_path", lambda name, file: str(fitted / file))
        monkeypatch.setattr("st_extras.modules.load", lambda name: load(str(fitted)) if name == "me/refined" else None)
        code, out, _ = run("repal", "evaluate", "me/refined", "--sts", "STS", "--sets", "sts12", "--json")
        assert (code, set(json.loads(out))) == (0, {"plain", "RepAL"})

    def test_text_report(self, run: Run) -> None:
        code, out, _ = run("repal", "fit", "ENC", "TEXT", "-o", "fitted", "--redundancy", "pooled")
        assert (code, out) == (0, 'Fitted on 8 sentences, saved to fitted: st_extras.load("fitted")\n')


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("repal", "fit", "ENC", "none.txt", "-o", "out"), r"none\.txt"),
        (("repal", "fit", "ENC", "TEXT", "-o", "out", "--lambda-2", "nan"), "--lambda-2 must be"),
        (("repal", "fit", "ENC", "TEXT", "-o", "out", "--keywords", "yake"), "--keywords must be one of"),
        (("repal", "tune", "ENC", "--sts", "STS", "-o", "out"), "encoder must have RepAL attached"),
        (("repal", "evaluate", "ENC", "--sts", "STS"), "encoder must have RepAL attached"),
        (("whiten", "fit", "ENC", "TEXT", "-o", "out", "--dimensions", "99"), "99"),
    ],
)
def test_mistakes(assert_refused, arguments: tuple[str, ...], message: str) -> None:
    assert_refused(arguments, message)
