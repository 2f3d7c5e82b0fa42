"""The site as it is built: strictly, and without anything fetched from elsewhere."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests.cli.commands import options
from tests.docs.pages import PUBLIC, ROOT

NEEDED = ("latex2mathml", "mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers", "nbconvert")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
FETCHED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}, of the extra docs")
def test_the_site(tmp_path):
    """Built by the command of the workflow."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf8") for path in tmp_path.rglob("*.html")
    }

    canonical = re.compile(r'<link rel="?canonical"?[^>]*>')
    assert {name: found for name, page in pages.items() if (found := FETCHED.findall(canonical.sub("", page)))} == {}
    sheets = [path.read_text(encoding="utf8") for path in tmp_path.rglob("*.css")]
    assert [address for sheet in sheets for address in re.findall(r"url\([\"']?(https?:[^)]*)", sheet)] == []
    # the theme's script takes diagrams from elsewhere, and asks GitHub for the stars of a "repo_url"
    assert not [name for name, page in pages.items() if 'class="mermaid"' in page or "data-md-component=source" in page]

    methods = [page for name, page in pages.items() if re.fullmatch(r"methods/[\w-]+/index.html", name)]
    assert all("<math " in page and "arithmatex" not in page for page in methods)
    assert "Adding a loss" in pages["contributing/index.html"]
    assert [
        option for _, one in options() for option in one.opts if option not in pages["command-line/index.html"]
    ] == []
    notebooks = {name.split("/")[1]: page for name, page in pages.items() if re.match(r"notebooks/\d", name)}
    sources = {path.stem: path.read_text(encoding="utf8") for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert sorted(notebooks) == sorted(sources)
    drawn = [name for name, source in sources.items() if '"image/png"' in source]
    assert all(re.search(r'<img [^>]*src="?[\w./-]+\.png', notebooks[name]) for name in drawn)
    text = "".join(pages.values())
    assert [name for name in PUBLIC if f'id="{name}"' not in text and f"id={name}" not in text] == []
