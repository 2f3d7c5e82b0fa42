from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from st_extras.text.keywords import (
    JiebaKeywords,
    RakeKeywords,
    TfidfKeywords,
    build_extractor,
    extractor_config,
    keyword_spans,
)
from st_extras.text.spans import replace_spans
from st_extras.text.words import WORD

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


@pytest.mark.parametrize(
    "result", [[(0, 10)], [(3, 3)], [(-1, 2)], [("a", "b")], ["red", (0, 1)], "red", None, [3], [(1, 2, 3)], [(2.5, 5)]]
)
def test_a_callable_that_returns_nonsense_is_named(result):
    with pytest.raises(ValueError, match="keywords"):
        keyword_spans("a red fox", lambda _: result)


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


def test_rake_keywords_are_the_words_of_the_best_phrases():
    text = "big red dogs of Rome; a dog"
    assert mask(text, RakeKeywords(top_k=1)) == "_ _ _ of Rome; a dog"
    assert mask(text, RakeKeywords()) == "_ _ _ of _; a _"
    assert mask(text, RakeKeywords(stop_words=["big", "dogs", "dog", "of"])) == "big _ dogs of _; _ dog"
    assert mask("", RakeKeywords()) == ""
    assert mask("of the", RakeKeywords()) == "of the"
    assert RakeKeywords(stop_words=[])("of the") == [(0, 2), (3, 6)], "an empty list is not NLTK's"


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
    for name in ("yake", None, 3.5, {}, np.array(["tfidf", "jieba"]), np.array("jieba"), {"name": ["jieba"]}):
        with pytest.raises(ValueError, match=r"keywords must be 'jieba', 'tfidf', 'rake'.*got"):
            build_extractor(name)
    with pytest.raises(ValueError, match="cannot be saved"):
        extractor_config(len)
    for make in (RakeKeywords, lambda top_k: TfidfKeywords.fit(CORPUS, top_k=top_k)):
        with pytest.raises(ValueError, match=r"top_k must be .* got 0"):
            make(0)
    with pytest.raises(ValueError, match=r"sentences must be .* got the string 'a cat'"):
        TfidfKeywords.fit("a cat")
    with pytest.raises(ValueError, match=r"max_df.*got 1.5"):
        TfidfKeywords.fit(CORPUS, max_df=1.5)
    with pytest.raises(ValueError, match="corpus"):
        TfidfKeywords.fit(["...", "!"])
    with pytest.raises(ValueError, match="sentences, row 1: expected a sentence, got None"):
        TfidfKeywords.fit(["a cat", None])
    with pytest.raises(ValueError, match="DatasetDict with the keys 'train'"):
        TfidfKeywords.fit(DatasetDict(train=Dataset.from_dict({"text": CORPUS})))
    for make in (JiebaKeywords, RakeKeywords, lambda top_k: TfidfKeywords.fit(CORPUS, top_k=top_k)):
        with pytest.raises(ValueError, match=r"top_k must be .* got 100000000000"):
            make(10**11)


@pytest.mark.parametrize("column", ["text", "sentence", "review"])
def test_tfidf_is_fitted_on_a_data_set(column):
    data = Dataset.from_dict({column: CORPUS, "label": list(range(len(CORPUS)))})
    for given in (data, data.to_iterable_dataset(), data[column]):
        assert TfidfKeywords.fit(given).config == TfidfKeywords.fit(CORPUS).config
