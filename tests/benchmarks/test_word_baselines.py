"""The baselines by plain loops on texts small enough to follow, and the command that records them."""

import math

import pytest

from benchmarks import word_baselines

TEXT = ["a cat sat on the mat", "the dog ran in the park", "the old man read a red book"]
FIRST = ["a cat sat on the mat", "the dog and the cat", "xyz"]
SECOND = ["the cat ran in the park", "a red book", "a cat"]


def tfidf_by_loops(text: list[str], first: str, second: str) -> float:
    """Cosine of two texts: (1 + ln tf) (1 + ln((1 + N) / (1 + df))) for every word that the text holds."""
    words = {word for line in text for word in line.split() if len(word) > 1}
    weight = {word: 1 + math.log((1 + len(text)) / (1 + sum(word in line.split() for line in text))) for word in words}

    def vector(line: str) -> dict[str, float]:
        found = [word for word in line.split() if word in words]
        return {word: (1 + math.log(found.count(word))) * weight[word] for word in found}

    left, right = vector(first), vector(second)
    length = math.sqrt(sum(x * x for x in left.values()) * sum(x * x for x in right.values()))
    return sum(left[word] * right.get(word, 0.0) for word in left) / length if length else 0.0


def test_tfidf_is_that_of_plain_loops():
    found = word_baselines.tfidf_cosines(word_baselines.TFIDF["words"], TEXT)(FIRST, SECOND)
    assert found == pytest.approx([tfidf_by_loops(TEXT, *pair) for pair in zip(FIRST, SECOND, strict=True)], abs=1e-6)
    assert found[0] > 0
    assert found[2] == 0  # "xyz" is not in the text
