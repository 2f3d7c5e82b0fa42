"""Importance of words and overlap with trivial words against the paper's equations 4 and 5."""

import numpy as np
import pytest

from benchmarks.figures.redundancy import (
    redundancy_overlap_ratio,
    without_word,
    word_importance,
)
from st_extras.modules import RepALPostProcessor
from tests.helpers import cosine

pytest.importorskip("jieba")

PAIRS = [
    ("the cat sat on the mat", "a dog ran in the park"),
    ("a woman and a man", "the old man read a red book"),
    ("children play", "he cooks soup with fresh carrots"),
    ("in to with", "a cat"),
]


def model_cosine(model, first, second):
    return cosine(model.encode(first), model.encode(second))


def test_a_word_is_deleted_wherever_it_stands():
    assert without_word("The cat saw the other: the", "the") == "cat saw other:"
    assert without_word("a woman and a man", "man") == "a woman and a"


@pytest.mark.parametrize("with_repal", [False, True])
@pytest.mark.parametrize("delete_from", ["first", "both"])
def test_importance_is_equation_4(still_encoder, sentences, with_repal, delete_from):
    model = still_encoder
    if with_repal:
        model = RepALPostProcessor.attach(model, lambda_1=0.5, lambda_2=0.8, corpus=sentences)
    words = [["the", "cat"], ["man"], [], ["to"]]
    found = word_importance(model, PAIRS, words, delete_from=delete_from)
    assert [len(values) for values in found] == [2, 1, 0, 1]
    for (x, y), own, values in zip(PAIRS, words, found, strict=True):
        for word, value in zip(own, values, strict=True):
            other = without_word(y, word) if delete_from == "both" else y
            expected = model_cosine(model, x, y) - model_cosine(model, without_word(x, word), other)
            assert value == pytest.approx(expected, abs=1e-5)
    assert abs(found[0][0]) > 1e-4


def test_overlap_is_equation_5(still_encoder):
    total = []
    for x, y in PAIRS:
        words = list(dict.fromkeys(x.split()))
        values = word_importance(still_encoder, [(x, y)], [words])[0]
        top = [word for _, word in sorted(zip(values, words, strict=True), key=lambda item: -item[0])][:3]
        # jieba's stop words, and words of one letter, are never keywords
        trivial = {"the", "on", "a", "and", "in", "to", "with"}
        total.append(len(set(top) & trivial) / len(top))
    ratio = redundancy_overlap_ratio(still_encoder, PAIRS, top=3)
    assert ratio == pytest.approx(np.mean(total))
    assert 0 < ratio < 1
    assert redundancy_overlap_ratio(still_encoder, PAIRS[3:]) == 1
    assert redundancy_overlap_ratio(still_encoder, [("children play", "a"), ("", "b"), ("...", "c")]) == 0
    assert redundancy_overlap_ratio(still_encoder, PAIRS, keywords=lambda text: [(0, len(text))]) == 0
