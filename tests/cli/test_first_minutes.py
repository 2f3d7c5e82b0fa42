"""What a new user meets first: help that appears at once, completion, and libraries that keep quiet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import st_extras

ROOT = Path(st_extras.__file__).parents[1]
HEAVY = ("torch", "transformers", "sentence_transformers", "datasets", "huggingface_hub", "scipy", "nltk", "sklearn")


def started(*words: str, after: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``st-extras`` in a process of its own, then the code ``after``."""
    code = (
        f"import sys; sys.argv = {['st-extras', *words]!r}\n"
        "from st_extras.cli.app import main\n"
        f"try:\n    main()\nfinally:\n    {after or 'pass'}\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


COMPLETING = {"_ST_EXTRAS_COMPLETE": "complete_bash", "COMP_CWORD": "1"}


@pytest.mark.parametrize(
    ("words", "variables", "shown"),
    [
        (("--help",), {}, "--install-completion"),
        (("train", "--help"), {}, "--learning-rate"),
        (("doctor", "--help"), {}, "--json"),
        ((), {**COMPLETING, "COMP_WORDS": "st-extras do"}, "doctor"),
    ],
)
def test_it_answers_before_anything_heavy_is_imported(
    words: tuple[str, ...], variables: dict[str, str], shown: str
) -> None:
    look = f"print(sorted({{*{HEAVY!r}}} & {{*sys.modules}}), file=sys.stderr)"
    done = started(*words, after=look, **variables)
    assert shown in done.stdout
    assert (done.returncode, done.stderr) == (0, "[]\n")


class TestCompletion:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("st-extras d", {"demo", "doctor"}),
            ("st-extras repal ", {"evaluate", "fit", "tune"}),
            ("st-extras demo --st", {"--steps", "--sts-dir"}),
        ],
    )
    def test_commands_and_options(self, line: str, expected: set[str]) -> None:
        count = str(len(line.split(" ")) - 1)
        done = started(_ST_EXTRAS_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=count)
        assert {*done.stdout.split()} == expected, done.stderr

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_it_is_shown_and_installed(self, shell: str, tmp_path: Path) -> None:
        variables = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
        shown = started("--show-completion", shell, **variables)
        assert shown.returncode == 0, shown.stderr
        assert "_ST_EXTRAS_COMPLETE" in shown.stdout
        assert list(tmp_path.iterdir()) == []
        installed = started("--install-completion", shell, **variables)
        assert installed.returncode == 0, installed.stderr
        made = [path.read_text(encoding="utf8") for path in tmp_path.rglob("*") if path.is_file()]
        assert any("_ST_EXTRAS_COMPLETE" in text for text in made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, "40 False"), ({"TRANSFORMERS_VERBOSITY": "info", "HF_HUB_DISABLE_PROGRESS_BARS": "0"}, "20 True")],
)
def test_other_libraries_are_quiet_unless_the_user_asks(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS"):
        monkeypatch.delenv(name, raising=False)
    look = (
        "from transformers.utils import logging as found; "
        "print(found.get_verbosity(), found.is_progress_bar_enabled(), file=sys.stderr)"
    )
    assert started("--help", after=look, **variables).stderr.strip() == expected
