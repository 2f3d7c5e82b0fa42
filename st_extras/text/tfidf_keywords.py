"""Keywords by TF-IDF: document frequencies counted in one pass over a corpus, and the extractor that uses them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from st_extras.checks import check_count, check_finite, check_instance, check_interval, check_not_negative
from st_extras.text.corpus import iterate_sentences
from st_extras.text.spans import MAX_TOP_K, Span
from st_extras.text.stop_words import check_stop_words, english_stop_words
from st_extras.text.words import find_all_words, word_spans


class DocumentFrequencies:
    """Count in how many sentences each word occurs, in one pass: memory grows with the vocabulary, not the corpus.

    Attributes:
        counts: number of sentences that hold each lower-case word, in the order in which the words were first seen.
        num_sentences: number of sentences counted.

    Example:
        >>> from st_extras.text.tfidf_keywords import DocumentFrequencies, TfidfKeywords
        >>> frequencies = DocumentFrequencies()
        >>> for sentence in frequencies.watch(iter(["the cat sat", "the cat ran"])):
        ...     pass  # one pass serves two purposes: encode the sentence here, for instance
        >>> frequencies.counts
        {'the': 2, 'cat': 2, 'sat': 1, 'ran': 1}
        >>> TfidfKeywords.from_frequencies(frequencies)("the cat ran home")
        [(4, 7), (8, 11), (12, 16)]
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.num_sentences = 0

    def add(self, sentence: str) -> None:
        """Count the words of one more sentence."""
        self.num_sentences += 1
        counts = self.counts
        for word in dict.fromkeys(find_all_words(sentence.lower())):
            counts[word] = counts.get(word, 0) + 1

    def watch(self, sentences: Iterable[str]) -> Iterator[str]:
        """Yield the sentences of a corpus unchanged, and count each on its way.

        Args:
            sentences: strings or a data set with a text column (see ``iterate_sentences``); read once.
        """
        for sentence in iterate_sentences(sentences):
            self.add(sentence)
            yield sentence


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
        """Count document frequencies over ``sentences``, in memory that grows with the vocabulary alone.

        Args:
            sentences: the corpus, strings or a data set with a text column (see ``iterate_sentences``); read once.
            top_k: largest number of distinct keywords of a text. None: all.
            stop_words: words that are never keywords. None: scikit-learn's English list.
            max_df: words in more than this share of the sentences are stop words too; above 0, at most 1.

        Raises:
            ValueError: if the corpus has no word, or a setting is out of range.
        """
        given, max_df = cls._check(top_k, stop_words, max_df)  # before the corpus is read
        frequencies = DocumentFrequencies()
        for sentence in iterate_sentences(sentences):
            frequencies.add(sentence)
        return cls.from_frequencies(frequencies, top_k=top_k, stop_words=given, max_df=max_df)

    @classmethod
    def from_frequencies(
        cls,
        frequencies: DocumentFrequencies,
        *,
        top_k: int | None = 20,
        stop_words: Collection[str] | None = None,
        max_df: float = 1.0,
    ) -> TfidfKeywords:
        """Make the extractor of a corpus whose words have been counted; the other arguments are those of ``fit``.

        Raises:
            ValueError: if no word was counted, or a setting is out of range.
        """
        given, max_df = cls._check(top_k, stop_words, max_df)
        count, counts = frequencies.num_sentences, frequencies.counts
        if not counts:
            raise ValueError(f"corpus must hold sentences with words, got {count} sentences without one.")
        values = np.log((count + 1.0) / (np.fromiter(counts.values(), dtype=np.float64) + 1.0)) + 1.0
        idf = dict(zip(counts, values.tolist(), strict=True))
        lowest = math.log((1 + count) / (1 + max_df * count)) + 1  # the IDF of a word in a share max_df
        frequent = {word for word, value in idf.items() if value < lowest - 1e-9}
        return cls(idf, math.log(1 + count) + 1, top_k=top_k, stop_words=given | frequent)

    @staticmethod
    def _check(top_k: Any, stop_words: Collection[str] | None, max_df: Any) -> tuple[set[str], float]:
        """Check the settings; return the stop words and ``max_df``."""
        if top_k is not None:
            check_count("top_k", top_k, 1, MAX_TOP_K)
        max_df = check_interval("max_df", max_df, 0, 1, low_included=False)
        if stop_words is None:
            return set(english_stop_words()), max_df
        return {word.lower() for word in check_stop_words(stop_words)}, max_df

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
