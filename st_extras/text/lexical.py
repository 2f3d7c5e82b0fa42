"""Texts as TF-IDF vectors: what two texts share in words and parts of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def character_tfidf(texts: Sequence[str]) -> Any:
    """Return the (N, V) sparse TF-IDF rows, float32 of length 1, of character 3- to 5-grams within words.

    Grams of a single text are left out; a text without any other has a row of zeros.
    """
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=2, dtype=np.float32)
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
