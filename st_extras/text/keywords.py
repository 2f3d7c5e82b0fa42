"""Keyword extractors: each takes a text and returns the character spans of its informative words.

``JiebaKeywords`` is the RepAL paper's, ``TfidfKeywords`` is fitted on your own sentences, ``RakeKeywords`` takes the
words of the best phrases; ``keyword_spans`` also takes any callable. The three classes need no download, can be saved
(``config``) and can be sent to other processes. Spans are ``(start, end)``, sorted, without overlaps, one per word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from st_extras.checks import check_count, check_finite, check_instance, check_interval, check_not_negative
from st_extras.text.corpus import iterate_sentences
from st_extras.text.jieba_keywords import JiebaKeywords
from st_extras.text.phrases import RakePhrases
from st_extras.text.spans import MAX_TOP_K, Span, checked_span, find_words, split_at_spaces, without_overlaps
from st_extras.text.stop_words import check_stop_words, english_stop_words
from st_extras.text.words import WORD, word_spans

Extractor = Callable[[str], Sequence[Span] | Sequence[str]]
"""Takes a text and returns the spans of its keywords, or the keywords."""


class TfidfKeywords:
    """Find the keywords of a text by TF-IDF fitted on your own sentences; for any language with spaces between words.

    Source: scikit-learn's ``TfidfVectorizer``,
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
        self,
        idf: dict[str, float],
        unseen_idf: float,
        top_k: int | None = 20,
        stop_words: Collection[str] = (),
    ) -> None:
        check_instance("idf", idf, dict)
        self.idf = {word: check_finite(f"idf[{word!r}]", value) for word, value in idf.items()}
        self.unseen_idf = check_not_negative("unseen_idf", unseen_idf)
        self.top_k = None if top_k is None else check_count("top_k", top_k, 1, MAX_TOP_K)
        self.stop_words = check_stop_words(stop_words)

    @classmethod
    def fit(
        cls,
        sentences: Iterable[str],
        *,
        top_k: int | None = 20,
        stop_words: Collection[str] | None = None,
        max_df: float = 1.0,
    ) -> TfidfKeywords:
        """Count document frequencies over ``sentences``.

        Args:
            sentences: the corpus, strings or a data set with a text column (see ``iterate_sentences``); read once.
            top_k: largest number of distinct keywords of a text. None: all.
            stop_words: words that are never keywords. None: scikit-learn's English list.
            max_df: words in more than this share of the sentences are stop words too; above 0, at most 1.

        Raises:
            ValueError: if the corpus has no word, or a setting is out of range.
        """
        from sklearn.feature_extraction.text import TfidfVectorizer

        max_df = check_interval("max_df", max_df, 0, 1, low_included=False)
        given = english_stop_words() if stop_words is None else {word.lower() for word in check_stop_words(stop_words)}
        vectorizer = TfidfVectorizer(token_pattern=WORD.pattern)
        try:
            count = vectorizer.fit_transform(iterate_sentences(sentences)).shape[0]
        except ValueError as error:
            if "empty vocabulary" not in str(error):
                raise  # a sentence that is none
            raise ValueError(f"corpus must hold sentences with words, got none that TF-IDF can use: {error}.") from None
        idf = {word: float(vectorizer.idf_[i]) for word, i in vectorizer.vocabulary_.items()}
        lowest = math.log((1 + count) / (1 + max_df * count)) + 1  # the IDF of a word in a share max_df
        frequent = {word for word, value in idf.items() if value < lowest - 1e-9}
        return cls(idf, math.log(1 + count) + 1, top_k=top_k, stop_words=given | frequent)

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
    if keywords == "tfidf":
        if corpus is None:
            raise ValueError('corpus must be given for keywords="tfidf", got None: give corpus=[sentence, ...].')
        return TfidfKeywords.fit(corpus)
    settings = dict(keywords) if isinstance(keywords, dict) else {"name": keywords}
    extractor = _CLASSES.get(str(settings.pop("name", "")))
    if extractor is None:
        raise ValueError(f"keywords must be {_NAMES} or a callable text -> spans or words, got {keywords!r}.")
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
