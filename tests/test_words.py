from __future__ import annotations

import pytest

from st_extras.text.words import word_spans


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
