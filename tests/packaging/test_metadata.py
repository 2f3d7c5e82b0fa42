"""What the package says of itself is the same in every place that says it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import st_extras
from tests.packaging.project import EXTRAS, PROJECT, PYPROJECT, ROOT, classified_pythons

CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
ADDRESS = "https://github.com/st-extras/st-extras"
NOT_TESTED_EVERYWHERE = {"ray"}
"""Extras that "dev" leaves out: large, and not released for every Python at once."""
LEFT_OUT = {".gitignore", ".ci"}
"""What the repository holds at its top and the source distribution does not."""


def test_the_lowest_python_is_the_first_that_is_classified():
    pythons = classified_pythons()
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{pythons[0].replace('.', '')}"
    numbers = [int(python.split(".")[1]) for python in pythons]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_the_citation_is_that_of_this_version():
    assert CITATION["version"] == st_extras.__version__
    assert CITATION["license"] == PROJECT["license"]
    assert [author["name"] for author in CITATION["authors"]] == [author["name"] for author in PROJECT["authors"]]
    assert CITATION["repository-code"] == PROJECT["urls"]["Repository"] == ADDRESS


def test_every_page_names_the_same_repository():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.*"), ROOT / "pyproject.toml"]
    named = re.compile(r"https://(?:raw\.githubusercontent|github)\.com/([\w.-]+)/(st[-_]extras)\b")
    found = {f"{owner}/{name}" for page in pages for owner, name in named.findall(page.read_text(encoding="utf8"))}
    assert found == {"st-extras/st-extras"}


def test_dev_brings_every_other_extra():
    every = re.fullmatch(r"st-extras\[(.*)\]", EXTRAS["dev"][0])
    assert every is not None
    assert {*every[1].split(",")} >= EXTRAS.keys() - {"dev"} - NOT_TESTED_EVERYWHERE


def test_the_backend_is_installed_for_the_tests():
    """The tests build without a network, so "dev" brings what building needs."""
    assert {*PYPROJECT["build-system"]["requires"]} <= {*EXTRAS["dev"]}


def test_the_source_distribution_forgets_nothing():
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone: git cannot say which files are the repository's")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tops = {Path(line).parts[0] for line in listed.splitlines()}
    included = {name.strip("/") for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert tops - LEFT_OUT - {"pyproject.toml"} <= included
    assert included.isdisjoint(LEFT_OUT)
