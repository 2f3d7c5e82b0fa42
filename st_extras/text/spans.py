"""Character spans of a text: find words, check spans, replace them."""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from typing import Any

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
_NOT_SPACE = re.compile(r"\S+")
_MANY_WORDS = 100
_LONG_SEARCH = 1_000_000  # words x characters, above which a text is searched for many words in one pass


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
    many = len(wanted) > _MANY_WORDS and len(wanted) * len(lowered) > _LONG_SEARCH
    search = _starts_and_ends if many else _one_word_after_another
    found: list[Span] = []
    for start, end in search(lowered, wanted):
        first, last = lowered[start], lowered[end - 1]
        while end < len(text) and _is_mark(text[end]):
            end += 1
        before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
        inside = (before != " " and _same_word(first, before)) or (after != " " and _same_word(last, after))
        if not inside:
            found.append((start, end))
    return without_overlaps(found)


def _one_word_after_another(text: str, words: Iterable[str]) -> Iterator[Span]:
    """Yield every occurrence of ``words``: the fastest way in a sentence, with time that grows as words x text."""
    for word in words:
        start = text.find(word)
        while start >= 0:
            yield start, start + len(word)
            start = text.find(word, start + 1)


def _starts_and_ends(text: str, words: Collection[str]) -> Iterator[Span]:
    """Yield every occurrence of ``words`` in one pass over the text, however many words there are."""
    lengths: dict[str, set[int]] = {}  # by the first letter
    for word in words:
        lengths.setdefault(word[0], set()).add(len(word))
    for start, letter in enumerate(text):
        for length in lengths.get(letter, ()):
            if start + length <= len(text) and text[start : start + length] in words:
                yield start, start + length


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Sort the spans; of those that overlap, keep the one that starts first, and of equal starts the longer one."""
    kept: list[Span] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


def checked_span(text: str, item: Any) -> Span:
    """Return ``item`` as a span of ``text``.

    Raises:
        ValueError: if it is not a pair of integers, or lies outside the text.
    """
    try:
        start, end = (operator.index(bound) for bound in item)
    except (TypeError, ValueError):
        raise ValueError(
            f"keywords must return (start, end) spans or words, not both, got {item!r} for the text {text!r}."
        ) from None
    if not 0 <= start < end <= len(text):
        raise ValueError(
            f"keywords must return spans with 0 <= start < end <= {len(text)}, the length of the text, "
            f"got {(start, end)} for {text!r}."
        )
    return start, end


def split_at_spaces(text: str, spans: Iterable[Span]) -> list[Span]:
    """Split a span over several words into one span per word."""
    return [match.span() for start, end in spans for match in _NOT_SPACE.finditer(text, start, end)]


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
