"""The pages show what is there: every public name once, every page in the navigation, every file that they link."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.docs.pages import DESCRIBED, DOCS, PAGES, PUBLIC, ROOT, SHOWN

MOST_WORDS = 13_500
"""Of README and pages together, with tables and code: a reader's time."""


def test_every_public_name_is_described_once_and_has_a_docstring():
    assert {*DESCRIBED} >= PUBLIC
    assert len(DESCRIBED) == len({*DESCRIBED})
    for name in DESCRIBED:
        module, _, attribute = name.rpartition(".")
        package = importlib.import_module(module)
        found = getattr(package, attribute)
        sources = [path.read_text(encoding="utf8") for path in Path(str(package.__file__)).parent.glob("*.py")]
        constant = re.compile(rf'^{attribute}\b.* = (?:.*\n)+?"""', flags=re.MULTILINE)
        assert inspect.getdoc(found) if callable(found) else any(map(constant.search, sources)), name


def test_the_navigation_holds_every_page_once():
    pages = re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf8").partition("\nnav:")[2])
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {*PAGES, "index.md", *notebooks} <= {*pages}
    assert len(pages) == len({*pages})


@pytest.mark.parametrize("path", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name)
def test_links_lead_to_files(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf8"), flags=re.DOTALL)
    targets = re.findall(r"\]\((?!https?:|#)([^)\s#]+)", text)
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_all_pages_together_are_short():
    assert sum(len(text.split()) for text in SHOWN.values()) <= MOST_WORDS


@pytest.fixture
def hook(monkeypatch):
    """Import a hook by its name, as MkDocs does."""
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    monkeypatch.syspath_prepend(str(DOCS / "hooks"))
    return importlib.import_module


@pytest.mark.parametrize(
    ("page", "link", "wanted"),
    [
        ("methods/dclr.md", "../../benchmarks/RESULTS.md#cost", "../results-details.md#cost"),
        ("contributing.md", "docs/training.md", "training.md"),
        ("measured.md", "../mkdocs.yml", "https://github.com/st-extras/st-extras/blob/main/mkdocs.yml"),
    ],
)
def test_a_link(hook, page, link, wanted):
    relinked = hook("repository_pages").relinked
    assert relinked(f"a [b]({link}) c", page) == f"a [b]({wanted}) c"
    assert relinked(f"a `[b]({link})` c", page) == f"a `[b]({link})` c"


def test_a_docstring_becomes_markdown(hook):
    text = """Paper: One.
See :class:`~st_extras.losses.SimCSELoss` and :func:`other`::

    x

Inputs:
    +------+------+
    | A    | B    |
    +======+======+
    | a    | none |
    +------+------+
"""
    link = '<autoref optional identifier="st_extras.losses.SimCSELoss"><code>SimCSELoss</code></autoref>'
    inputs = "\n**Inputs:**\n\n| A    | B    |\n|---|---|\n| a    | none |"
    found = hook("docstrings").as_markdown(text)
    assert found == f"\n**Paper:** One.\nSee {link} and `other`:\n\n    x\n\n{inputs}"
