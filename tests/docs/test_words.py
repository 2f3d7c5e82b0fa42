"""README and docs stay short: a reader's time is counted in words of prose."""

import re

from tests.docs.pages import SHOWN

MOST = 14_000


def words(text: str) -> int:
    """What stands between spaces, outside of generated tables and blocks of code."""
    text = re.sub(r"<!-- table.*?<!-- end -->", "", text, flags=re.DOTALL)
    return len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split())


def test_all_pages_together():
    counts = {page: words(text) for page, text in SHOWN.items()}
    assert sum(counts.values()) <= MOST, sorted(counts.items(), key=lambda item: -item[1])


def test_only_tables_and_code_are_left_out():
    assert words("# One\n\n| a |\n\n```\nb\n```\n<!-- table: x -->\n| c |\n<!-- end -->\n[d](e.md)\n") == 6
