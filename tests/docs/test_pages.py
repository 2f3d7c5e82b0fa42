"""The pages show what is there: every public name once, every page in the navigation, every file that they link."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from st_extras.cli.app import app
from tests.docs.pages import DESCRIBED, DOCS, PACKAGES, PAGES, PUBLIC, ROOT, SHOWN

MOST_WORDS = 14_000
"""Of prose in README and pages together: a reader's time."""


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


def test_every_public_package_is_looked_at():
    """A package of the library with an ``__all__`` is public; single files are not."""
    files = (ROOT / "st_extras").rglob("__init__.py")
    found = {path.parent.name for path in files if "__all__ = " in path.read_text(encoding="utf8")}
    assert found == {package.__name__.rpartition(".")[2] for package in PACKAGES}


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
    """Outside of generated tables and blocks of code."""
    prose = {
        page: re.sub(r"<!-- table.*?<!-- end -->|```.*?```", "", text, flags=re.DOTALL) for page, text in SHOWN.items()
    }
    assert sum(len(text.split()) for text in prose.values()) <= MOST_WORDS


@pytest.fixture
def hook(monkeypatch):
    """Import a hook by its name, as MkDocs does."""
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    monkeypatch.syspath_prepend(str(DOCS / "hooks"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module


@pytest.mark.parametrize(
    ("page", "link", "wanted"),
    [
        ("methods/dclr.md", "../../benchmarks/RESULTS.md#cost", "../results-details.md#cost"),
        ("contributing.md", "docs/encoders.md", "encoders.md"),
        ("notebooks/index.md", "../../notebooks/01_quick_start.ipynb", "01_quick_start.md"),
        ("papers.md", "../mkdocs.yml", "https://github.com/st-extras/st-extras/blob/main/mkdocs.yml"),
        ("papers.md", "nowhere.md", "nowhere.md"),
    ],
)
def test_a_link(hook, page, link, wanted):
    relinked = hook("repository_pages").relinked
    assert relinked(f"a [b]({link}) c", page) == f"a [b]({wanted}) c"
    for code in (f"a `[b]({link})` c", f"```\n[b]({link})\n```\n"):
        assert relinked(code, page) == code


def test_a_docstring_becomes_markdown(hook):
    text = """Paper: One, 2020.
For x::

    loss = x

See :class:`~st_extras.losses.SimCSELoss` and :func:`other`.

Inputs:
    +------+------+
    | A    | B    |
    +======+======+
    | a    | none |
    +------+------+

Example:
    >>> 1
    1
"""
    link = '<autoref optional identifier="st_extras.losses.SimCSELoss"><code>SimCSELoss</code></autoref>'
    for part in (
        "**Paper:** One, 2020.",
        "For x:\n\n    loss = x",
        f"See {link} and `other`.",
        "**Inputs:**\n\n| A    | B    |\n|---|---|\n| a    | none |",
        "Examples:\n    >>> 1",
    ):
        assert f"\n{part}" in hook("docstrings").as_markdown(text)


def test_every_command_and_option_is_on_its_page(hook):
    text = hook("command_line").command_pages()
    assert "..." not in re.sub(r"`[^`]*`|```.*?```|\{\w+\}\.\.\.", "", text, flags=re.DOTALL), "nothing is cut"

    def check(command: Any, name: str) -> None:
        for child in getattr(command, "commands", {}):
            check(command.commands[child], f"{name} {child}")
        if not hasattr(command, "commands"):
            section = re.search(rf"^##+ `{name}`\n(.*?)(?=^##|\Z)", text, flags=re.DOTALL | re.MULTILINE)
            assert section is not None, name
            options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
            assert [option for option in options if option not in section[1]] == []

    check(typer.main.get_command(app), "st-extras")
