"""Keywords by TF-IDF, with document frequencies counted in one pass over a corpus."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from st_extras.checks import check_count, check_finite, check_instance, check_interval, check_not_negative
from st_extras.text.corpus import iterate_sentences
from st_extras.text.spans import MAX_TOP_K, Span
from st_extras.text.words import check_stop_words, english_stop_words, find_all_words, word_spans


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
        given = english_stop_words() if stop_words is None else check_stop_words(stop_words)
        extractor = cls({}, 0, top_k, {word.lower() for word in given})  # checks the settings before reading the corpus
        count, counts = 0, Counter[str]()
        for sentence in iterate_sentences(sentences):
            count += 1
            counts.update(dict.fromkeys(find_all_words(sentence.lower()), 1))
        if not counts:
            raise ValueError(f"corpus must hold sentences with words, got {count} sentences without one.")
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
