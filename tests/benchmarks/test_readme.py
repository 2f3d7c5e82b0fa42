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
