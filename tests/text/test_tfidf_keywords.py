"""Document frequencies counted in one pass are those of scikit-learn, to the last bit."""

from __future__ import annotations

import math
import random

import pytest
from datasets import Dataset, IterableDataset
from sklearn.feature_extraction.text import TfidfVectorizer

from st_extras.text.tfidf_keywords import DocumentFrequencies, TfidfKeywords
from st_extras.text.words import WORD, find_all_words
from tests.text.sentences import real_sentences

CORPUS = ["The cat sat on the mat", "", "the dog ran", "Zoë's cat — the «naïve» one ☃", "K2 and \u212a2", "..."]


def assert_equals_scikit_learn(sentences):
    vectorizer = TfidfVectorizer(token_pattern=WORD.pattern)
    vectorizer.fit(sentences)
    idf = TfidfKeywords.fit(iter(sentences)).idf
    assert idf == {word: float(vectorizer.idf_[index]) for word, index in vectorizer.vocabulary_.items()}
    assert list(idf) == list(vectorizer.vocabulary_), "saved in the same order"


def test_the_table_is_that_of_scikit_learn():
    assert_equals_scikit_learn(CORPUS)
    draw = random.Random(0)
    assert_equals_scikit_learn([" ".join(draw.choices("abcdefghij", k=5)) for _ in range(3001)])


def test_the_table_of_real_sentences_is_that_of_scikit_learn(data_folder):
    assert_equals_scikit_learn(real_sentences(data_folder, "wiki_sentences", stop=2000))


def test_a_watched_corpus_passes_unchanged_and_is_counted_once():
    read = []

    def rows():
        for text in CORPUS:
            read.append(text)
            yield {"text": text}

    for source in (CORPUS, iter(CORPUS), Dataset.from_dict({"text": CORPUS}), IterableDataset.from_generator(rows)):
        frequencies = DocumentFrequencies()
        assert list(frequencies.watch(source)) == CORPUS
        assert frequencies.num_sentences == len(CORPUS)
        assert TfidfKeywords.from_frequencies(frequencies).config == TfidfKeywords.fit(CORPUS).config
    assert read == CORPUS
    watched = DocumentFrequencies()
    assert next(watched.watch(iter(CORPUS))) == CORPUS[0]
    assert watched.num_sentences == 1, "no further than asked"


def test_memory_grows_with_the_vocabulary_alone():
    class Sentence(str):
        alive = most = 0

        def __new__(cls, text):
            Sentence.alive += 1
            Sentence.most = max(Sentence.most, Sentence.alive)
            return super().__new__(cls, text)

        def __del__(self):
            Sentence.alive -= 1

    extractor = TfidfKeywords.fit(Sentence(f"word{i % 7} and more") for i in range(5000))
    assert len(extractor.idf) == 9
    assert Sentence.most <= 3


def test_settings_are_checked_before_the_corpus_is_read():
    def never():
        raise AssertionError
        yield ""

    for options, message in (({"top_k": 0}, "top_k"), ({"max_df": 0}, "max_df"), ({"stop_words": 3}, "stop_words")):
        with pytest.raises(ValueError, match=f"{message} must be"):
            TfidfKeywords.fit(never(), **options)
        with pytest.raises(ValueError, match=f"{message} must be"):
            TfidfKeywords.from_frequencies(DocumentFrequencies(), **options)
    with pytest.raises(ValueError, match=r"corpus must hold sentences with words, got 2 sentences without one\."):
        TfidfKeywords.fit(["...", ""])


def test_all_words_of_a_text():
    assert find_all_words("The cat's e-mail; naïve 3.5") == ["The", "cat's", "e-mail", "naïve", "3", "5"]
    assert find_all_words("the cat") == ["the", "cat"]
    assert find_all_words("...") == []


def test_a_word_of_no_sentence_is_the_rarest() -> None:
    extractor = TfidfKeywords.fit(["a cat sat", "a cat ran", "a dog ran home"], stop_words=[])
    assert extractor.unseen_idf == pytest.approx(math.log(4) + 1)
    assert extractor.unseen_idf > max(extractor.idf.values())
