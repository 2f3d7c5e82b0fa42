"""TF-IDF rows of character grams."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from st_extras.text.lexical import character_tfidf

TEXTS = ["A cat sat.", "the cat sat there", "Dogs ran home", "dogs ran", "ran ran ran home"]


def grams(text: str) -> list[str]:
    """All runs of 3 to 5 characters of each word with a space on both sides; a short word is one gram, once."""
    found = []
    for word in text.lower().split():
        word = f" {word} "
        for size in (3, 4, 5):
            found += [word[i : i + size] for i in range(max(1, len(word) - size + 1))]
            if len(word) <= size:
                break
    return found


def test_it_is_sublinear_tfidf_of_grams_within_words():
    counts = [Counter(grams(text)) for text in TEXTS]
    documents = Counter(gram for count in counts for gram in count)
    rows = []
    for count in counts:
        weights = {
            gram: (1 + math.log(number)) * (1 + math.log((1 + len(TEXTS)) / (1 + documents[gram])))
            for gram, number in count.items()
            if documents[gram] >= 2
        }
        length = math.sqrt(sum(weight**2 for weight in weights.values()))
        rows.append({gram: weight / length for gram, weight in weights.items()})
    expected = [[sum(a[gram] * b.get(gram, 0) for gram in a) for b in rows] for a in rows]
    found = character_tfidf(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose((found @ found.T).toarray(), expected, atol=1e-6)


def test_a_text_that_shares_nothing_has_a_row_of_zeros():
    assert character_tfidf([*TEXTS, "xyz"])[-1].nnz == 0


@pytest.mark.parametrize("texts", [["abc", "xyz"], ["", " "], ["one"], ["!", "?"]])
def test_texts_that_share_nothing_at_all(texts):
    found = character_tfidf(texts)
    assert (found.shape[0], found.nnz, found.dtype) == (len(texts), 0, np.float32)
