"""The workflows of .github: their schema, their rights, and whether what they name exists.

They run elsewhere, so a renamed file, extra, marker or command would be found only after it was published.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.docs.pages import command_fault
from tests.packaging.project import EXTRAS, PROJECT, PYPROJECT, ROOT

WORKFLOWS = {path.stem: path.read_text(encoding="utf8") for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
PARSED: dict[str, Any] = {name: yaml.safe_load(text) for name, text in WORKFLOWS.items()}
MARKERS = {line.split(":")[0] for line in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]} | {"not", "and"}
RIGHTS = {"docs": {"id-token": "write", "pages": "write"}, "release": {"id-token": "write"}}
"""What the job "publish" of a workflow may do beyond reading."""


def faults(command: str) -> list[str]:
    """What a command names that is not there: a file, an extra, a marker or a command of st-extras."""
    words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "EXPRESSION", command))
    extras = [name for names in re.findall(r"(?:\.|st-extras)\[([\w,]+)\]", command) for name in names.split(",")]
    markers = re.findall(r"\w+", words[words.index("-m") + 1]) if words[0] == "pytest" and "-m" in words else []
    files = [word for word in words if re.search(r"^[\w./-]+/[\w.*-]+$|\.(py|toml|txt|sh|cfg)$", word)]
    named = command_fault(words[1:]) if words[0] == "st-extras" else None
    return [
        *(name for name in extras if name not in EXTRAS),
        *(name for name in markers if name not in MARKERS),
        *(name for name in files if not name.startswith("dist/") and not (ROOT / name).exists()),
        *([named] if named else []),
    ]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_names_what_exists_and_may_do_no_more_than_it_needs(name):
    jobs = PARSED[name]["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    lines = [line for step in steps if "run" in step for line in step["run"].splitlines()]
    assert {line: faults(line) for line in lines if faults(line)} == {}
    uses = re.findall(r"uses: (.*)", WORKFLOWS[name])
    assert [line for line in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert PARSED[name]["permissions"] == {"contents": "read"}
    given = {job: found["permissions"] for job, found in jobs.items() if "permissions" in found}
    assert given == ({"publish": RIGHTS[name]} if name in RIGHTS else {})
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout")]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ('uv pip install --constraint constraint.txt -e ".[dev]"', "constraint.txt"),
        ('uv pip install -e ".[dev,plots]"', "plots"),
        ("pytest -m 'not slow and not benchmark'", "benchmark"),
        ("st-extras diagnose", "the command diagnose"),
    ],
)
def test_a_planted_fault_is_seen(command, fault):
    assert faults(command) == [fault]


def test_the_tests_run_on_the_lowest_and_the_newest_python():
    pythons = [f"3.{minor}" for line in PROJECT["classifiers"] for minor in re.findall(r":: 3\.(\d+)$", line)]
    tested = PARSED["tests"]["jobs"]["fast"]["strategy"]["matrix"]["python"]
    assert (tested[0], tested[-1]) == (pythons[0], pythons[-1])
    assert PROJECT["requires-python"] == f">={pythons[0]}"


def test_only_a_tag_publishes_and_only_what_was_tried():
    assert PARSED["release"][True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key "on" as true
    assert {*PARSED["release"]["jobs"]["publish"]["needs"]} == {"build", "try"}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("check_jsonschema") is None, reason="needs check-jsonschema")
@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-workflows", ".github/workflows/*.yml"),
        ("custom.github-workflows-require-timeout", ".github/workflows/*.yml"),
        ("vendor.dependabot", ".github/dependabot.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
        ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/[bf]*.yml"),
    ],
)
def test_the_files_follow_their_schema(schema, pattern):
    words = ["-m", "check_jsonschema", "--builtin-schema", schema, *map(str, ROOT.glob(pattern))]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
