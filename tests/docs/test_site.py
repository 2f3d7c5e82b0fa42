"""The site as it is built: strictly, with every public name, and without asking anybody."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.docs.pages import PUBLIC, ROOT

NEEDED = ("latex2mathml", "mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers", "nbconvert")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}, of the extra docs")]
FETCHED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built by the command of the workflow."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _pages(site: Path) -> dict[str, str]:
    return {path.relative_to(site).as_posix(): path.read_text(encoding="utf8") for path in site.rglob("*.html")}


def test_every_public_name_has_a_place(site):
    inventory = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(inventory.split(b"\n", 4)[4]).decode().splitlines()
    places = {line.split()[0]: line.split()[3] for line in lines}
    assert places.keys() >= PUBLIC
    pages = _pages(site)
    for name in PUBLIC:
        page, _, anchor = places[name].partition("#")
        assert f'id="{anchor.replace("$", name)}"' in pages[f"{page}index.html"]


def test_nothing_is_fetched_from_elsewhere(site):
    pages = _pages(site)
    canonical = re.compile(r'<link rel="?canonical"?[^>]*>')
    found = {name: FETCHED.findall(canonical.sub("", page)) for name, page in pages.items()}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}
    sheets = [path.read_text(encoding="utf8") for path in site.rglob("*.css")]
    assert [address for sheet in sheets for address in re.findall(r"url\([\"']?(https?:[^)]*)", sheet)] == []
    # the theme's script takes diagrams from elsewhere, and asks GitHub for the stars of a "repo_url"
    assert not [name for name, page in pages.items() if 'class="mermaid"' in page or "data-md-component=source" in page]


@pytest.mark.parametrize("page", ['<img alt="" src="https://a.b/c.png">', "<script async src=//a.b/c.js>"])
def test_a_planted_picture_is_seen(page):
    assert len(FETCHED.findall(page)) == 1


def test_formulas_are_mathml(site):
    methods = {name: page for name, page in _pages(site).items() if re.fullmatch(r"methods/[\w-]+/index.html", name)}
    assert len(methods) == 8
    assert [name for name, page in methods.items() if "<math " not in page or "arithmatex" in page] == []
    assert [path.name for path in (site / "fonts").iterdir()]


def test_pages_from_elsewhere_are_whole(site):
    pages = _pages(site)
    assert "Adding a loss" in pages["contributing/index.html"]
    assert "(unreleased)" in pages["changelog/index.html"]
    assert "Studies and records" in pages["results-details/index.html"]
    assert "--no-duplicates" not in pages["command-line/index.html"]
    assert "--keep-duplicates" in pages["command-line/index.html"]
    notebooks = [page for name, page in pages.items() if re.match(r"notebooks/\d", name)]
    assert len(notebooks) == len([*(ROOT / "notebooks").glob("*.ipynb")])
    assert all(re.search(r'<img [^>]*src="?[\w./-]+\.png', page) for page in notebooks)
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf8"))
    assert len({entry["location"].partition("#")[0] for entry in index["docs"]}) == len(pages) - 1  # 404.html
