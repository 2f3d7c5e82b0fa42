"""Keyword extractors: a text in, the character spans of its informative words out.

``JiebaKeywords`` (what RepAL's paper uses), ``TfidfKeywords`` (fitted on the user's own sentences), ``RakeKeywords``,
and any callable ``text -> spans or words`` through ``keyword_spans``. The three classes can be saved (``config``) and
sent to other processes; none needs a download. Spans are ``(start, end)`` offsets into the text, sorted, without
overlaps, one per word.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from st_extras.text.extractors import RakePhrases
from st_extras.text.spans import Span, checked_span, find_words, split_at_spaces, without_overlaps
from st_extras.text.words import WORD, word_spans

Extractor = Callable[[str], Sequence[Span] | Sequence[str]]

KEYWORD_EXTRACTORS = ("jieba", "tfidf", "rake")


def _install_hint(package: str, extractor: str) -> ImportError:
    return ImportError(f'{extractor} keywords need {package}: pip install "st-extras[text]"')


def _check_top_k(top_k: int | None) -> int | None:
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k must be a positive number of keywords, or None for all of them; got {top_k!r}")
    return top_k


def keyword_spans(text: str, extractor: Extractor) -> list[Span]:
    """What ``extractor`` finds in ``text`` as clean spans: one per word, sorted, without overlaps.

    Args:
        text: the text itself, without any prompt.
        extractor: returns ``(start, end)`` character spans, or words (then every occurrence counts: ``find_words``).

    Raises:
        ValueError: for a span outside the text, or anything that is neither a span nor a word.
    """
    result = extractor(text)
    if isinstance(extractor, (JiebaKeywords, TfidfKeywords, RakeKeywords)):
        return list(result)  # type: ignore[arg-type]
    if isinstance(result, str) or not isinstance(result, Iterable):
        raise ValueError(f"keywords must return a list of (start, end) spans or a list of words; got {result!r}")
    items = list(result)
    if all(isinstance(item, str) for item in items):
        return split_at_spaces(text, find_words(text, items))  # type: ignore[arg-type]
    return split_at_spaces(text, without_overlaps(checked_span(text, item) for item in items))


# --- jieba: the paper's extractor --------------------------------------------------------------------------


class _FasterCut:
    """jieba's ``cut`` with a short cut: without Chinese and dictionary words, only two of its patterns are left.

    It leaves out what jieba cuts into single characters (TF-IDF drops them).
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
    """TF-IDF of jieba with a dictionary of its own, once a process: words that others add to jieba change nothing."""
    try:
        import jieba
        from jieba.analyse.tfidf import TFIDF
    except ImportError:
        raise _install_hint("jieba", "jieba") from None
    jieba.setLogLevel(logging.WARNING)
    extractor = TFIDF()
    extractor.tokenizer = _FasterCut(jieba.Tokenizer())
    return extractor


class JiebaKeywords:
    """The default of jieba's TF-IDF ``extract_tags``: the extractor of RepAL's paper, for English and Chinese.

    English words are not in jieba's IDF table, so nearly every word of two letters or more that is not among jieba's
    32 stop words is a keyword. Letters outside ASCII and Chinese are single characters to jieba, which it never
    returns: for other languages use ``TfidfKeywords``. Tags without a letter or digit (jieba returns "...") are left
    out: they are no words.

    Args:
        top_k: at most so many distinct keywords a text (20, jieba's default); None for all.
    """

    def __init__(self, top_k: int | None = 20) -> None:
        self.top_k = _check_top_k(top_k)

    def __call__(self, text: str) -> list[Span]:
        """Spans of the keywords of ``text``."""
        tags = _jieba_tfidf().extract_tags(text, topK=self.top_k)
        return find_words(text, [tag for tag in tags if any(map(str.isalnum, tag))])

    @property
    def config(self) -> dict[str, Any]:
        """Settings, as JSON."""
        return {"name": "jieba", "top_k": self.top_k}


# --- TF-IDF on the user's corpus ---------------------------------------------------------------------------


def english_stop_words() -> frozenset[str]:
    """scikit-learn's English stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


class TfidfKeywords:
    """TF-IDF with document frequencies of the user's own sentences (scikit-learn), for any language with spaces.

    Args:
        idf: inverse document frequency of each word, lower case; ``TfidfKeywords.fit`` makes it.
        unseen_idf: that of a word that the corpus does not have.
        top_k: at most so many distinct keywords a text, highest TF-IDF first; None for all.
        stop_words: words that are never keywords.
    """

    def __init__(
        self,
        idf: dict[str, float],
        unseen_idf: float,
        top_k: int | None = 20,
        stop_words: Collection[str] = (),
    ) -> None:
        self.idf = idf
        self.unseen_idf = unseen_idf
        self.top_k = _check_top_k(top_k)
        self.stop_words = frozenset(stop_words)

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
            sentences: the corpus; read once.
            top_k: as above.
            stop_words: words that are never keywords; None for scikit-learn's English list.
            max_df: words in more than this share of the sentences are stop words too (0 to 1).

        Raises:
            ValueError: when the corpus has no word, or a setting is out of its range.
        """
        from sklearn.feature_extraction.text import TfidfVectorizer

        if isinstance(sentences, str):
            raise ValueError(f"sentences must be a list of texts, not one text; got {sentences!r}")
        if not 0 < max_df <= 1:
            raise ValueError(f"max_df must be a share of the sentences, 0 < max_df <= 1; got {max_df!r}")
        vectorizer = TfidfVectorizer(token_pattern=WORD.pattern)
        try:
            count = vectorizer.fit_transform(sentences).shape[0]
        except ValueError as error:
            raise ValueError(f"corpus: no TF-IDF can be fitted on it: {error}") from None
        idf = {word: float(vectorizer.idf_[i]) for word, i in vectorizer.vocabulary_.items()}
        lowest = math.log((1 + count) / (1 + max_df * count)) + 1
        frequent = {word for word, value in idf.items() if value < lowest - 1e-9}
        stop = english_stop_words() if stop_words is None else {w.lower() for w in stop_words}
        return cls(idf, math.log(1 + count) + 1, top_k=top_k, stop_words=stop | frequent)

    def __call__(self, text: str) -> list[Span]:
        """Spans of the keywords of ``text``."""
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
        """Settings and the fitted table, as JSON."""
        return {
            "name": "tfidf",
            "idf": self.idf,
            "unseen_idf": self.unseen_idf,
            "top_k": self.top_k,
            "stop_words": sorted(self.stop_words),
        }


# --- RAKE --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _cached_rake(stop_words: frozenset[str] | None) -> RakePhrases:
    return RakePhrases(stopwords=stop_words)


class RakeKeywords:
    """The words of RAKE's best phrases (rake-nltk: score of a word = degree / frequency, of a phrase = their sum).

    Args:
        top_k: the phrases taken, best first; None for all.
        stop_words: words that end a phrase; None for :class:`~st_extras.text.extractors.RakePhrases`'s English list.
    """

    def __init__(self, top_k: int | None = 20, stop_words: Collection[str] | None = None) -> None:
        self.top_k = _check_top_k(top_k)
        self.stop_words = None if stop_words is None else frozenset(stop_words)

    def __call__(self, text: str) -> list[Span]:
        """Spans of the keywords of ``text``."""
        phrases = _cached_rake(self.stop_words)(text)[: self.top_k]
        keywords = {word.lower() for phrase in phrases for word in phrase.split(" ")}
        return [span for span in word_spans(text) if text[slice(*span)].lower() in keywords]

    @property
    def config(self) -> dict[str, Any]:
        """Settings, as JSON."""
        stop_words = None if self.stop_words is None else sorted(self.stop_words)
        return {"name": "rake", "top_k": self.top_k, "stop_words": stop_words}


# --- by name -----------------------------------------------------------------------------------------------


def build_extractor(keywords: Any, corpus: Iterable[str] | None = None) -> Extractor:
    """The extractor that ``keywords`` names.

    Args:
        keywords: "jieba", "tfidf" (fitted on ``corpus``), "rake", an extractor's ``config``, or a callable.
        corpus: sentences for "tfidf".

    Raises:
        ValueError: for another name, or "tfidf" without a corpus.
    """
    if callable(keywords):
        return keywords  # type: ignore[no-any-return]
    if keywords == "tfidf":
        if corpus is None:
            raise ValueError('keywords="tfidf" is fitted on the user\'s sentences: give corpus=[...] too')
        return TfidfKeywords.fit(corpus)
    settings = dict(keywords) if isinstance(keywords, dict) else {"name": keywords}
    classes = {"jieba": JiebaKeywords, "tfidf": TfidfKeywords, "rake": RakeKeywords}
    extractor = classes.get(str(settings.pop("name", "")))
    if extractor is None:
        allowed = ", ".join(map(repr, KEYWORD_EXTRACTORS))
        raise ValueError(f"keywords must be {allowed} or a callable text -> spans or words; got {keywords!r}")
    return extractor(**settings)  # type: ignore[no-any-return]


def extractor_config(extractor: Extractor) -> dict[str, Any]:
    """Settings with which ``build_extractor`` makes the same extractor again.

    Raises:
        ValueError: for a callable of the user's, which no file can hold.
    """
    if isinstance(extractor, (JiebaKeywords, TfidfKeywords, RakeKeywords)):
        return extractor.config
    allowed = ", ".join(map(repr, KEYWORD_EXTRACTORS))
    raise ValueError(
        f"keywords={extractor!r} is a callable, which cannot be saved with the model: attach with one of {allowed}"
    )
