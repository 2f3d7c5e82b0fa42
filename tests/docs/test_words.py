"""README, docs and notebooks stay short: a reader's time is counted in words of prose."""

import json
import re

import pytest

from tests.docs.pages import PAGES, ROOT

MOST = 14_000
ASIDE = re.compile(
    r"\A---\n.*?\n---\n|^ *```.*?^ *```|<!--.*?-->|\$\$.*?\$\$|<[^>]+>|^ *\|.*?$|^:::.*?$|(?<=\])\([^)]*\)",
    flags=re.DOTALL | re.MULTILINE,
)
"""Counted is all that stands between spaces on README, docs and notebooks, headings and generated sentences too, but
front matter, blocks of code, rows of tables, HTML, formulas, directives and the targets of links."""


def words(text: str) -> int:
    return len(ASIDE.sub("", text).split())


def test_all_pages_together():
    counts = {page: words(text) for page, text in PAGES.items()}
    counts["README.md"] = words((ROOT / "README.md").read_text(encoding="utf8"))
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf8"))["cells"]
        counts[path.name] = words("\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"))
    assert sum(counts.values()) <= MOST, sorted(counts.items(), key=lambda item: -item[1])


@pytest.mark.parametrize(
    ("page", "most"),
    [("choosing", 500), ("methods/repal", 700), ("mechanisms", 800), ("domain-study", 800), ("results", 1_200)],
)
def test_a_page_that_grew_before(page, most):
    assert 0 < words(PAGES[f"{page}.md"]) <= most


def test_only_prose_counts():
    text = (
        "---\na: b\n---\n# One\n\n| two | three |\n\n```\nfour\n```\n\n<!-- table: x -->\n| y |\n\nfive\n<!-- end -->\n"
    )
    assert words(text + "A [link](page.md) to `code`, <b>bold</b>.\n\n::: module.name\n") == 8
