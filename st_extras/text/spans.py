"""Character spans of a text: find words, replace them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

Span = tuple[int, int]
"""``(start, end)`` in characters."""
MAX_TOP_K = 1_000_000
"""The most keywords or phrases of a text that can be asked for."""

# Scripts written without spaces, in which a word has no visible boundary.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_SPACED_WORD_CHARACTER = re.compile(rf"[^\W_{_UNSPACED}]")


def _is_mark(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character)[0] == "M"


def _same_word(edge: str, neighbour: str) -> bool:
    """Return whether ``neighbour`` belongs to the word whose first or last character is ``edge``."""
    return bool(_SPACED_WORD_CHARACTER.match(edge)) and (
        bool(_SPACED_WORD_CHARACTER.match(neighbour)) or _is_mark(neighbour)
    )


def _lower(text: str) -> str:
    """Return ``text`` in lower case, with the same positions (lowering "İ" would add a character)."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    return lowered


def find_words(text: str, words: Iterable[str]) -> list[Span]:
    """Find every occurrence of ``words`` in ``text``, in any case.

    An occurrence starts and ends at a word boundary if the script has them ("man" is not found in "woman"), and
    includes the combining marks that follow it. Overlaps are resolved as in :func:`without_overlaps`.
    """
    lowered = _lower(text)
    wanted = {_lower(word) for word in words} - {""}
    lengths: dict[str, set[int]] = {}  # of the words, by their first letter
    for word in wanted:
        lengths.setdefault(word[0], set()).add(len(word))
    places = ((start, start + length) for start, letter in enumerate(lowered) for length in lengths.get(letter, ()))
    found: list[Span] = []
    for start, end in places:
        if end > len(lowered) or lowered[start:end] not in wanted:
            continue
        first, last = lowered[start], lowered[end - 1]
        while end < len(text) and _is_mark(text[end]):
            end += 1
        before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
        inside = (before != " " and _same_word(first, before)) or (after != " " and _same_word(last, after))
        if not inside:
            found.append((start, end))
    return without_overlaps(found)


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Sort the spans; of those that overlap, keep the one that starts first, and of equal starts the longer one."""
    kept: list[Span] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


def replace_spans(text: str, spans: Iterable[Span], replacement: str) -> str:
    """Replace each span of ``text``; an empty ``replacement`` deletes the spans and the spaces left over."""
    pieces, position = [], 0
    for start, end in spans:
        pieces += [text[position:start], replacement]
        position = end
    replaced = "".join([*pieces, text[position:]])
    if pieces and not replacement:
        replaced = re.sub(r"\s{2,}", " ", replaced).strip()
    return replaced
