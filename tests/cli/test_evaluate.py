"""``st-extras evaluate``: STS sets, labelled texts, and tasks of MTEB."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import SEVEN_STS, LabeledTextEvaluator, mteb, sts_evaluator
from tests.cli.conftest import Run
from tests.conftest import SENTENCES


class TestEvaluate:
    def test_json(self, run: Run, inputs: Path) -> None:
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--json")
        metrics = sts_evaluator(SEVEN_STS, inputs)(load_encoder(inputs / "encoder", device="cpu"))
        assert code == 0
        expected = {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}
        assert json.loads(out) == pytest.approx(expected)
        assert list(expected) == [*SEVEN_STS, "average"]

    def test_several_encoders(self, run: Run, inputs: Path) -> None:
        shutil.copytree(inputs / "encoder", "other")
        code, out, _ = run("evaluate", "ENC", "other", "--sts", "STS", "--sets", "sts12", "--json")
        alone = json.loads(run("evaluate", "ENC", "--sts", "STS", "--sets", "sts12", "--json")[1])
        assert (code, json.loads(out)) == (0, {str(inputs / "encoder"): alone, "other": alone})
        code, out, _ = run("evaluate", "ENC", "other", "--sts", "STS", "--sets", "sts12", "--quiet")
        assert (code, out.count(f"{alone['sts12']:.2f}")) == (0, 2)

    def test_what_is_no_number_is_null(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        scores = {"x_spearman_cosine": float("nan"), "y_spearman_cosine": 0.5}
        monkeypatch.setattr("st_extras.evaluation.sts_evaluator", lambda *a, **k: lambda model: scores)
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--json")
        assert (code, out) == (0, '{"x": null, "y": 50.0}\n')

    def test_table_of_chosen_sets(self, run: Run) -> None:
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--sets", "sts12", "--sets", "stsb", "--quiet")
        assert code == 0
        assert [name in out for name in (" set ", "sts12", "stsb_test", "average", "sts13")] == [True] * 4 + [False]

    def test_one_file_and_weighted_mean(self, run: Run, inputs: Path) -> None:
        file = inputs / "sts13.tsv"
        code, out, _ = run("evaluate", "ENC", "--sts", file, "--sets", "mine", "--setting", "wmean", "--json")
        metrics = sts_evaluator("mine", file, setting="wmean")(load_encoder(inputs / "encoder", device="cpu"))
        assert (code, json.loads(out)) == (0, {"mine": pytest.approx(100 * metrics["mine_spearman_cosine"])})

    def test_one_file_is_a_set_of_its_name(self, run: Run, inputs: Path) -> None:
        code, out, _ = run("evaluate", "ENC", "--sts", inputs / "sts13.tsv", "--json")
        metrics = sts_evaluator("sts13", inputs / "sts13.tsv")(load_encoder(inputs / "encoder", device="cpu"))
        assert (code, json.loads(out)) == (0, {"sts13": pytest.approx(100 * metrics["sts13_spearman_cosine"])})

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("FOLDER", "--sts", "STS"), r"modules\.json"),
            (("ENC", "--sts", "none"), "source .*'none'"),
            (("ENC", "--sts", "STS", "--sets", "sts99"), "name must be one of"),
            (("ENC", "--sts", "STS", "--setting", "best"), "setting must be"),
            (("ENC", "--sts", "TSV", "--sets", "a", "--sets", "b"), r"one name .*stsb_dev\.tsv"),
        ],
    )
    def test_mistakes(self, assert_refused, arguments: tuple[str, ...], message: str) -> None:
        assert_refused(("evaluate", *arguments), message)


class TestLabeled:
    LABELS = ("a", "b", "a", "b", "c", "c", "a", "b")

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "intents.tsv"
        rows = [f"{label}\t{sentence}\n" for label, sentence in zip(self.LABELS, SENTENCES, strict=True)]
        path.write_text("label\ttext\n" + "".join(rows))
        return path

    def test_json(self, run: Run, inputs: Path, file: Path) -> None:
        code, out, _ = run("evaluate", "ENC", "--labeled", file, "--json")
        evaluator = LabeledTextEvaluator(SENTENCES, self.LABELS)
        expected = evaluator(load_encoder(inputs / "encoder", device="cpu"))
        assert code == 0
        assert json.loads(out) == pytest.approx({name: 100 * value for name, value in expected.items()})

    def test_table(self, run: Run, file: Path) -> None:
        code, out, _ = run("evaluate", "ENC", "--labeled", file, "--quiet")
        assert code == 0
        shown = ("Labelled texts x 100", " metric ", "knn5_accuracy", "map_at_r", "mean")
        assert [text in out for text in (*shown, " set ")] == [True] * 5 + [False]

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            (("--sts", "STS"), "--labeled does not go with --sts, --sets or --setting: its file is the data"),
            (("--sets", "sts12"), "--labeled does not go with --sts"),
            (("--setting", "wmean"), "--labeled does not go with --sts"),
            (("--mteb", "STS12"), "--mteb does not go with --labeled"),
        ],
    )
    def test_it_stands_alone(self, assert_refused: Any, option: tuple[str, str], message: str) -> None:
        assert_refused(("evaluate", "ENC", "--labeled", "TSV", *option), message)

    @pytest.mark.parametrize(
        ("file", "message"),
        [
            ("none.tsv", r"no file of labelled texts 'none\.tsv'"),
            ("", "no file of labelled texts"),
            ("FOLDER", "no file of labelled texts"),
            ("TSV", r"stsb_dev\.tsv has no column label"),
            ("JSONL", r"broken\.jsonl, line 1 has no column label"),
            ("MORE", "path must be a file whose name ends in"),
        ],
    )
    def test_mistakes(self, assert_refused: Any, file: str, message: str) -> None:
        assert_refused(("evaluate", "ENC", "--labeled", file), message)


class TestMTEB:
    """The package itself is tried in tests/evaluation/test_mteb.py; here, what the command makes of it."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """What was asked of it; every score is 0.25."""
        seen: list[Any] = []

        def scores(model: Any, tasks: list[str], **options: Any) -> dict[str, float]:
            seen.append(options)
            return dict.fromkeys(tasks, 0.25)

        monkeypatch.setattr(mteb, "mteb_tasks", list)
        monkeypatch.setattr(mteb, "mteb_scores", scores)
        return seen

    def test_json(self, run: Run, asked: list[Any]) -> None:
        code, out, _ = run("evaluate", "ENC", "--mteb", "STS12", "--mteb", "STS13", "--json")
        assert (code, json.loads(out), asked) == (0, {"STS12": 25.0, "STS13": 25.0}, [{"show_progress_bar": False}])

    def test_table(self, run: Run, asked: list[Any]) -> None:
        code, out, _ = run("evaluate", "ENC", "--mteb", "STS12")
        assert (code, asked) == (0, [{"show_progress_bar": True}])
        assert [text in out for text in ("MTEB main score x 100", " task ", "STS12", "25.00")] == [True] * 4

    @pytest.mark.parametrize("option", [("--sts", "STS"), ("--sets", "sts12"), ("--setting", "wmean")])
    def test_its_tasks_bring_their_own_data(self, assert_refused: Any, option: tuple[str, str]) -> None:
        assert_refused(("evaluate", "ENC", "--mteb", "STS12", *option), "--mteb does not go with --sts, --sets or")
