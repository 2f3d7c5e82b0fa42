"""Where a phrase stands in a sentence: its words next to each other, in any case, with nothing but space between them.

A sentence is searched as its joined words, `` w0 w1 ... ``: in lower case, with a space on both sides of each word.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from st_extras.text.spans import Span
from st_extras.text.words import WordFinder


def phrase_pattern(phrase: str | Span, sentence: str, text: str, words: WordFinder) -> tuple[str, int | None]:
    """Return the joined words of ``phrase``, and the index of its first word in ``sentence`` if it is a span.

    The words are "" if more than space separates two of them: a phrase does not cross punctuation.

    Args:
        phrase: a string, or a span of ``sentence``.
        sentence: the sentence.
        text: the joined words of ``sentence``.
        words: function that returns the spans of a sentence's words.
    """
    if not isinstance(phrase, str):
        found = words(sentence)
        return _joined_in(sentence, found, phrase), sum(end <= phrase[0] for _, end in found)
    pattern = f" {phrase} ".casefold()  # enough if the phrase has single spaces between its words
    return pattern if pattern in text else _joined_in(phrase, words(phrase), (0, len(phrase))), None


def _joined_in(text: str, words: Sequence[Span], span: Span) -> str:
    """Return the joined words of ``text`` that ``span`` touches, "" if more than space separates two of them."""
    touched = [word for word in words if word[0] < span[1] and word[1] > span[0]]
    if any(text[first[1] : second[0]].strip() for first, second in pairwise(touched)):
        return ""
    return join_words([text[start:end] for start, end in touched])


def join_words(words: Sequence[str]) -> str:
    """Return the words in lower case, with a space on both sides of each, so that only whole words match."""
    return f" {' '.join(words)} ".casefold()


def occurrences(text: str, pattern: str, breaks: Sequence[int]) -> list[int]:
    """Return the index of the first word of each occurrence of ``pattern``, left to right, without overlaps.

    A match in ``text``, the joined words, begins at a space, so the number of spaces before it is the index of its
    first word. ``breaks`` are the indices of the words that follow punctuation, in order.
    """
    if not pattern or pattern.isspace():
        return []
    count = pattern.count(" ") - 1
    found: list[int] = []
    index = position = 0
    start = text.find(pattern)
    while start >= 0:
        index += text.count(" ", position, start)
        position = start
        after = bisect_right(breaks, index)  # the first break behind the first word
        if after < len(breaks) and breaks[after] < index + count:
            start = text.find(pattern, start + 1)
        else:
            found.append(index)
            start = text.find(pattern, start + len(pattern) - 1)  # the last space may open the next match
    return found
