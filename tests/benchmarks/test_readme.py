"""The tables in the pages are those of the result files."""

import re

import pytest

from benchmarks import readme

DOCS = readme.ROOT.parent / "docs"
PROSE = [
    readme.ROOT.parent / "README.md",
    readme.ROOT / "RESULTS.md",
    *(DOCS / f"{name}.md" for name in ("choosing", "mechanisms", "results", "training")),
    *sorted((DOCS / "methods").glob("*.md")),
]
"""The pages whose every score stands in a table."""


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_pages_are_in_step(page):
    text = page.read_text(encoding="utf8")
    assert readme.BLOCK.findall(text)
    assert readme.updated(text) == text


def test_a_changed_figure_is_seen():
    text = (DOCS / "results.md").read_text(encoding="utf8")
    changed = re.sub(r"\| SimCSE \| \d+ \|", "| SimCSE | 99 |", text)
    assert changed != text
    assert readme.updated(changed) == text


def test_nothing_is_shown_before_it_was_run(results):
    names = (
        "floors",
        "beyond",
        "repal-words",
        "repal-overlap",
        "repal-eigenvalues",
        "slt-fai-frequencies",
        "search-minilm",
    )
    names += ("pretraining", "better-main", "better-levels", "mechanisms-repal", "repal-without-dev", "search-minilm")
    assert {readme.TABLES[name]() for name in names} == {"Not run yet."}


def test_every_table_stands_on_a_page():
    blocks = [block for page in readme.PAGES for block in readme.BLOCK.findall(page.read_text(encoding="utf8"))]
    whole = [name for _, name, wanted, _ in blocks if not wanted]
    assert readme.TABLES.keys() - {*whole} == set()
    assert len(whole) == len({*whole}), "a whole table stands once"
    assert {DOCS / "adapting.md", DOCS / "results.md", DOCS / "methods" / "dclr.md"} <= {*readme.PAGES}


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.stem)
def test_prose_beside_the_tables_holds_no_score(page):
    text = page.read_text(encoding="utf8")
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", readme.BLOCK.sub("", text), flags=re.DOTALL)
    assert not re.findall(r"(?<!\w)[+-]\d+\.\d+|\b\d{2}\.\d+\b", prose), (
        "scores belong into tables that are made of records"
    )
    assert not re.findall(r"\b(?:half|one|two|three|four|five|six|seven|eight|nine|ten|\d+)\s+points?\b", prose)


WHOLE = "| row | a, b | c |\n|---|---:|---:|\n| one | 1 | 2 |\n| two | 3 | 4 |\n| two | 5 | 6 |\n\nA note."


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (" | two", "| row | a, b | c |\n|---|---:|---:|\n| two | 3 | 4 |\n| two | 5 | 6 |\n\nA note."),
        (" | two | one || c", "| row | c |\n|---|---:|\n| two | 4 |\n| two | 6 |\n| one | 2 |\n\nA note."),
    ],
)
def test_an_excerpt_holds_what_is_asked_for(wanted, shown):
    assert readme.excerpt(WHOLE, wanted) == shown


@pytest.mark.parametrize("wanted", [" | three", " | one || d"])
def test_an_excerpt_of_what_is_not_there_is_refused(wanted):
    with pytest.raises(ValueError, match="rows must be of"):
        readme.excerpt(WHOLE, wanted)
