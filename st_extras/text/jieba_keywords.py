"""The keyword extractor of the RepAL paper: TF-IDF of the segmenter jieba, for English and Chinese."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from st_extras.checks import check_count
from st_extras.text.spans import MAX_TOP_K, Span, find_words
from st_extras.text.words import keep_cache_private


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

    The shortcut leaves out the pieces that jieba cuts into single characters, because TF-IDF drops those.
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
    """Return jieba's TF-IDF with a dictionary of its own, so that words that others add to jieba change nothing."""
    import jieba
    from jieba.analyse.tfidf import TFIDF

    jieba.setLogLevel(logging.WARNING)
    extractor = TFIDF()
    tokenizer = jieba.Tokenizer()
    keep_cache_private(tokenizer)
    extractor.tokenizer = _FasterCut(tokenizer)
    return extractor
