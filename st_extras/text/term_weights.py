"""What two texts share in words and parts of words: TF-IDF vectors, and BM25."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from st_extras.checks import check_strings
from st_extras.text.words import INVISIBLE, SPACELESS, find_all_words

_PAIRED = rf"{SPACELESS}\uac00-\ud7a3"  # and Hangul, where particles follow a word without a space
_PIECE = re.compile(rf"([{_PAIRED}]+)|[^{_PAIRED}'’\-‐‑]+")  # "x-ray" is two words to a search
# What the same word is written with and without: format characters, Hebrew points, Arabic vowel signs and tatweel.
_LEFT_OUT = re.compile(
    rf"[{INVISIBLE}\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670\u06d6-\u06dc]"
)


class BM25:
    """BM25 (Lucene's form, k1 = 1.5, b = 0.75): how well documents match a query by words alone, by ``bm25s``.

    Words are compared in small letters (NFKC and case folding, "İ" as "i"); nothing is stemmed, no word is left out.
    What Lucene's StandardAnalyzer keeps together stays together: letters with their marks, soft hyphens and joiners.
    Beyond it, hyphens, apostrophes and underscores separate words; format characters, Arabic vowel signs, tatweel and
    Hebrew points are dropped, as Lucene's analyzers of these languages do. Chinese, Japanese, Korean, Thai, Lao,
    Tibetan, Khmer and Burmese text counts by pairs of neighbouring characters, as in Lucene's CJKAnalyzer; that of
    documents also by single ones, so that a query of one character finds them. Out of scope are accents ("cafe" does
    not find "café"), emoji, and other forms of a number ("1,000").

    Args:
        documents: the texts to search in.

    Raises:
        ImportError: if ``bm25s`` is not installed (``pip install "st-extras[search]"``).
        ValueError: if ``documents`` is not a collection of at least one string.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        documents = check_strings("documents", documents, at_least=1)
        try:
            import bm25s
        except ImportError as error:
            raise ImportError('BM25 needs bm25s: pip install "st-extras[search]".') from error
        self._ids: dict[str, int] = {}
        words = (search_words(text, singles=True) for text in documents)
        ids = [[self._ids.setdefault(word, len(self._ids)) for word in found] for found in words]
        self._count = len(documents)
        self._index = bm25s.BM25()
        if self._ids:
            self._index.index((ids, self._ids), create_empty_token=False, show_progress=False)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return the (Q, N) float32 scores of the N documents for each query, 0 where they share no word.

        Raises:
            ValueError: if ``queries`` is not a collection of strings.
        """
        queries = check_strings("queries", queries)
        scores = np.zeros((len(queries), self._count), dtype=np.float32)
        for row, query in zip(scores, queries, strict=True):
            if known := [self._ids[word] for word in search_words(query) if word in self._ids]:
                row[:] = self._index.get_scores_from_ids(known)
        return scores


def search_words(text: str, *, singles: bool = False) -> list[str]:
    """Return the words of a text as :class:`BM25` compares them.

    Args:
        text: any text.
        singles: of characters that count by pairs, whether to return each alone too, as of documents.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    if not folded.isascii():
        folded = _LEFT_OUT.sub("", folded.replace("i\u0307", "i"))
    found = []
    for word in find_all_words(folded):
        for piece in _PIECE.finditer(word):
            characters = piece[1] or ""
            if len(characters) > 1:
                found += [characters[i : i + 2] for i in range(len(characters) - 1)]
                found += characters if singles else ()
            else:
                found.append(piece[0])
    return found


def character_tfidf(texts: Sequence[str], most: float = 1.0) -> Any:
    """Return the (N, V) sparse TF-IDF rows, float32 of length 1, of character 3- to 5-grams within words.

    Grams of a single text are left out; a text without any other has a row of zeros.

    Args:
        texts: (N,).
        most: leave out grams that a greater share of the texts has: they say little and cost most.
    """
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

    settings: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (3, 5), "sublinear_tf": True}
    vectorizer = TfidfVectorizer(min_df=2, max_df=most, dtype=np.float32, **settings)
    try:
        return vectorizer.fit_transform(texts)
    except ValueError:  # no gram stands in two texts
        return csr_matrix((len(texts), 1), dtype=np.float32)


def near_duplicate_share(texts: Sequence[str], cosine: float = 0.9) -> float:
    """Return the share of texts that share nearly all their grams with another: TF-IDF cosine above ``cosine``."""
    rows = character_tfidf(texts)
    similarities = (rows @ rows.T).toarray()
    np.fill_diagonal(similarities, 0)
    return float((similarities > cosine).any(axis=1).mean()) if len(texts) else 0.0
