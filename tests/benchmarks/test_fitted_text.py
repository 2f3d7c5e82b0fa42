"""The text that is trained or fitted on, without the sentences of the sets that are scored."""

import pytest

from benchmarks.fitted_text import spaced, thinned, without_sentences
from st_extras.evaluation import STSDataset

PAIRS = STSDataset("tests", ["A cat sat .", "the dog"], ["a bird", "It 's red"], [1.0, 2.0], ["a", "a"])


def test_sentences_are_left_out_whatever_their_case_and_punctuation():
    text = ["a cat sat", "a cat sat down", "THE DOG!", "a bird", "it's red", "a cat sat down"]
    assert without_sentences(text, [PAIRS]) == ["a cat sat down", "a cat sat down"]
    assert without_sentences(text, []) == text


def test_a_text_of_test_sentences_alone_is_refused():
    with pytest.raises(ValueError, match="got 2 that they hold: leave out the variants"):
        without_sentences(["a bird", "the dog ."], [PAIRS])


def test_sentences_are_evenly_spaced():
    assert spaced([*"abcdefgh"], 3) == ["a", "c", "e"]
    assert spaced([*"ab"], 3) == ["a", "b"]


def test_of_a_set_as_many_pairs_are_left_as_are_asked_for():
    few = thinned(PAIRS, {"others": 2, "tests": 1})
    assert (few.sentences1, few.sentences2, few.scores) == (["A cat sat ."], ["a bird"], [1.0])
    assert thinned(PAIRS, {"tests": 2}).scores == thinned(PAIRS, {}).scores == [1.0, 2.0]
