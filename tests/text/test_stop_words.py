from __future__ import annotations

from pathlib import Path

import nltk
import pytest
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from st_extras.text import EDA, RakePhrases, TfidfKeywords
from st_extras.text.stop_words import english_stop_words, phrase_stop_words


def test_every_user_has_its_list() -> None:
    assert english_stop_words() == ENGLISH_STOP_WORDS
    assert EDA(synonyms={}).stop_words == english_stop_words()
    assert TfidfKeywords.fit(["a red fox"]).stop_words == english_stop_words()
    assert RakePhrases().stop_words == phrase_stop_words("english")
    assert phrase_stop_words("english") > english_stop_words()
    assert {"don't", "don’t", "t"} <= phrase_stop_words("english") - english_stop_words()
    assert "我们" in phrase_stop_words("chinese")


def test_nltk_stop_words_of_another_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    nltk.corpus.stopwords._unload()
    (tmp_path / "corpora" / "stopwords").mkdir(parents=True)
    (tmp_path / "corpora" / "stopwords" / "german").write_text("der\nund\n")
    try:
        assert RakePhrases(language="german")("Der Hund und Otto") == ["Hund", "Otto"]
    finally:
        nltk.corpus.stopwords._unload()


def test_a_language_without_stop_words_is_named() -> None:
    with pytest.raises(ValueError, match=r"language must be .*got 'german'.*nltk\.downloader stopwords"):
        RakePhrases(language="german")
