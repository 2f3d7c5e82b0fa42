"""The workflows of .github, which run elsewhere, and what they and the package's metadata name."""

import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import st_extras
from st_extras.samples import write_samples
from tests.packaging.project import EXTRAS, PROJECT, PYPROJECT, ROOT

WORKFLOWS = {path.stem: path.read_text(encoding="utf8") for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
PARSED: dict[str, Any] = {name: yaml.safe_load(text) for name, text in WORKFLOWS.items()}
RIGHTS = {"docs": {"id-token": "write", "pages": "write"}, "release": {"id-token": "write"}}
"""What the job "publish" of a workflow may do beyond reading."""


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_names_what_exists_and_may_do_no_more_than_it_needs(name, tmp_path):
    jobs = PARSED[name]["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    words = " ".join(step.get("run", "") for step in steps).split()
    files = [word.strip("'\"") for word in words if re.search(r"^[\w.-]+(/[\w.-]+)+$|\.(py|toml|txt|sh|cfg)$", word)]
    if "st-extras demo samples" in " ".join(words):
        write_samples(tmp_path / "samples")
    there = [file for file in files if (ROOT / file).exists() or (tmp_path / file).exists()]
    assert [file for file in files if not file.startswith("dist/") and file not in there] == []
    extras = re.findall(r"(?:\.|st-extras)\[([\w,]+)\]", " ".join(words))
    assert {extra for names in extras for extra in names.split(",")} <= EXTRAS.keys()
    uses = re.findall(r"uses: (.*)", WORKFLOWS[name])
    assert [line for line in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert PARSED[name]["permissions"] == {"contents": "read"}
    given = {job: found["permissions"] for job, found in jobs.items() if "permissions" in found}
    assert given == ({"publish": RIGHTS[name]} if name in RIGHTS else {})
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout")]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_the_tests_run_on_the_lowest_and_the_newest_python_and_only_a_tag_publishes():
    pythons = [f"3.{minor}" for line in PROJECT["classifiers"] for minor in re.findall(r":: 3\.(\d+)$", line)]
    tested = PARSED["tests"]["jobs"]["fast"]["strategy"]["matrix"]["python"]
    assert (tested[0], tested[-1], PROJECT["requires-python"]) == (pythons[0], pythons[-1], f">={pythons[0]}")
    assert PARSED["release"][True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key "on" as true
    assert {*PARSED["release"]["jobs"]["publish"]["needs"]} == {"build", "try"}


def test_the_citation_is_that_of_this_version_and_dev_brings_every_extra():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    assert citation["version"] == st_extras.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    every = re.fullmatch(r"st-extras\[(.*)\]", EXTRAS["dev"][0])
    assert every is not None
    assert {*every[1].split(",")} >= EXTRAS.keys() - {"dev", "references"}, (
        "that one brings numba and forty more, for one weekly test"
    )
    assert {*PYPROJECT["build-system"]["requires"]} <= {*EXTRAS["dev"]}, "the tests build without a network"


def test_a_pinned_version_can_be_installed_with_every_python():
    """A pin that a Python cannot have makes every installation with constraints.txt fail there."""
    lowest = PROJECT["requires-python"].removeprefix(">=")
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    assert {"typer", "rich", "nltk", "transformers", "sentence-transformers"} <= {pin.name for pin in pins}
    for pin in pins:
        try:
            found = metadata.distribution(pin.name)
        except metadata.PackageNotFoundError:  # of another extra
            continue
        if pin.specifier.contains(Version(found.version).base_version) and (
            pin.marker is None or pin.marker.evaluate({"python_version": lowest})
        ):
            assert SpecifierSet(found.metadata.get("Requires-Python", "")).contains(f"{lowest}.99"), pin


@pytest.mark.slow
def test_the_files_follow_their_schema():
    pytest.importorskip("check_jsonschema")
    patterns = {"github-workflows": ".github/workflows/*.yml", "dependabot": ".github/dependabot.yml"}
    for schema, pattern in (patterns | {"citation-file-format": "CITATION.cff"}).items():
        words = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, ROOT.glob(pattern))]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
