"""The tables in the pages are those of the result files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import readme


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_pages_are_in_step(page: Path) -> None:
    text = page.read_text(encoding="utf8")
    assert len(readme.BLOCK.findall(text)) >= 2
    assert readme.updated(text) == text


def test_a_changed_figure_is_seen() -> None:
    text = readme.PAGES[0].read_text(encoding="utf8")
    changed = re.sub(r"\| SimCSE \| \d+ \|", "| SimCSE | 99 |", text)
    assert changed != text
    assert readme.updated(changed) == text


def test_the_pages_have_one_regret() -> None:
    def figures(table: str) -> dict[str, str]:
        rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
        return {row[0]: row[1] for row in rows}

    whole, short = figures(readme.selection_table()), figures(readme.short_selection_table())
    assert len(short) == 4
    assert {name: whole[name] for name in short if name in whole} == {
        name: mean for name, mean in short.items() if name != "picked by"
    }


@pytest.mark.parametrize(("page", "start", "end"), [(0, "## Which method", "## Evaluation"), (1, "# Results", None)])
def test_prose_beside_the_tables_holds_no_score(page: int, start: str, end: str | None) -> None:
    text = readme.PAGES[page].read_text(encoding="utf8")
    text = text[text.index(start) : None if end is None else text.index(end)]
    prose = re.sub(r"```.*?```|`[^`]*`", "", readme.BLOCK.sub("", text), flags=re.DOTALL)
    assert not re.findall(r"[+-]\d+\.\d+|\b\d{2}\.\d+\b", prose), "scores belong into tables that are made of records"
    assert not re.findall(r"\b(?:half|one|two|three|four|five|six|seven|eight|nine|ten|\d+)\s+points?\b", prose)
