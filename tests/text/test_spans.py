"""Character spans: words are found on boundaries, and replaced or deleted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from st_extras.text.words import find_words, replace_spans


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("the woman and the man", ["man"], "the woman and the _"),
        ("man, woman: man!", ["man"], "_, woman: _!"),
        ("Cat cat CAT category", ["cat"], "_ _ _ category"),
        ("cat1 cat_2 cat", ["cat"], "cat1 __2 _"),
        ("we love New York", ["york", "new"], "we love _ _"),
        ("我喜欢北京大学", ["北京", "喜欢"], "我__大学"),
        ("用iPhone手机", ["iphone"], "用_手机"),
        ("a cafe\u0301 is a cafe", ["cafe"], "a _ is a _"),
        ("re\u0301sume\u0301", ["re", "sume"], "re\u0301sume\u0301"),
        ("ABAB", ["ab"], "ABAB"),
        ("北京北京", ["北京"], "__"),
        ("🍕 pizza 👩‍🍳!", ["pizza"], "🍕 _ 👩‍🍳!"),
        ("İstanbul istanbul x", ["istanbul", "x"], "İstanbul _ _"),
        ("#tag nottag", ["#tag"], "_ nottag"),
        ("", ["a"], ""),
        ("a", [""], "a"),
    ],
)
def test_words_are_found_at_every_occurrence_on_boundaries(text, words, expected):
    assert replace_spans(text, find_words(text, words), "_") == expected


def test_the_longer_of_two_overlapping_words_stays():
    assert find_words("北京大学生", ["北京", "北京大学", "大学生"]) == [(0, 4)]


@given(
    st.text(alphabet="aAbB 1-'.é\u0301北_", max_size=30),
    st.lists(st.text("ab1北é", min_size=1, max_size=3), max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_spans_are_sorted_apart_and_hold_a_word(text, words):
    spans = find_words(text, words)
    assert all(0 <= a < b <= len(text) for a, b in spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    for start, end in spans:
        assert text[start:end].rstrip("\u0301").lower() in {w.lower() for w in words}


def test_deleting_words_takes_the_spaces_along():
    assert replace_spans("a red fox ran", [(2, 5)], "") == "a fox ran"
    assert replace_spans("red fox", [(0, 3), (4, 7)], "") == ""
    assert replace_spans("a  b", [], "") == "a  b"
