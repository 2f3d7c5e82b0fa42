from __future__ import annotations

import re
from pathlib import Path

import jieba
import jieba.analyse
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from st_extras.text import JiebaKeywords
from st_extras.text.jieba_keywords import _jieba_tfidf
from st_extras.text.spans import replace_spans
from tests.text.sentences import real_sentences


def mask(text):
    return replace_spans(text, JiebaKeywords()(text), "_")


def cut_by_both(text):
    """Pieces of two characters and more: TF-IDF drops the others."""
    fast = _jieba_tfidf().tokenizer
    return tuple([t for t in cut(text) if len(t.strip()) > 1] for cut in (fast.cut, fast.tokenizer.cut))


@pytest.mark.parametrize(
    "text",
    [
        "The quick-brown fox doesn't jump 3.5% over AT&T's C++ code, c# and U.S. e-mail_x!",
        "plain words only",
        "1,000.50 dollars -- really... 20% off",
        "C",
        "c++",
        "   ",
        "",
        "a\r\nb\tc",
        "北京 is in China",
        "T恤 and B超",
        "Zoë's naïve café, α-helix — Привет あい 5€…",
    ],
)
def test_the_short_cut_cuts_as_jieba_does(text):
    fast, stock = cut_by_both(text)
    assert fast == stock


@given(st.text(max_size=60) | st.text(alphabet=st.characters(max_codepoint=127), max_size=60))
@settings(max_examples=400, deadline=None)
def test_the_short_cut_cuts_any_text_as_jieba_does(text):
    fast, stock = cut_by_both(text)
    assert fast == stock


def test_the_short_cut_on_real_sentences(data_folder: Path):
    for sentence in real_sentences(data_folder, "wiki_sentences", stop=1000):
        fast, stock = cut_by_both(sentence)
        assert fast == stock


def test_jieba_masks_what_extract_tags_returns():
    for text in ["The old man and a woman saw the man in Paris .", "我喜欢在北京大学的图书馆看书", "it is of the"]:
        tags = jieba.analyse.extract_tags(text)
        expected = text
        for tag in sorted(tags, key=len, reverse=True):
            expected = re.sub(rf"\b{tag}\b" if tag.isascii() else tag, "_", expected)
        assert mask(text) == expected
    assert mask("the old man") == "the _ _"
    assert mask("it is of the") == "it is of the"
    assert mask("wait ... and see ...") == "_ ... and _ ..."


def test_jieba_takes_twenty_keywords_by_default():
    text = " ".join(f"word{i}" for i in range(30))
    assert len(JiebaKeywords()(text)) == 20
    assert len(JiebaKeywords(top_k=3)(text)) == 3
    assert len(JiebaKeywords(top_k=None)(text)) == 30


def test_words_added_to_the_global_jieba_change_nothing():
    before = JiebaKeywords()("我爱北京烤鸭店")
    jieba.add_word("爱北京烤")
    try:
        assert JiebaKeywords()("我爱北京烤鸭店") == before
    finally:
        jieba.del_word("爱北京烤")


@pytest.mark.parametrize("top_k", [0, -1, 2.5, True])
def test_top_k_is_checked(top_k):
    with pytest.raises(ValueError, match=rf"top_k must be a whole number >= 1, got {top_k}"):
        JiebaKeywords(top_k)
