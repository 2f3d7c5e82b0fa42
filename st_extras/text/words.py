"""What a word is, once for the whole package."""

import re

WORD = re.compile(r"[^\W_]+(?:['’\-‐‑][^\W_]+)*")
"""A maximal run of letters and digits, with apostrophes and hyphens inside it."""


def word_spans(text: str) -> list[tuple[int, int]]:
    """Character spans ``(start, end)`` of the words of ``text``, left to right."""
    return [match.span() for match in WORD.finditer(text)]
