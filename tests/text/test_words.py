from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from st_extras.text.words import WORD, jieba_spans, split_at_words, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A well-known cat's 2nd nap, isn't it?", ["A", "well-known", "cat's", "2nd", "nap", "isn't", "it"]),
        ("_a_ b- -c 'd'", ["a", "b", "c", "d"]),
        ("cafe\u0301 au lait", ["cafe\u0301", "au", "lait"]),  # a decomposed accent
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा"]),
        ("שָׁלוֹם עולם", ["שָׁלוֹם", "עולם"]),
        ("", []),
        ("... !?", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in word_spans(text)] == words


@given(st.one_of(st.text(alphabet=st.characters(max_codepoint=127)), st.text("a1'-_ é\u0301’"), st.text()))
def test_the_words_of_ascii_text_are_those_of_any_text(text: str) -> None:
    spans = [match.span() for match in WORD.finditer(text)]
    assert word_spans(text) == spans
    pieces = split_at_words(text)
    assert "".join(pieces) == text
    assert list(pieces[1::2]) == [text[start:end] for start, end in spans]


def test_words_of_another_finder() -> None:
    text = "我喜欢机器学习，it is fun。"
    pieces = split_at_words(text, jieba_spans)
    assert "".join(pieces) == text
    assert pieces[1::2] == ("我", "喜欢", "机器", "学习", "it", "is", "fun")
