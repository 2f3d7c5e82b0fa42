"""The command line as a whole: help, exit codes, one line for every mistake, and ``evaluate``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import st_extras
from st_extras.cli import app as cli
from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import SEVEN_STS, sts_evaluator
from tests.cli.conftest import Run

ROOT = Path(st_extras.__file__).parents[1]


@pytest.mark.parametrize("arguments", [("train", "dclr", "ENC"), ("train", "dclr", "ENC", "TEXT"), ("nonsense",)])
def test_usage_errors_have_the_same_exit_code(run: Run, arguments: tuple[str, ...]) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "Usage" in err


@pytest.mark.slow
def test_a_real_process_ends_in_one_line_and_code_2(inputs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "st_extras.cli", "train", "dclr", str(inputs / "encoder"), "none.txt", "-o", "out"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: There is no file 'none.txt'.\n"
    assert list(tmp_path.iterdir()) == []


class TestHelp:
    @pytest.mark.parametrize("columns", ["60", "80", "200"])
    @pytest.mark.parametrize("command", ["train", "recipe", "evaluate", "demo"])
    def test_every_option_has_a_line_with_its_whole_name(self, command: str, columns: str) -> None:
        group = typer.main.get_command(cli.app)
        shown = CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": columns, "TERMINAL_WIDTH": columns})
        assert shown.exit_code == 0
        for parameter in group.commands[command].params:  # type: ignore[attr-defined]
            if parameter.param_type_name == "option":
                assert max(parameter.opts, key=len) in shown.output
                assert parameter.help

    def test_without_arguments(self) -> None:
        shown = CliRunner().invoke(cli.app, [])
        commands = ("train", "recipe", "evaluate", "demo", "repal", "whiten", "frequencies")
        assert all(command in shown.output for command in commands)


class TestEvaluate:
    def test_json(self, run: Run, inputs: Path) -> None:
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--json")
        metrics = sts_evaluator(SEVEN_STS, inputs)(load_encoder(inputs / "encoder", device="cpu"))
        assert code == 0
        expected = {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}
        assert json.loads(out) == pytest.approx(expected)
        assert list(expected) == [*SEVEN_STS, "average"]

    def test_what_is_no_number_is_null(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        scores = {"x_spearman_cosine": float("nan"), "y_spearman_cosine": 0.5}
        monkeypatch.setattr("st_extras.evaluation.sts_evaluator", lambda *a, **k: lambda model: scores)
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--json")
        assert (code, out) == (0, '{"x": null, "y": 50.0}\n')

    def test_table_of_chosen_sets(self, run: Run) -> None:
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--sets", "sts12", "--sets", "stsb", "--quiet")
        assert code == 0
        assert [name in out for name in ("sts12", "stsb_test", "average", "sts13")] == [True, True, True, False]

    def test_one_file_and_weighted_mean(self, run: Run, inputs: Path) -> None:
        file = inputs / "sts13.tsv"
        code, out, _ = run("evaluate", "ENC", "--sts", file, "--sets", "mine", "--setting", "wmean", "--json")
        metrics = sts_evaluator("mine", file, setting="wmean")(load_encoder(inputs / "encoder", device="cpu"))
        assert (code, json.loads(out)) == (0, {"mine": pytest.approx(100 * metrics["mine_spearman_cosine"])})

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("FOLDER", "--sts", "STS"), r"modules\.json"),
            (("ENC", "--sts", "none"), "source .*'none'"),
            (("ENC", "--sts", "STS", "--sets", "sts99"), "name must be one of"),
            (("ENC", "--sts", "STS", "--setting", "best"), "setting must be"),
            (("ENC", "--sts", "TSV"), r"one name .*stsb_dev\.tsv"),
        ],
    )
    def test_mistakes(self, assert_refused, arguments: tuple[str, ...], message: str) -> None:
        assert_refused(("evaluate", *arguments), message)
