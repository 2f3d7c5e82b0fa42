"""The workflows and templates of .github: their schema, and whether what they name exists.

They run elsewhere, so a renamed file, extra, marker or command would be found only after it was published.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from st_extras.cli.app import app
from tests.packaging.project import EXTRAS, PYPROJECT, ROOT, classified_pythons

GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: path.read_text(encoding="utf8") for path in sorted((GITHUB / "workflows").glob("*.yml"))}
PROGRAMS = {"python", "uv", "pytest", "ruff", "mypy", "st-extras", "twine", "test"}
"""The programs that a step may start; each comes with the runner, with pip, or with an extra."""
FILE = re.compile(r"^[\w./-]+/[\w.*-]+$|\.(py|toml|txt|sh|cfg)$")
"""Words that name a file."""
MADE = re.compile(r"dist/")
"""Files that a step before has made."""
BRACKETS = re.compile(r"(?:\.|st-extras)\[([\w,]+)\]")
"""The extras that are installed with the package."""
MARKERS = {line.split(":")[0] for line in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]}


RIGHTS = {"docs": {"id-token": "write", "pages": "write"}, "release": {"id-token": "write"}}
"""What the job "publish" of a workflow may do beyond reading."""


def _jobs(text: str) -> dict[str, Any]:
    return dict(yaml.safe_load(text)["jobs"])


def _steps(text: str, key: str) -> Iterator[str]:
    for job in _jobs(text).values():
        yield from (step[key] for step in job["steps"] if key in step)


def command_faults(command: str) -> list[str]:
    """What a command names that is not there."""
    program, *words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "EXPRESSION", command))
    group: Any = typer.main.get_command(app)
    named = [name for word in words for names in BRACKETS.findall(word) for name in names.split(",")]
    expression = words[words.index("-m") + 1] if program == "pytest" and "-m" in words else ""
    missing = {
        "program": [] if program in PROGRAMS else [program],
        "command": [word for word in words[:1] if program == "st-extras" and word not in group.commands],
        "file": [word for word in words if FILE.search(word) and not (MADE.match(word) or (ROOT / word).exists())],
        "extra": [name for name in named if name not in EXTRAS],
        "marker": [name for name in re.findall(r"\w+", expression) if name not in MARKERS | {"not", "and"}],
    }
    return [f"the {kind} {name}" for kind, names in missing.items() for name in names]


@pytest.mark.parametrize("name", WORKFLOWS)
class TestWorkflow:
    def test_what_its_commands_name_exists(self, name):
        lines = [line for step in _steps(WORKFLOWS[name], "run") for line in step.splitlines()]
        assert lines
        assert {line: command_faults(line) for line in lines if command_faults(line)} == {}

    def test_actions_are_pinned_to_a_commit_and_say_which_version(self, name):
        uses = re.findall(r"uses: (.*)", WORKFLOWS[name])
        assert len(uses) == len([*_steps(WORKFLOWS[name], "uses")]) > 0
        assert [line for line in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []

    def test_it_has_no_more_rights_than_it_needs(self, name):
        workflow = yaml.safe_load(WORKFLOWS[name])
        assert workflow["permissions"] == {"contents": "read"}
        given = {job: found["permissions"] for job, found in workflow["jobs"].items() if "permissions" in found}
        assert given == ({"publish": RIGHTS[name]} if name in RIGHTS else {})
        assert "secrets." not in WORKFLOWS[name]
        checkouts = WORKFLOWS[name].count("actions/checkout@")
        assert WORKFLOWS[name].count("persist-credentials: false") == checkouts

    def test_it_ends(self, name):
        assert "concurrency" in yaml.safe_load(WORKFLOWS[name])
        assert all(job["timeout-minutes"] <= 120 for job in _jobs(WORKFLOWS[name]).values())


def test_one_action_has_one_version():
    pins = {line for text in WORKFLOWS.values() for line in re.findall(r"uses: (.*)", text)}
    assert len(pins) == len({pin.split("@")[0] for pin in pins})


def test_the_tests_run_on_the_lowest_and_the_newest_python():
    jobs, pythons = _jobs(WORKFLOWS["tests"]), classified_pythons()
    matrix = jobs["fast"]["strategy"]["matrix"]
    assert matrix["python"][0] == pythons[0]
    assert matrix["python"][-1] == pythons[-1]
    assert {*matrix["python"]} <= {*pythons}
    assert all(f'"{choice}"' in matrix["versions"] for choice in ("lowest", "pinned", "newest"))
    assert {*jobs["systems"]["strategy"]["matrix"]["system"]} == {"windows-latest", "macos-latest"}
    mypy = PYPROJECT["tool"]["mypy"]["python_version"]
    assert f'python-version: "{mypy}"' in WORKFLOWS["lint"]


def test_only_a_tag_publishes_and_only_what_was_tried():
    workflow = yaml.safe_load(WORKFLOWS["release"])
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key "on" as true
    publish = workflow["jobs"]["publish"]
    assert {*publish["needs"]} == {"build", "try"}
    assert publish["environment"]["name"] == "pypi"


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ('uv pip install --constraint constraints.txt -e ".[dev]"', None),
        ('uv pip install --constraint constraint.txt -e ".[dev]"', "the file constraint.txt"),
        ('uv pip install -e ".[dev,all]"', "the extra all"),
        ('uv pip install "st-extras[demos] @ $(echo dist/*.whl)"', "the extra demos"),
        ('pytest -n auto -m "not slow and not benchmark"', "the marker benchmark"),
        ("pytest tests/cli/test_nothing.py", "the file tests/cli/test_nothing.py"),
        ("bash tests/versions.sh", "the program bash"),
        ("st-extras diagnose", "the command diagnose"),
        ("st-extras doctor", None),
        ("twine check --strict dist/*", None),
    ],
)
def test_a_planted_fault_is_seen(command, fault):
    assert command_faults(command) == ([] if fault is None else [fault])


def test_the_hooks_before_a_commit_run_what_the_workflow_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf8"))["repos"][0]["hooks"]
    programs = {" ".join(hook["entry"].split()[:2]) for hook in hooks}
    assert programs == {"ruff check", "ruff format"}
    assert all(program in WORKFLOWS["lint"] for program in programs)


SCHEMAS = {
    "vendor.github-workflows": [f".github/workflows/{name}.yml" for name in WORKFLOWS],
    "custom.github-workflows-require-timeout": [f".github/workflows/{name}.yml" for name in WORKFLOWS],
    "vendor.dependabot": [".github/dependabot.yml"],
    "vendor.citation-file-format": ["CITATION.cff"],
    "vendor.github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "vendor.github-issue-forms": [".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"],
}


def _check_schema(schema: str, *files: str | Path) -> subprocess.CompletedProcess[str]:
    words = ["-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("check_jsonschema") is None, reason="needs check-jsonschema")
class TestSchemas:
    @pytest.mark.parametrize("schema", SCHEMAS)
    def test_the_files_follow_their_schema(self, schema):
        done = _check_schema(schema, *SCHEMAS[schema])
        assert done.returncode == 0, done.stdout + done.stderr

    def test_a_planted_fault_is_seen(self, tmp_path):
        broken = tmp_path / "broken.yml"
        broken.write_text(WORKFLOWS["lint"].replace("runs-on:", "run-on:"), encoding="utf8")
        done = _check_schema("vendor.github-workflows", broken)
        assert done.returncode == 1
        assert "broken.yml" in done.stdout
