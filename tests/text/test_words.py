from __future__ import annotations

import nltk
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from st_extras.text import EDA, RakePhrases, TfidfKeywords
from st_extras.text.words import (
    WORD,
    english_stop_words,
    find_all_words,
    jieba_spans,
    phrase_stop_words,
    split_at_words,
    word_spans,
)


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
def test_words(text, words):
    assert [text[start:end] for start, end in word_spans(text)] == find_all_words(text) == words


@given(st.one_of(st.text(alphabet=st.characters(max_codepoint=127)), st.text("a1'-_ é\u0301’"), st.text()))
def test_the_words_of_ascii_text_are_those_of_any_text(text):
    spans = [match.span() for match in WORD.finditer(text)]
    assert word_spans(text) == spans
    pieces = split_at_words(text)
    assert "".join(pieces) == text
    assert list(pieces[1::2]) == [text[start:end] for start, end in spans]


def test_words_of_another_finder():
    text = "我喜欢机器学习，it is fun。"
    pieces = split_at_words(text, jieba_spans)
    assert "".join(pieces) == text
    assert pieces[1::2] == ("我", "喜欢", "机器", "学习", "it", "is", "fun")


def test_every_user_has_its_list():
    assert english_stop_words() == ENGLISH_STOP_WORDS
    assert EDA(synonyms={}).stop_words == english_stop_words()
    assert TfidfKeywords.fit(["a red fox"]).stop_words == english_stop_words()
    assert RakePhrases().stop_words == phrase_stop_words("english")
    assert phrase_stop_words("english") > english_stop_words()
    assert {"don't", "don’t", "t"} <= phrase_stop_words("english") - english_stop_words()
    assert "我们" in phrase_stop_words("chinese")


def test_nltk_stop_words_of_another_language(tmp_path, monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    nltk.corpus.stopwords._unload()
    (tmp_path / "corpora" / "stopwords").mkdir(parents=True)
    (tmp_path / "corpora" / "stopwords" / "german").write_text("der\nund\n")
    try:
        assert RakePhrases(language="german")("Der Hund und Otto") == ["Hund", "Otto"]
    finally:
        nltk.corpus.stopwords._unload()
