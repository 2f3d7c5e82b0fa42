"""The pages of the site say what is there: every public name, every command, every file that they link."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DESCRIBED, DOCS, PACKAGES, PAGES, PUBLIC, ROOT

METHODS = ("simcse", "dclr", "adcse", "consert", "slt-fai", "paser", "repal", "whitening")


def test_every_public_name_is_described():
    assert {*DESCRIBED} >= PUBLIC
    assert len(DESCRIBED) == len({*DESCRIBED})


@pytest.mark.parametrize("name", DESCRIBED)
def test_what_is_described_exists_and_has_a_docstring(name):
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    assert inspect.getdoc(found) if callable(found) else f"\n{attribute} = " in _source(module, attribute)


def _source(module: str, attribute: str) -> str:
    """Return the source of the file that defines a constant."""
    package = importlib.import_module(module)
    files = Path(str(package.__file__)).parent.glob("*.py")
    return next(text for text in (path.read_text(encoding="utf8") for path in files) if f"\n{attribute} = " in text)


def test_every_public_package_is_looked_at():
    """A package of the library with an ``__all__`` is public; single files are not."""
    found = {
        path.parent.name for path in (ROOT / "st_extras").rglob("__init__.py") if "__all__ = " in path.read_text("utf8")
    }
    assert found == {package.__name__.rpartition(".")[2] for package in PACKAGES}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_its_parts(method):
    text = PAGES[f"methods/{method}.md"]
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert "$$" in text
    assert "<!-- table: " in text
    assert headings[-1] == "Options and reference"
    assert "::: st_extras." in text
    assert re.search(r"^\* (.*\. )?Not |^\* Leave ", text, flags=re.MULTILINE), "says when not to use it"
    assert any("cost" in title for title in headings)


def test_the_navigation_holds_every_method_and_notebook():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf8").partition("\nnav:")[2]
    pages = re.findall(r"[\w./-]+\.md", navigation)
    assert {f"methods/{method}.md" for method in METHODS} <= {*pages}
    assert {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")} <= {*pages}
    assert {*PAGES, "index.md"} <= {*pages}
    assert len(pages) == len({*pages})


def test_the_notebooks_are_listed_with_their_titles():
    listed = re.findall(
        r"^\| \[(.+)\]\(\.\./\.\./(notebooks/\S+)\) \| (.+) \|$", PAGES["notebooks/index.md"], flags=re.MULTILINE
    )
    for title, path, question in listed:
        text = (ROOT / path).read_text(encoding="utf8")
        assert title in text
        assert question in text
    assert [path for _, path, _ in listed] == [
        f"notebooks/{path.name}" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    ]


def test_the_theme_asks_nobody():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf8")
    assert not re.search(r"^repo_url:", text, flags=re.MULTILINE), "the theme would ask GitHub for stars"
    assert re.search(r"^  font: false$", text, flags=re.MULTILINE), "the theme would take fonts from Google"
    assert yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text(encoding="utf8"))["jobs"].keys() == {
        "build",
        "publish",
    }


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
        ("scale.md", "decoders.md", "decoders.md"),
        ("scale.md", "../benchmarks/RESULTS.md#cost", "results-details.md#cost"),
        ("methods/dclr.md", "../../benchmarks/RESULTS.md", "../results-details.md"),
        ("methods/dclr.md", "../scale.md#a", "../scale.md#a"),
        ("results-details.md", "../docs/papers.md", "papers.md"),
        ("contributing.md", "docs/encoders.md", "encoders.md"),
        ("notebooks/index.md", "../../notebooks/01_quick_start.ipynb", "01_quick_start.md"),
        (
            "papers.md",
            "../st_extras/plots/maps.py",
            "https://github.com/st-extras/st-extras/blob/main/st_extras/plots/maps.py",
        ),
        ("index.md", "docs/adapted.svg", "adapted.svg"),
        ("papers.md", "../README.md#methods", "index.md#methods"),
        ("papers.md", "nowhere.md", "nowhere.md"),
        ("papers.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("papers.md", "#here", "#here"),
    ],
)
def test_a_link(hook, page, link, wanted):
    relinked = hook("repository_pages").relinked
    assert relinked(f"a [b]({link}) c", page) == f"a [b]({wanted}) c"
    for code in (f"a `[b]({link})` c", f"```\n[b]({link})\n```\n"):
        assert relinked(code, page) == code


def test_a_docstring_becomes_markdown(hook):
    as_markdown = hook("docstrings").as_markdown
    text = """Do it.

Paper: One, 2020.
For x::

    loss = x

Args:
    x: see :class:`~st_extras.losses.SimCSELoss` and :func:`other`.

Attributes (of the last step):
    y: a number.

Inputs:
    +------+------+
    | A    | B    |
    +======+======+
    | a    | none |
    +------+------+

Works with: all.
Refuses: none.

Example:
    >>> 1
    1
"""
    link = '<autoref optional identifier="st_extras.losses.SimCSELoss"><code>SimCSELoss</code></autoref>'
    assert (
        as_markdown(text)
        == f"""Do it.


**Paper:** One, 2020.
For x:

    loss = x

Args:
    x: see {link} and `other`.

Attributes: Attributes, of the last step
    y: a number.


**Inputs:**

| A    | B    |
|---|---|
| a    | none |



**Works with:** all.

**Refuses:** none.

Examples:
    >>> 1
    1"""
    )


def test_a_formula_becomes_mathml(hook):
    on_page_content = hook("mathematics").on_page_content
    html = (
        r'<p><span class="arithmatex">\(x &lt; y\)</span></p><div class="arithmatex">\[\frac{a}{b} \sim c'
        + "\n"
        + r"\]</div>"
    )
    made = on_page_content(html, None, None, None)
    assert "arithmatex" not in made
    assert made.count("<math ") == 2
    assert "&#x0003C;" in made
    assert '<div class="formula"><math' in made
    assert "<mfrac>" in made
    assert "<mo>&#x0223C;</mo>" in made


def test_every_command_and_option_is_on_its_page(hook):
    import typer

    from st_extras.cli.app import app

    text = hook("command_line").command_pages()
    assert "**Commands**" not in text
    assert "..." not in re.sub(r"`[^`]*`|```.*?```|\{\w+\}\.\.\.", "", text, flags=re.DOTALL), "nothing is cut"

    def check(command: Any, name: str) -> None:
        commands = getattr(command, "commands", {})
        for child in commands:
            check(commands[child], f"{name} {child}")
        if not commands:
            section = re.search(rf"^##+ `{name}`\n(.*?)(?=^##|\Z)", text, flags=re.DOTALL | re.MULTILINE)
            assert section is not None, name
            options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
            assert options
            assert [option for option in options if option not in section[1]] == []

    check(typer.main.get_command(app), "st-extras")
