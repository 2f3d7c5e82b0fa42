"""What the package says of itself is the same in every place that says it."""

import re

import yaml

import st_extras
from tests.packaging.project import EXTRAS, PROJECT, PYPROJECT, ROOT

NOT_TESTED_EVERYWHERE = {"ray"}
"""Extras that "dev" leaves out: large, and not released for every Python at once."""


def test_the_citation_is_that_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    assert citation["version"] == st_extras.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]


def test_every_page_names_the_same_repository():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.*"), ROOT / "pyproject.toml"]
    named = re.compile(r"https://(?:raw\.githubusercontent|github)\.com/([\w.-]+/st[-_]extras)\b")
    assert {name for page in pages for name in named.findall(page.read_text(encoding="utf8"))} == {
        "st-extras/st-extras"
    }


def test_dev_brings_every_other_extra_and_the_backend():
    every = re.fullmatch(r"st-extras\[(.*)\]", EXTRAS["dev"][0])
    assert every is not None
    assert {*every[1].split(",")} >= EXTRAS.keys() - {"dev"} - NOT_TESTED_EVERYWHERE
    assert {*PYPROJECT["build-system"]["requires"]} <= {*EXTRAS["dev"]}, "the tests build without a network"
