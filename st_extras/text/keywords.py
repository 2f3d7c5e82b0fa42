"""Keyword extractors: each takes a text and returns the character spans of its informative words.

``JiebaKeywords`` is the RepAL paper's, ``TfidfKeywords`` is fitted on your own sentences, ``RakeKeywords`` takes the
words of the best phrases; ``keyword_spans`` also takes any callable. The three classes need no download, can be saved
(``config``) and can be sent to other processes. Spans are ``(start, end)``, sorted, without overlaps, one per word.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from st_extras.checks import (
    check_count,
    check_finite,
    check_instance,
    check_interval,
    check_not_negative,
    check_strings,
    counted,
    shown,
)
from st_extras.text.corpus import iterate_sentences
from st_extras.text.phrases import RakePhrases
from st_extras.text.words import (
    MAX_TOP_K,
    Span,
    checked_span,
    english_stop_words,
    find_all_words,
    find_words,
    without_overlaps,
    word_spans,
)

Extractor = Callable[[str], Sequence[Span] | Sequence[str]]
"""Takes a text and returns the spans of its keywords, or the keywords."""


class JiebaKeywords:
    """Find the keywords of an English or Chinese text as the RepAL paper does: jieba's TF-IDF, ``extract_tags``.

    English words are not in jieba's IDF table, so nearly every word of two letters or more is a keyword, except jieba's
    32 stop words. jieba cuts letters outside ASCII and Chinese into single characters, which are never keywords: use
    ``TfidfKeywords`` for other languages. Tags without a letter or digit ("..." for example) are left out.

    Source: https://github.com/fxsjy/jieba.

    Args:
        top_k: largest number of distinct keywords of a text; 20 is jieba's default. None: all.

    Raises:
        ValueError: if ``top_k`` is not a whole number from 1 to 1,000,000 or None.

    Example:
        >>> from st_extras.text import JiebaKeywords
        >>> text = "The cat sat on the mat"
        >>> [text[start:end] for start, end in JiebaKeywords()(text)]
        ['cat', 'sat', 'mat']
    """

    def __init__(self, top_k: int | None = 20) -> None:
        self.top_k = None if top_k is None else check_count("top_k", top_k, 1, MAX_TOP_K)

    def __call__(self, text: str) -> list[Span]:
        """Return the spans of the keywords of ``text``."""
        tags = _jieba_tfidf().extract_tags(text, topK=self.top_k)
        return find_words(text, [tag for tag in tags if any(map(str.isalnum, tag))])

    @property
    def config(self) -> dict[str, Any]:
        """The settings, as JSON."""
        return {"name": "jieba", "top_k": self.top_k}


class _FasterCut:
    """jieba's ``cut`` with a shortcut for texts without Chinese and dictionary words, which need only two patterns.

    The shortcut leaves out the pieces that jieba cuts into single characters, because TF-IDF drops those. With it, an
    English sentence takes a sixth of the time, and RepAL's pooled copy next to none beside the encoder.
    """

    _blocks = re.compile(r"[a-zA-Z0-9+#&._%\-]+")
    _pieces = re.compile(r"([a-zA-Z0-9]+(?:\.\d+)?%?)")

    def __init__(self, tokenizer: Any) -> None:
        tokenizer.initialize()
        self.tokenizer = tokenizer
        words = [word for word, count in tokenizer.FREQ.items() if count and len(word) > 1 and word.isascii()]
        self._needs_jieba = re.compile("|".join(["[\u4e00-\u9fd5]", *map(re.escape, words)]))

    def cut(self, text: str) -> Iterator[str]:
        if self._needs_jieba.search(text):
            yield from self.tokenizer.cut(text)
            return
        for block in self._blocks.findall(text):
            yield from filter(None, self._pieces.split(block))


@lru_cache(maxsize=1)
def _jieba_tfidf() -> Any:
    """Return jieba's TF-IDF with a separate dictionary, which words added to jieba elsewhere do not change."""
    import jieba
    from jieba.analyse.tfidf import TFIDF

    jieba.setLogLevel(logging.WARNING)
    extractor = TFIDF()
    extractor.tokenizer = _FasterCut(jieba.Tokenizer())
    return extractor


class TfidfKeywords:
    """Find the keywords of a text by TF-IDF fitted on your own sentences; for any language with spaces between words.

    Source: scikit-learn's ``TfidfVectorizer``, whose inverse document frequencies these are,
    https://scikit-learn.org/stable/modules/feature_extraction.html#tfidf-term-weighting.

    Args:
        idf: inverse document frequency of each lower-case word; ``TfidfKeywords.fit`` computes it.
        unseen_idf: inverse document frequency of words that are not in ``idf``.
        top_k: largest number of distinct keywords of a text, highest TF-IDF first. None: all.
        stop_words: lower-case words that are never keywords.

    Raises:
        ValueError: if ``top_k`` is not a whole number from 1 to 1,000,000 or None, ``idf`` is not a dictionary of
            finite numbers, ``unseen_idf`` is not a number >= 0, or ``stop_words`` is not a collection of strings.

    Example:
        >>> from st_extras.text import TfidfKeywords
        >>> extractor = TfidfKeywords.fit(["the cat sat", "the cat ran", "the dog ran home"], top_k=2)
        >>> text = "The cat ran to the dog"
        >>> [text[start:end] for start, end in extractor(text)]
        ['cat', 'dog']
    """

    def __init__(
        self, idf: dict[str, float], unseen_idf: float, top_k: int | None = 20, stop_words: Collection[str] = ()
    ) -> None:
        check_instance("idf", idf, dict)
        self.idf = {word: check_finite(f"idf[{word!r}]", value) for word, value in idf.items()}
        self.unseen_idf = check_not_negative("unseen_idf", unseen_idf)
        self.top_k = None if top_k is None else check_count("top_k", top_k, 1, MAX_TOP_K)
        self.stop_words = frozenset(check_strings("stop_words", stop_words))

    @classmethod
    def fit(
        cls,
        sentences: Iterable[str],
        *,
        top_k: int | None = 20,
        stop_words: Collection[str] | None = None,
        max_df: float = 1.0,
    ) -> TfidfKeywords:
        """Count in how many sentences each word occurs, in memory that grows with the vocabulary alone.

        Args:
            sentences: the corpus, strings or a data set with a text column (see ``iterate_sentences``); read once.
            top_k: largest number of distinct keywords of a text. None: all.
            stop_words: words that are never keywords. None: scikit-learn's English list.
            max_df: words in more than this share of the sentences are stop words too; above 0, at most 1.

        Raises:
            ValueError: if the corpus has no word, or a setting is out of range.
        """
        max_df = check_interval("max_df", max_df, 0, 1, low_included=False)
        given = english_stop_words() if stop_words is None else check_strings("stop_words", stop_words)
        extractor = cls({}, 0, top_k, {word.lower() for word in given})  # checks the settings before reading the corpus
        count, counts = 0, Counter[str]()
        for sentence in iterate_sentences(sentences):
            count += 1
            counts.update(dict.fromkeys(find_all_words(sentence.lower()), 1))
        if not counts:
            raise ValueError(f"corpus must hold sentences with words, got {counted(count, 'sentence')} without one.")
        values = np.log((count + 1.0) / (np.fromiter(counts.values(), dtype=np.float64) + 1.0)) + 1.0
        extractor.idf = dict(zip(counts, values.tolist(), strict=True))
        extractor.unseen_idf = math.log(1 + count) + 1
        lowest = math.log((1 + count) / (1 + max_df * count)) + 1  # the IDF of a word in a share max_df
        extractor.stop_words |= {word for word, value in extractor.idf.items() if value < lowest - 1e-9}
        return extractor

    def __call__(self, text: str) -> list[Span]:
        """Return the spans of the keywords of ``text``."""
        spans = word_spans(text)
        words = [text[start:end].lower() for start, end in spans]
        weights: dict[str, float] = {}
        for word in words:
            if word not in self.stop_words:
                weights[word] = weights.get(word, 0.0) + self.idf.get(word, self.unseen_idf)
        keywords = set(sorted(weights, key=weights.__getitem__, reverse=True)[: self.top_k])
        return [span for span, word in zip(spans, words, strict=True) if word in keywords]

    @property
    def config(self) -> dict[str, Any]:
        """The settings and the fitted table, as JSON."""
        return {
            "name": "tfidf",
            "idf": self.idf,
            "unseen_idf": self.unseen_idf,
            "top_k": self.top_k,
            "stop_words": sorted(self.stop_words),
        }


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
        self.stop_words = None if stop_words is None else check_strings("stop_words", stop_words)
        self._extractor = RakePhrases(stop_words=self.stop_words)

    def __call__(self, text: str) -> list[Span]:
        """Return the spans of the keywords of ``text``."""
        phrases = self._extractor(text)[: self.top_k]
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
_NOT_SPACE = re.compile(r"\S+")


def keyword_spans(text: str, extractor: Extractor) -> list[Span]:
    """Return what ``extractor`` finds in ``text`` as spans: one per word, sorted, without overlaps.

    Args:
        text: the text itself, without a prompt.
        extractor: returns ``(start, end)`` character spans, or words, which count at every occurrence (``find_words``).

    Raises:
        ValueError: if a span lies outside the text, or the extractor returns anything but spans or words.
    """
    result = extractor(text)
    if isinstance(result, str) or not isinstance(result, Iterable):
        raise ValueError(f"keywords must return a list of (start, end) spans or a list of words, got {result!r}.")
    items = list(result)
    if all(isinstance(item, str) for item in items):
        spans = find_words(text, items)  # type: ignore[arg-type]
    else:
        spans = without_overlaps(_span_within(text, item) for item in items)
    return [match.span() for start, end in spans for match in _NOT_SPACE.finditer(text, start, end)]


def _span_within(text: str, item: Any) -> Span:
    """Return ``item`` as a span of ``text``.

    Raises:
        ValueError: if it is not two whole numbers, or lies outside the text.
    """
    start, end = checked_span("keywords", item)
    if not 0 <= start < end <= len(text):
        raise ValueError(
            f"keywords must return words, or spans with 0 <= start < end <= {len(text)}, the length of the text, got "
            f"{shown(item)} for {shown(text)}."
        )
    return start, end


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
        ValueError: if the extractor is your callable, which cannot be saved to a file.
    """
    if isinstance(extractor, _SAVABLE):
        return extractor.config
    raise ValueError(
        f"keywords must be saved with the model, got {extractor!r}, a callable, which cannot be saved: "
        f"use one of {_NAMES}."
    )
