from __future__ import annotations

import marshal
import os
import re
import time
from pathlib import Path

import jieba
import jieba.analyse
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from st_extras.text import JiebaKeywords, words
from st_extras.text.jieba_keywords import _jieba_tfidf
from st_extras.text.spans import replace_spans
from st_extras.text.words import keep_cache_private
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


@pytest.mark.parametrize("top_k", [0, -1, 2.5, True, 10**11])
def test_top_k_is_checked(top_k):
    with pytest.raises(ValueError, match=rf"top_k must be a whole number between 1 and 1000000, got {top_k}"):
        JiebaKeywords(top_k)


def test_a_dictionary_is_cached_where_only_the_user_can_write(tmp_path, monkeypatch):
    """A file that somebody else left in the folder for temporary files must not become our dictionary."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "jieba.cache").write_bytes(marshal.dumps(({"\u9634\u8c0b": 1}, 1)))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words._cache_folder.cache_clear()
    try:
        for tokenizer in (jieba.Tokenizer(), jieba.Tokenizer()):  # builds the cache, reads it
            keep_cache_private(tokenizer)
            tokenizer.initialize()
            assert len(tokenizer.FREQ) > 100_000
        (cache,) = (tmp_path / "cache" / "st_extras").iterdir()
        assert cache.parent.stat().st_mode & 0o777 == 0o700
        assert os.listdir(shared) == ["jieba.cache"]
    finally:
        words._cache_folder.cache_clear()


@pytest.mark.slow
def test_every_dictionary_of_ours_is_cached_there(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "_cache_folder", lambda: str(tmp_path))
    own, shared = jieba.Tokenizer(), jieba.Tokenizer()
    monkeypatch.setattr(jieba, "Tokenizer", lambda: own)
    monkeypatch.setattr(jieba, "dt", shared)
    _jieba_tfidf.__wrapped__()
    words.jieba_spans("\u5317\u4eac")
    assert Path(own.cache_file).parent == Path(shared.cache_file).parent == tmp_path


def test_a_cache_folder_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert Path(words._cache_folder.__wrapped__()).parent != tmp_path
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert os.path.isdir(words._cache_folder.__wrapped__())


def test_a_megabyte_of_dots_takes_no_time():
    dots = "." * 1_000_000
    assert JiebaKeywords()(dots) == words.jieba_spans(dots) == []


def test_all_keywords_of_a_long_text_take_time_in_proportion():
    """A search for one keyword after the other takes time in proportion to keywords x text."""
    text = " ".join(f"w{i:x}" for i in range(80_000))
    began = time.process_time()
    assert len(JiebaKeywords(top_k=None)(text)) == 80_000 - 1  # "we" is a stop word
    assert time.process_time() - began < 4
