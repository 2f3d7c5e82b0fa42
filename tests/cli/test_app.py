"""The command line as a whole: help, exit codes, one line for every mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import st_extras
from st_extras.cli import app as cli
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
    @pytest.mark.parametrize("command", ["train", "adapt", "evaluate", "demo"])
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
        commands = ("train", "adapt", "evaluate", "demo", "repal", "whiten", "frequencies")
        assert all(command in shown.output for command in commands)
