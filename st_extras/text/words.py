"""Words of a text and their places: runs of letters and digits, or what jieba finds; stop words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import index
from pathlib import Path
from typing import Any

from st_extras.checks import shown

Span = tuple[int, int]
"""``(start, end)`` in characters."""
MAX_TOP_K = 1_000_000
"""Upper limit of ``top_k``, the number of keywords or phrases of a text."""
WordFinder = Callable[[str], Sequence[Span]]
"""Takes a text and returns the spans of its words, left to right."""

INVISIBLE = "\u00ad\u061c\u180e\u200c-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
"""Format characters, which do not end a word: soft hyphens, joiners, signs of direction (Unicode's UAX 29, WB4)."""
SPACELESS = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Characters of scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese and Chinese."""
SPACED_WORD = re.compile(rf"[{SPACELESS}]|[^\s{SPACELESS}]+")
"""A word as passages count them: what stands between spaces, or a character of a script without spaces."""


def _marks() -> str:
    """Return the marks that combine with the letter before them, which ``\\w`` leaves out, for a regular expression."""
    codes = [code for code in (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)) if _is_mark(chr(code))]
    runs = groupby(enumerate(codes), key=lambda item: item[1] - item[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(found) for _, found in runs)]
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ends)


def _is_mark(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character)[0] == "M"


_MARKS = _marks()
_PART = rf"[^\W_]+(?:(?:[{_MARKS}]+|[{INVISIBLE}]+(?=[^\W_]|[{_MARKS}]))[^\W_]*)*"
WORD = re.compile(rf"{_PART}(?:['’\-‐‑]{_PART})*")
"""A maximal run of letters (with their combining marks) and digits, with apostrophes, hyphens and format characters
inside it."""

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+(?:['\-][A-Za-z0-9]+)*")  # equals WORD on ASCII text, and is faster
_SPLIT, _ASCII_SPLIT = (re.compile(f"({pattern.pattern})") for pattern in (WORD, _ASCII_WORD))


# --- words and spans of a text ---


def word_spans(text: str) -> list[Span]:
    """Return the spans of the words of ``text``, left to right."""
    return [match.span() for match in (_ASCII_WORD if text.isascii() else WORD).finditer(text)]


def find_all_words(text: str) -> list[str]:
    """Return the words of ``text`` as they are written, left to right."""
    return (_ASCII_WORD if text.isascii() else WORD).findall(text)


def jieba_spans(text: str) -> list[Span]:
    """Return the spans of the words that jieba finds in ``text``, without punctuation; for Chinese."""
    if not any(map(str.isalnum, text)):
        return []  # jieba takes seconds for a page of dots
    import jieba

    jieba.setLogLevel("WARNING")
    return [(start, end) for word, start, end in jieba.tokenize(text) if any(map(str.isalnum, word))]


@lru_cache(maxsize=1)  # a phrase extractor and PhraseMasking split the same sentence one after the other
def split_at_words(text: str, words: WordFinder = word_spans) -> tuple[str, ...]:
    """Return ``(gap, word, gap, ..., word, gap)``, which joined is ``text`` again.

    Raises:
        ValueError: if ``words`` returns anything but spans that lie in ``text``, left to right.
    """
    if words is word_spans:
        return tuple((_ASCII_SPLIT if text.isascii() else _SPLIT).split(text))  # the same pieces, in one call
    found = words(text)
    try:
        edges = [0, *(index(edge) for start, end in found for edge in (start, end)), len(text)]
        in_order = all(first <= second for first, second in pairwise(edges))
    except (TypeError, ValueError):
        in_order = False
    if not in_order:
        raise ValueError(
            "words must return the (start, end) spans of a sentence's words, left to right and without overlaps, got "
            f"{shown(found)} for {shown(text)}."
        )
    return tuple(text[start:end] for start, end in pairwise(edges))


# --- finding words, and replacing spans ---

_SPACED_WORD_CHARACTER = re.compile(rf"[^\W_{SPACELESS}]")
_AFTER = re.compile(rf"[{INVISIBLE}]*")


def _same_word(edge: str, neighbour: str) -> bool:
    """Return whether ``neighbour`` belongs to the word whose first or last character is ``edge``."""
    return bool(_SPACED_WORD_CHARACTER.match(edge)) and (
        bool(_SPACED_WORD_CHARACTER.match(neighbour)) or _is_mark(neighbour)
    )


def _neighbours(text: str, start: int, end: int) -> tuple[str, str]:
    """Return the characters before and after a span, format characters passed over; " " at the ends of the text."""
    while start and _AFTER.fullmatch(text, start - 1, start):
        start -= 1
    end = _AFTER.match(text, end).end()  # type: ignore[union-attr]
    return text[start - 1 : start] or " ", text[end : end + 1] or " "


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
    spans: list[Span] = []
    for start, end in places:
        if end > len(lowered) or lowered[start:end] not in wanted:
            continue
        first, last = lowered[start], lowered[end - 1]
        while end < len(text) and _is_mark(text[end]):
            end += 1
        before, after = _neighbours(text, start, end)
        inside = (before != " " and _same_word(first, before)) or (after != " " and _same_word(last, after))
        if not inside:
            spans.append((start, end))
    return without_overlaps(spans)


def checked_span(name: str, item: Any) -> Span:
    """Return ``item`` as a span.

    Args:
        name: the argument whose function returned it, for the message.
        item: an item of what that function returned, and no text.

    Raises:
        ValueError: if it is not two whole numbers.
    """
    try:
        start, end = map(index, item)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must return words or (start, end) spans, got {shown(item)}: leave out what else stands beside "
            "them, such as scores."
        ) from None
    return start, end


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


# --- stop words: too common to be keywords or parts of a phrase ---


@lru_cache(maxsize=1)
def english_stop_words() -> frozenset[str]:
    """Return scikit-learn's English stop words, lower-cased, without contractions."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def _packaged_words(name: str) -> list[str]:
    return Path(__file__).with_name(name).read_text(encoding="utf8").split()


def phrase_stop_words(language: str) -> frozenset[str]:
    """Return the stop words that end a phrase; unlike a keyword, a phrase must not contain a contraction either.

    Args:
        language: "english" and "chinese" need no download; for any other, NLTK's stop word list is read.

    Raises:
        ValueError: if NLTK has no stop word list for the language.
    """
    if language == "chinese":
        return frozenset(_packaged_words("chinese_stop_words.txt"))
    if language == "english":
        contractions = _packaged_words("english_contractions.txt")
        return english_stop_words().union(contractions, (word.replace("'", "’") for word in contractions))
    from nltk.corpus import stopwords

    try:
        return frozenset(stopwords.words(language))
    except (LookupError, OSError) as error:
        raise ValueError(
            f'language must be "english", "chinese" or a language with NLTK stop words, got {language!r}: '
            "run python -m nltk.downloader stopwords, or give stop_words=[...]."
        ) from error
