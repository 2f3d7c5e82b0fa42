"""Keyword extractors: each takes a text and returns the character spans of its informative words.

``JiebaKeywords`` is the RepAL paper's, ``TfidfKeywords`` is fitted on your own sentences, ``RakeKeywords`` takes the
words of the best phrases; ``keyword_spans`` also takes any callable. The three classes need no download, can be saved
(``config``) and can be sent to other processes. Spans are ``(start, end)``, sorted, without overlaps, one per word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from st_extras.checks import check_count, shown
from st_extras.text.jieba_keywords import JiebaKeywords
from st_extras.text.phrases import RakePhrases
from st_extras.text.spans import MAX_TOP_K, Span, checked_span, find_words, split_at_spaces, without_overlaps
from st_extras.text.stop_words import check_stop_words
from st_extras.text.tfidf_keywords import TfidfKeywords
from st_extras.text.words import word_spans

Extractor = Callable[[str], Sequence[Span] | Sequence[str]]
"""Takes a text and returns the spans of its keywords, or the keywords."""


@lru_cache(maxsize=8)
def _cached_rake(stop_words: frozenset[str] | None) -> RakePhrases:
    return RakePhrases(stop_words=stop_words)


class RakeKeywords:
    """Take the words of RAKE's best phrases as the keywords of a text; scores as in ``RakePhrases``.

    Paper: Rose et al., 2010, https://doi.org/10.1002/9780470689646.ch1.

    Args:
        top_k: number of phrases whose words are keywords, best first. None: all.
        stop_words: words that end a phrase. None: the English list of ``RakePhrases``.

    Raises:
        ValueError: if ``top_k`` is not a whole number from 1 to 1,000,000 or None, or ``stop_words`` is not a
            collection of strings.

    Example:
        >>> from st_extras.text import RakeKeywords
        >>> text = "Big red dogs of Rome, and a cat"
        >>> [text[start:end] for start, end in RakeKeywords(top_k=1)(text)]
        ['Big', 'red', 'dogs']
    """

    def __init__(self, top_k: int | None = 20, stop_words: Collection[str] | None = None) -> None:
        self.top_k = None if top_k is None else check_count("top_k", top_k, 1, MAX_TOP_K)
        self.stop_words = None if stop_words is None else check_stop_words(stop_words)

    def __call__(self, text: str) -> list[Span]:
        """Return the spans of the keywords of ``text``."""
        phrases = _cached_rake(self.stop_words)(text)[: self.top_k]
        keywords = {word.lower() for phrase in phrases for word in phrase.split(" ")}
        return [span for span in word_spans(text) if text[slice(*span)].lower() in keywords]

    @property
    def config(self) -> dict[str, Any]:
        """The settings, as JSON."""
        stop_words = None if self.stop_words is None else sorted(self.stop_words)
        return {"name": "rake", "top_k": self.top_k, "stop_words": stop_words}


_SAVABLE = (JiebaKeywords, TfidfKeywords, RakeKeywords)
"""The extractors that can be saved: each has a ``config`` with its name."""
_CLASSES = dict(zip(("jieba", "tfidf", "rake"), _SAVABLE, strict=True))
_NAMES = ", ".join(map(repr, _CLASSES))


def keyword_spans(text: str, extractor: Extractor) -> list[Span]:
    """Return what ``extractor`` finds in ``text`` as spans: one per word, sorted, without overlaps.

    Args:
        text: the text itself, without a prompt.
        extractor: returns ``(start, end)`` character spans, or words, which count at every occurrence (``find_words``).

    Raises:
        ValueError: if a span lies outside the text, or the extractor returns anything but spans or words.
    """
    result = extractor(text)
    if isinstance(extractor, _SAVABLE):
        return list(result)  # type: ignore[arg-type]
    if isinstance(result, str) or not isinstance(result, Iterable):
        raise ValueError(f"keywords must return a list of (start, end) spans or a list of words, got {result!r}.")
    items = list(result)
    if all(isinstance(item, str) for item in items):
        return split_at_spaces(text, find_words(text, items))  # type: ignore[arg-type]
    return split_at_spaces(text, without_overlaps(checked_span(text, item) for item in items))


def build_extractor(keywords: Any, corpus: Iterable[str] | None = None) -> Extractor:
    """Build the extractor that ``keywords`` names.

    Args:
        keywords: "jieba", "tfidf" (fitted on ``corpus``), "rake", an extractor's ``config``, or a callable, which is
            returned unchanged.
        corpus: sentences for "tfidf".

    Raises:
        ValueError: if the name is unknown, or "tfidf" is given without a corpus.
    """
    if callable(keywords):
        return keywords  # type: ignore[no-any-return]
    if isinstance(keywords, str) and keywords == "tfidf":
        if corpus is None:
            raise ValueError('corpus must be given for keywords="tfidf", got None: give corpus=[sentence, ...].')
        return TfidfKeywords.fit(corpus)
    settings = dict(keywords) if isinstance(keywords, dict) else {"name": keywords}
    name = settings.pop("name", None)
    extractor = _CLASSES.get(name) if isinstance(name, str) else None
    if extractor is None:
        raise ValueError(f"keywords must be {_NAMES} or a callable text -> spans or words, got {shown(keywords)}.")
    return extractor(**settings)  # type: ignore[no-any-return]


def extractor_config(extractor: Extractor) -> dict[str, Any]:
    """Return the settings from which ``build_extractor`` builds the same extractor again.

    Raises:
        ValueError: if the extractor is a callable of your own, which no file can hold.
    """
    if isinstance(extractor, _SAVABLE):
        return extractor.config
    raise ValueError(
        f"keywords must be saved with the model, got {extractor!r}, a callable, which cannot be saved: "
        f"use one of {_NAMES}."
    )
