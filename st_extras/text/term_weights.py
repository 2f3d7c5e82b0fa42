"""What two texts share in words and parts of words: TF-IDF vectors, and BM25."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from st_extras.checks import check_strings
from st_extras.text.words import find_all_words

SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
"""Characters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
_PIECE = re.compile(rf"[{SPACELESS}]+|[^{SPACELESS}'’\-‐‑]+")  # "x-ray" is two words to a search


class BM25:
    """BM25 (Lucene's form, k1 = 1.5, b = 0.75): how well documents match a query by words alone, by ``bm25s``.

    Words are compared in small letters and as they are: nothing is stemmed, no word is left out. Chinese, Japanese,
    Thai, Lao, Khmer and Burmese text counts by pairs of neighbouring characters.

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
        ids = [[self._ids.setdefault(word, len(self._ids)) for word in search_words(text)] for text in documents]
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


def search_words(text: str) -> list[str]:
    """Return the words of a text in small letters; pairs of characters where a script has no spaces between words."""
    found = []
    for word in find_all_words(unicodedata.normalize("NFKC", text).casefold()):
        for piece in _PIECE.findall(word):
            paired = len(piece) > 1 and re.match(f"[{SPACELESS}]", piece)
            found += [piece[i : i + 2] for i in range(len(piece) - 1)] if paired else [piece]
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
