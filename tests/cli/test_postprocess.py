"""``st-extras repal``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import st_extras
from st_extras.evaluation import sts_evaluator
from tests.cli.conftest import Run


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

    def test_tuning_on_a_file_of_ones_own(self, run: Run, inputs: Path, fitted: Path) -> None:
        shutil.copy(inputs / "stsb_dev.tsv", "mine.tsv")
        code, out, err = run("repal", "tune", fitted, "--sts", "mine.tsv", "-o", "tuned")
        assert code == 0, err
        assert " on mine, saved to tuned" in " ".join(out.split())

    def test_a_refined_encoder_of_the_hub(self, run: Run, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        load = st_extras.load
        monkeypatch.setattr("sentence_transformers.util.load_file_path", lambda name, file: str(fitted / file))
        monkeypatch.setattr("st_extras.modules.load", lambda name: load(str(fitted)) if name == "me/refined" else None)
        code, out, _ = run("repal", "evaluate", "me/refined", "--sts", "STS", "--sets", "sts12", "--json")
        assert (code, set(json.loads(out))) == (0, {"plain", "RepAL"})

    def test_text_report(self, run: Run) -> None:
        code, out, _ = run("repal", "fit", "ENC", "TEXT", "-o", "fitted", "--redundancy", "pooled")
        assert (code, out) == (0, 'Fitted on 8 sentences, saved to fitted: st_extras.load("fitted")\n')

    def test_fitting_on_statistics(self, run: Run) -> None:
        assert run("statistics", "compute", "ENC", "TEXT", "-o", "all.safetensors")[0] == 0
        words = ("-o", "refined", "--lambda-2", 0.3, "--lambda-1", 0)
        code, out, err = run("repal", "fit", "ENC", "--statistics", "all.safetensors", *words)
        assert (code, out) == (0, 'Fitted on 8 sentences, saved to refined: st_extras.load("refined")\n'), err
        assert run("repal", "fit", "ENC", "TEXT", *words, "--overwrite")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("repal", "fit", "ENC", "none.txt", "-o", "out"), r"none\.txt"),
        (("repal", "fit", "ENC", "TEXT", "-o", "out", "--lambda-2", "nan"), "--lambda-2 must be"),
        (("repal", "fit", "ENC", "TEXT", "-o", "out", "--keywords", "yake"), "--keywords must be one of"),
        (("repal", "tune", "ENC", "--sts", "STS", "-o", "out"), "encoder must have RepAL attached"),
        (("repal", "evaluate", "ENC", "--sts", "STS"), "encoder must have RepAL attached"),
        (("repal", "fit", "ENC", "-o", "out"), r"text or --statistics must be given, .* got neither\.$"),
        (("repal", "fit", "ENC", "TEXT", "--statistics", "s", "-o", "out"), r"only one of them, got both\.$"),
        (("repal", "fit", "ENC", "--statistics", "s", "-o", "out"), "path must be an existing file, got 's'"),
    ],
)
def test_mistakes(assert_refused, arguments: tuple[str, ...], message: str) -> None:
    assert_refused(arguments, message)
