from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from rake_nltk import Rake

from st_extras.text import RakePhrases, phrases
from st_extras.text.words import WORD
from tests.text.sentences import ANY_SENTENCE, real_sentences

RAKE, RAKE_OF_2_OR_3 = RakePhrases(), RakePhrases(min_words=2, max_words=3)
TOKEN = re.compile(rf"{WORD.pattern}|\S")


def plain_rake(sentence: str, **lengths: int) -> list[tuple[float, str]]:
    """rake-nltk alone, best first: our words, every other character a punctuation mark."""
    tokens = TOKEN.findall(sentence)
    rake = Rake(
        stopwords=set(RAKE.stop_words),
        punctuations={"."} | {token.lower() for token in tokens if not WORD.fullmatch(token)},
        sentence_tokenizer=lambda text: [text],
        word_tokenizer=lambda text: tokens,
        **{f"{name}_length": length for name, length in lengths.items()},
    )
    rake.extract_keywords_from_text(sentence)
    return rake.get_ranked_phrases_with_scores()


def check_equal_to_rake(sentence: str) -> None:
    found, expected = RAKE.scores(sentence), plain_rake(sentence)
    assert [score for score, _ in found] == pytest.approx(sorted({p: s for s, p in expected}.values(), reverse=True))
    assert {(score, phrase.lower()) for score, phrase in found} == set(expected)
    text = f" {' '.join(TOKEN.findall(sentence))} ".lower()
    for (score, phrase), (following, later) in pairwise(found):
        if score == pytest.approx(following, abs=1e-9):
            assert text.index(f" {phrase.lower()} ") < text.index(f" {later.lower()} ")
    lengths = RAKE_OF_2_OR_3.scores(sentence)
    assert {(score, phrase.lower()) for score, phrase in lengths} == set(plain_rake(sentence, min=2, max=3))


def test_rake_scores_by_hand() -> None:
    # deep 2 times: co-occurs with itself twice and learning once, cat once -> degree 4, score 2
    # learning once, degree 2; cat once, degree 2; model once, degree 1
    sentence = "the deep learning of a model, and deep cat"
    assert RakePhrases().scores(sentence) == [(4.0, "deep learning"), (4.0, "deep cat"), (1.0, "model")]
    assert RakePhrases()(sentence) == ["deep learning", "deep cat", "model"]


def test_rake_on_the_example_of_its_paper() -> None:
    scores = RakePhrases(stop_words=["of", "a", "and", "are", "over", "the"]).scores(
        "Criteria of compatibility of a system of linear Diophantine equations, strict inequations, and "
        "nonstrict inequations are considered. Linear constraints over the set of natural numbers"
    )
    assert scores[0] == (8.5, "linear Diophantine equations")  # 2.5 + 3 + 3
    assert (4.5, "Linear constraints") in scores
    assert (4.0, "nonstrict inequations") in scores


def test_equal_scores_keep_the_order_of_the_sentence() -> None:
    assert RakePhrases()("zebra, apple, the mouse and a bird") == ["zebra", "apple", "mouse", "bird"]
    # 7/3 + 7/3 + 3 and 7/3 + 3 + 7/3: in floating point the second is the larger
    found = RakePhrases()("red sweet apple, red, sweet and red apple sweet")
    assert found == ["red sweet apple", "red apple sweet", "red", "sweet"]


def test_a_capital_that_grows_when_lowered_moves_nothing() -> None:
    assert len("İ".lower()) == 2
    assert RakePhrases()("İİ park, and a red cat") == ["i̇i̇ park", "red cat"]


@pytest.mark.parametrize("name", ["sts_unlabeled", "wiki_sentences", "books_sentences"])
def test_scores_are_those_of_rake_nltk_on_real_sentences(data_folder: Path, name: str) -> None:
    for sentence in real_sentences(data_folder, name, stop=20_000, step=20):
        check_equal_to_rake(sentence)


@settings(max_examples=300, deadline=None)
@given(ANY_SENTENCE)
def test_scores_are_those_of_rake_nltk_on_any_text(sentence: str) -> None:
    check_equal_to_rake(sentence)


@settings(max_examples=200, deadline=None)
@given(ANY_SENTENCE)
def test_the_places_of_many_phrases_are_those_of_few(sentence: str) -> None:
    expected = RAKE.scores(sentence)
    with mock.patch.object(phrases, "_MANY_PHRASES", 0):
        assert RAKE.scores(sentence) == expected


def test_a_book_of_phrases_takes_seconds() -> None:
    words = [f"word{i}" for i in range(40_000)]
    assert RAKE(", ".join(words)) == words


def test_a_phrase_holds_no_punctuation_and_stops_at_it() -> None:
    found = RakePhrases()("Red apples… green (pears) «blue»—berries! state-of-the-art don't @user #tag_x")
    assert "Red apples" in found
    assert not any(re.search(r"[^\w \-'’]|_", phrase) for phrase in found)
    assert "green pears" not in found
    assert "state-of-the-art" in found


def test_lengths_and_stop_words() -> None:
    sentence = "big red apples and a pear"
    assert RakePhrases(max_words=2)(sentence) == ["pear"]
    assert RakePhrases(min_words=2)(sentence) == ["big red apples"]
    assert RakePhrases(stop_words=[])(sentence) == [sentence]
    assert RakePhrases(stop_words=["UND", "der"])("Der Hund und die Katze") == ["die Katze", "Hund"]
    with pytest.raises(ValueError, match=r"stop_words must be .* got the string 'the'"):
        RakePhrases(stop_words="the")
    with pytest.raises(ValueError, match=r"max_words must be .* >= 3, got 2"):
        RakePhrases(min_words=3, max_words=2)
    with pytest.raises(ValueError, match=r"min_words must be .* >= 1, got 0"):
        RakePhrases(min_words=0)
