import functools
import json
import math
import pickle
import re

import jieba.analyse
import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from st_extras.text import keywords
from st_extras.text.keywords import (
    JiebaKeywords,
    RakeKeywords,
    TfidfKeywords,
    build_extractor,
    extractor_config,
    keyword_spans,
)
from st_extras.text.words import WORD, replace_spans

CORPUS = ["the cat sat on the mat", "the dog ran in the park", "the cat ran", "a dog and a cat"]


def mask(text, extractor):
    return replace_spans(text, keyword_spans(text, extractor), "_")


def test_a_callable_gives_spans_or_words():
    assert keyword_spans("a red fox", lambda _: [(6, 9), (2, 5)]) == [(2, 5), (6, 9)]
    assert keyword_spans("a red fox", lambda _: [(2, 9)]) == [(2, 5), (6, 9)], "one span a word"
    assert keyword_spans("a red fox red", lambda _: ["red"]) == [(2, 5), (10, 13)]
    assert keyword_spans("a red fox", lambda _: ["Red fox"]) == [(2, 5), (6, 9)]
    assert keyword_spans("a red fox", lambda _: []) == []
    assert keyword_spans("我爱北京", lambda _: [(2, 4)]) == [(2, 4)]
    for result in ([(0, 10)], [(3, 3)], [(-1, 2)], "red", None, ["re", (2, 5)], [3], [(0, 1, 2)], [(0.0, 2.0)]):
        with pytest.raises(ValueError, match=r"^keywords must"):
            keyword_spans("a red fox", lambda _, result=result: result)


def test_tfidf_ranks_by_the_corpus_without_stop_words_and_frequent_words():
    extractor = TfidfKeywords.fit(CORPUS, top_k=2, stop_words=())
    assert mask("Mat, Cat, Park", extractor) == "_, Cat, _"
    assert mask("cat, cat, Mat, park", extractor) == "_, _, _, park", "twice 1.22 > 1.92; ties by position"
    assert mask("a zebra ran", TfidfKeywords.fit(CORPUS, top_k=1)) == "a _ ran", "an unseen word is the rarest"
    # "cat" and "the" are in 3 of the 4 sentences
    assert mask("the cat ran", TfidfKeywords.fit(CORPUS, stop_words=(), max_df=0.74)) == "the cat _"
    assert mask("the cat ran", TfidfKeywords.fit(CORPUS, stop_words=(), max_df=0.75)) == "_ _ _"
    assert mask("the cat ran", TfidfKeywords.fit(CORPUS, stop_words=["Cat"])) == "_ cat _"


def test_the_tfidf_table_is_that_of_scikit_learn():
    sentences = ["The cat sat on the mat", "", "the dog", "Zoë's cat — the «naïve» one ☃", "K2 and \u212a2", "..."]
    vectorizer = TfidfVectorizer(token_pattern=WORD.pattern)
    vectorizer.fit(sentences)
    found = TfidfKeywords.fit(iter(sentences))
    assert found.idf == {word: float(vectorizer.idf_[index]) for word, index in vectorizer.vocabulary_.items()}
    assert list(found.idf) == list(vectorizer.vocabulary_), "saved in the same order"
    assert found.unseen_idf == pytest.approx(math.log(len(sentences) + 1) + 1)


def test_rake_keywords_are_the_words_of_the_best_phrases():
    text = "big red dogs of Rome; a dog"
    assert mask(text, RakeKeywords(top_k=1)) == "_ _ _ of Rome; a dog"
    assert mask(text, RakeKeywords(stop_words=["big", "dogs", "dog", "of"])) == "big _ dogs of _; _ dog"
    assert RakeKeywords(stop_words=[])("of the") == [(0, 2), (3, 6)], "an empty list is not NLTK's"


@pytest.mark.parametrize(
    "extractor",
    [
        JiebaKeywords(7),
        TfidfKeywords.fit(CORPUS, top_k=3),
        RakeKeywords(2, ["the"]),
        RakeKeywords(2, []),
        RakeKeywords(),
    ],
)
def test_extractors_come_back_from_their_json_and_from_pickle(extractor):
    text = "the big cat sat in a red park of Paris"
    config = json.loads(json.dumps(extractor_config(extractor)))
    for _ in range(2):  # a config is not used up
        again = build_extractor(config)
        assert again(text) == extractor(text) == pickle.loads(pickle.dumps(extractor))(text)
        assert again.config == extractor.config


NAMES = [f"name{first}{second}" for first in "abcde" for second in "abcdef"]


@pytest.mark.parametrize(
    "make",
    [
        JiebaKeywords,
        functools.partial(TfidfKeywords.fit, CORPUS),
        functools.partial(TfidfKeywords, {}, 1),
        RakeKeywords,
    ],
)
def test_the_number_of_keywords_is_limited(make):
    text = ", ".join(NAMES)
    for options, count in (({}, 20), ({"top_k": 2}, 2), ({"top_k": 25}, 25), ({"top_k": None}, 30)):
        assert len(make(**options)(text)) == count
        assert len(make(**options)(f"{text}. {text}")) == 2 * count, "wherever they stand"
    with pytest.raises(ValueError, match=r"^top_k must"):
        make(top_k=0)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: TfidfKeywords([], 1), "idf must"),
        (lambda: TfidfKeywords({"cat": math.nan}, 1), r"idf\['cat'\] must"),
        (lambda: TfidfKeywords({}, -1), "unseen_idf must"),
        (lambda: TfidfKeywords({}, 1, stop_words="the"), "stop_words must"),
        (lambda: TfidfKeywords.fit(CORPUS, stop_words="the"), "stop_words must"),
        (lambda: TfidfKeywords.fit(CORPUS, max_df=0), "max_df must"),
        (lambda: TfidfKeywords.fit(CORPUS, max_df=1.1), "max_df must"),
        (lambda: TfidfKeywords.fit(["...", ""]), "corpus must hold sentences with words, got 2 sentences without"),
        (lambda: TfidfKeywords.fit("the cat"), "sentences must"),
        (lambda: RakeKeywords(stop_words="the"), "stop_words must"),
    ],
)
def test_settings_that_are_refused(make, named):
    with pytest.raises(ValueError, match=rf"^{named}"):
        make()


def test_extractors_are_built_by_their_names():
    text = "the big cat sat in a red park of Paris"
    built = {"jieba": JiebaKeywords(), "tfidf": TfidfKeywords.fit(CORPUS), "rake": RakeKeywords(), print: print}
    for name, expected in built.items():
        found = build_extractor(name, CORPUS)
        assert type(found) is type(expected)
        if name is not print:
            assert (found(text), found.config) == (expected(text), expected.config)
    assert found is print


@pytest.mark.parametrize("call", [build_extractor, extractor_config])
@pytest.mark.parametrize("keywords", ["yake", None, np.array(["tfidf", "jieba"]), {"name": ["jieba"]}])
def test_unknown_keywords_are_refused(call, keywords):
    with pytest.raises(ValueError, match=r"^keywords must"):
        call(keywords)
    with pytest.raises(ValueError, match=r"^corpus must"):
        build_extractor("tfidf")


def test_jieba_masks_what_extract_tags_returns(monkeypatch):
    own = keywords._jieba_tfidf().tokenizer.tokenizer  # the same dictionary is not read twice
    monkeypatch.setattr(jieba.analyse.default_tfidf, "tokenizer", own)
    for text in [
        "The old man and a woman saw the man in Paris .",
        "AT&T and a man",
        "我喜欢在北京大学的图书馆看书",
        "T恤 and B超",
        "it grew 3.5% to 12.25 and v2.0",
    ]:
        tags = jieba.analyse.extract_tags(text)
        expected = text
        for tag in sorted(tags, key=len, reverse=True):
            expected = re.sub(rf"\b{re.escape(tag)}(?!\w)" if tag.isascii() else tag, "_", expected)
        assert mask(text, JiebaKeywords()) == expected
    assert mask("wait ... and see ...", JiebaKeywords()) == "_ ... and _ ..."


def test_words_that_a_program_adds_to_jieba_change_no_keywords():
    text, added = "我喜欢在北京大学的图书馆看书", "喜欢在北京大学的"
    before = JiebaKeywords()(text)
    jieba.add_word(added)
    try:
        assert added in jieba.lcut(text)
        assert JiebaKeywords()(text) == before
    finally:
        jieba.del_word(added)
