import gzip
import itertools
import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from st_extras.text import keywords as kw
from st_extras.text.keywords import (
    JiebaKeywords,
    RakeKeywords,
    TfidfKeywords,
    build_extractor,
    extractor_config,
    keyword_spans,
)
from st_extras.text.spans import find_words, replace_spans
from st_extras.text.words import WORD

pytest.importorskip("jieba")
pytest.importorskip("rake_nltk")

CORPUS = ["the cat sat on the mat", "the dog ran in the park", "the cat ran", "a dog and a cat"]


def mask(text, extractor):
    return replace_spans(text, keyword_spans(text, extractor), "_")


def cut_by_both(text):
    """Pieces of two characters and more: TF-IDF drops the others."""
    fast = kw._jieba_tfidf().tokenizer
    return tuple([t for t in cut(text) if len(t.strip()) > 1] for cut in (fast.cut, fast.tokenizer.cut))


# --- find_words ---


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


# --- callables ---


def test_a_callable_gives_spans_or_words():
    assert keyword_spans("a red fox", lambda _: [(6, 9), (2, 5)]) == [(2, 5), (6, 9)]
    assert keyword_spans("a red fox", lambda _: [(2, 9)]) == [(2, 5), (6, 9)], "one span a word"
    assert keyword_spans("a red fox red", lambda _: ["red"]) == [(2, 5), (10, 13)]
    assert keyword_spans("a red fox", lambda _: ["Red fox"]) == [(2, 5), (6, 9)]
    assert keyword_spans("a red fox", lambda _: []) == []
    assert keyword_spans("我爱北京", lambda _: [(2, 4)]) == [(2, 4)]


@pytest.mark.parametrize(
    "result", [[(0, 10)], [(3, 3)], [(-1, 2)], [("a", "b")], ["red", (0, 1)], "red", None, [3], [(1, 2, 3)], [(2.5, 5)]]
)
def test_a_callable_that_returns_nonsense_is_named(result):
    with pytest.raises(ValueError, match="keywords"):
        keyword_spans("a red fox", lambda _: result)


def test_deleting_words_takes_the_spaces_along():
    assert replace_spans("a red fox ran", [(2, 5)], "") == "a fox ran"
    assert replace_spans("red fox", [(0, 3), (4, 7)], "") == ""
    assert replace_spans("a  b", [], "") == "a  b"


# --- jieba ---


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
    with gzip.open(data_folder / "wiki_sentences.txt.gz", "rt", encoding="utf8") as file:
        for _, line in zip(range(1000), file, strict=False):
            fast, stock = cut_by_both(line)
            assert fast == stock


def test_jieba_masks_what_extract_tags_returns():
    import jieba.analyse

    for text in ["The old man and a woman saw the man in Paris .", "我喜欢在北京大学的图书馆看书", "it is of the"]:
        tags = jieba.analyse.extract_tags(text)
        expected = text
        for tag in sorted(tags, key=len, reverse=True):
            expected = re.sub(rf"\b{tag}\b" if tag.isascii() else tag, "_", expected)
        assert mask(text, JiebaKeywords()) == expected
    assert mask("the old man", JiebaKeywords()) == "the _ _"
    assert mask("it is of the", JiebaKeywords()) == "it is of the"
    assert mask("wait ... and see ...", JiebaKeywords()) == "_ ... and _ ..."


def test_jieba_takes_twenty_keywords_by_default():
    text = " ".join(f"word{i}" for i in range(30))
    assert len(JiebaKeywords()(text)) == 20
    assert len(JiebaKeywords(top_k=3)(text)) == 3
    assert len(JiebaKeywords(top_k=None)(text)) == 30


def test_words_added_to_the_global_jieba_change_nothing():
    import jieba

    before = JiebaKeywords()("我爱北京烤鸭店")
    jieba.add_word("爱北京烤")
    try:
        assert JiebaKeywords()("我爱北京烤鸭店") == before
    finally:
        jieba.del_word("爱北京烤")


# --- TF-IDF ---


def test_tfidf_ranks_by_the_corpus():
    from sklearn.feature_extraction.text import TfidfVectorizer

    extractor = TfidfKeywords.fit(CORPUS, top_k=2, stop_words=())
    table = TfidfVectorizer(token_pattern=WORD.pattern).fit(CORPUS)
    assert extractor.idf == pytest.approx(dict(zip(table.get_feature_names_out(), table.idf_, strict=True)))
    assert mask("Mat, cat, Park", extractor) == "_, cat, _"
    assert mask("cat, cat, Mat, park", extractor) == "_, _, _, park", "twice 1.22 > 1.92; ties by position"
    assert mask("a zebra ran", TfidfKeywords.fit(CORPUS, top_k=1)) == "a _ ran", "an unseen word is the rarest"


def test_tfidf_leaves_stop_words_and_frequent_words():
    assert mask("the cat sat on the mat", TfidfKeywords.fit(CORPUS)) == "the _ _ on the _"
    # "cat" and "the" are in 3 of the 4 sentences
    assert mask("the cat ran", TfidfKeywords.fit(CORPUS, stop_words=(), max_df=0.74)) == "the cat _"
    assert mask("the cat ran", TfidfKeywords.fit(CORPUS, stop_words=(), max_df=0.75)) == "_ _ _"
    assert mask("the cat ran", TfidfKeywords.fit(CORPUS, stop_words=["Cat"])) == "_ cat _"


# --- RAKE ---


def test_rake_keywords_are_the_words_of_the_best_phrases():
    text = "big red dogs of Rome; a dog"
    assert mask(text, RakeKeywords(top_k=1)) == "_ _ _ of Rome; a dog"
    assert mask(text, RakeKeywords()) == "_ _ _ of _; a _"
    assert mask(text, RakeKeywords(stop_words=["big", "dogs", "dog", "of"])) == "big _ dogs of _; _ dog"
    assert mask("", RakeKeywords()) == ""
    assert mask("of the", RakeKeywords()) == "of the"
    assert RakeKeywords(stop_words=[])("of the") == [(0, 2), (3, 6)], "an empty list is not NLTK's"


# --- by name ---


@pytest.mark.parametrize(
    "extractor",
    [JiebaKeywords(7), TfidfKeywords.fit(CORPUS, top_k=3), RakeKeywords(2, ["the"]), RakeKeywords()],
)
def test_extractors_come_back_from_their_json_and_from_pickle(extractor):
    text = "the big cat sat in a red park of Paris"
    again = build_extractor(json.loads(json.dumps(extractor_config(extractor))))
    assert again(text) == extractor(text) == pickle.loads(pickle.dumps(extractor))(text)
    assert again.config == extractor.config


def test_names_and_their_errors():
    assert isinstance(build_extractor("jieba"), JiebaKeywords)
    assert isinstance(build_extractor("rake"), RakeKeywords)
    assert isinstance(build_extractor("tfidf", iter(CORPUS)), TfidfKeywords)
    assert build_extractor(len) is len
    with pytest.raises(ValueError, match="corpus"):
        build_extractor("tfidf")
    for name in ("yake", None, 3.5, {}):
        with pytest.raises(ValueError, match=r"keywords must be 'jieba', 'tfidf', 'rake'.*got"):
            build_extractor(name)
    with pytest.raises(ValueError, match="cannot be saved"):
        extractor_config(len)
    for top_k in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match=r"top_k.*got"):
            JiebaKeywords(top_k)
    with pytest.raises(ValueError, match="not one text"):
        TfidfKeywords.fit("a cat")
    with pytest.raises(ValueError, match=r"max_df.*got 1.5"):
        TfidfKeywords.fit(CORPUS, max_df=1.5)
    with pytest.raises(ValueError, match="corpus"):
        TfidfKeywords.fit(["...", "!"])


@pytest.mark.parametrize(("package", "keywords"), [("jieba", JiebaKeywords()), ("rake_nltk", RakeKeywords())])
def test_a_missing_package_is_one_line(monkeypatch, package, keywords):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    kw._jieba_tfidf.cache_clear()
    kw._cached_rake.cache_clear()
    with pytest.raises(ImportError, match=r'pip install "st-extras\[text\]"'):
        keywords("a cat")
    kw._jieba_tfidf.cache_clear()
