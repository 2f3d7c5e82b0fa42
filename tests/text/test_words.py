import unicodedata

import nltk
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.corpus import LazyCorpusLoader, WordListCorpusReader
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from st_extras.text import EDA, PhraseMasking, RakePhrases, TfidfKeywords
from st_extras.text.corpus import is_blank
from st_extras.text.keywords import keyword_spans
from st_extras.text.words import (
    WORD,
    english_stop_words,
    find_all_words,
    find_words,
    jieba_spans,
    phrase_stop_words,
    replace_spans,
    split_at_words,
    word_spans,
)
from tests.helpers import write


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A well-known cat's 2nd nap, isn't it?", ["A", "well-known", "cat's", "2nd", "nap", "isn't", "it"]),
        ("_a_ b- -c 'd'", ["a", "b", "c", "d"]),
        ("cafe\u0301 au lait", ["cafe\u0301", "au", "lait"]),  # a decomposed accent
        ("हिन्दी भाषा। שָׁלוֹם", ["हिन्दी", "भाषा", "שָׁלוֹם"]),
        ("soft\u00adware \u00ad a\u00ad b", ["soft\u00adware", "a", "b"]),
        ("می\u200cخواهم क्\u200dष \u200dx", ["می\u200cخواهم", "क्\u200dष", "x"]),
        ("ខ្មែរ မြန်မာ", ["ខ្មែរ", "မြန်မာ"]),
        ("كِتَاب ٱلْقُرْءَانِ ۖ", ["كِتَاب", "ٱلْقُرْءَانِ"]),
        ("... !?", []),
    ],
)
def test_words(text, words):
    assert [text[start:end] for start, end in word_spans(text)] == find_all_words(text) == words


@pytest.mark.parametrize(
    "sign", [*"\u00ad\u061c\u180e\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2064\u2066\u2069\ufeff"]
)
def test_a_format_character_is_part_of_the_word_around_it_and_no_text_alone(sign):
    assert unicodedata.category(sign) == "Cf"
    assert find_all_words(f"soft{sign}ware {sign}x{sign} {sign}") == [f"soft{sign}ware", "x"]
    assert find_words(f"wo{sign}man man{sign}", ["man"]) == [(7, 10)]
    assert is_blank(f" {sign}\n")


@given(st.one_of(st.text(alphabet=st.characters(max_codepoint=127)), st.text("a1'-_ é\u0301’\u00ad\u200d"), st.text()))
def test_the_words_of_ascii_text_are_those_of_any_text(text):
    spans = [match.span() for match in WORD.finditer(text)]
    assert word_spans(text) == spans
    pieces = split_at_words(text)
    assert "".join(pieces) == text
    assert list(pieces[1::2]) == [text[start:end] for start, end in spans]
    assert split_at_words(text, lambda _: spans) == pieces, "with words of one's own"


def test_words_that_jieba_finds_are_no_punctuation():
    text = "我喜欢，北京 (Paris)。"
    assert [text[start:end] for start, end in jieba_spans(text)] == ["我", "喜欢", "北京", "Paris"]
    assert jieba_spans("，。 ...") == []


def test_every_user_has_its_list():
    assert english_stop_words() == ENGLISH_STOP_WORDS
    assert EDA(synonyms={}).stop_words == english_stop_words()
    assert TfidfKeywords.fit(["a red fox"]).stop_words == english_stop_words()
    assert RakePhrases().stop_words == phrase_stop_words("english")
    assert phrase_stop_words("english") > english_stop_words()
    assert {"don't", "don’t", "t"} <= phrase_stop_words("english") - english_stop_words()
    assert "我们" in phrase_stop_words("chinese")


def test_stop_words_of_other_languages_are_read_from_nltk(tmp_path, monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    reader = LazyCorpusLoader("stopwords", WordListCorpusReader, r"\w+")
    monkeypatch.setattr(nltk.corpus, "stopwords", reader)  # which keeps the folder that it finds first
    for language, words in {"english": "the\nof\n", "german": "und\nder\n", "dutch": "en\nde\n"}.items():
        write(tmp_path / "corpora/stopwords" / language, words)
    assert (phrase_stop_words("german"), phrase_stop_words("dutch")) == ({"und", "der"}, {"en", "de"})
    assert RakePhrases(language="dutch")("een kat en de hond") == ["een kat", "hond"]


# --- finding words, and replacing spans: on boundaries ---


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("Man, woman: man!", ["man"], "_, woman: _!"),
        ("cat1 cat_2 cat", ["cat"], "cat1 __2 _"),
        ("we love New York", ["york", "new"], "we love _ _"),
        ("我喜欢北京大学", ["北京", "喜欢"], "我__大学"),
        ("a cafe\u0301 is a cafe", ["cafe"], "a _ is a _"),
        ("re\u0301sume\u0301", ["re", "sume"], "re\u0301sume\u0301"),
        ("wo\u00adman man\u200cly \u00adman", ["man"], "wo\u00adman man\u200cly \u00ad_"),
        ("wo\u00ad\u200dman man man\u200d\u00adly", ["man"], "wo\u00ad\u200dman _ man\u200d\u00adly"),
        ("ABAB 北京北京", ["ab", "北京"], "ABAB __"),
        ("🍕 pizza 👩‍🍳!", ["pizza"], "🍕 _ 👩‍🍳!"),
        ("car cart carpet ca", ["car", "cart", "carpet"], "_ _ _ ca"),
        ("İstanbul istanbul ISTANBUL", ["istanbul", "x"], "İstanbul _ _"),
    ],
)
def test_words_are_found_at_every_occurrence_on_boundaries(text, words, expected):
    assert replace_spans(text, find_words(text, words), "_") == expected


def test_the_longer_of_two_overlapping_words_stays_and_deleting_takes_the_spaces_along():
    assert find_words("北京大学生", ["北京", "北京大学", "大学生"]) == [(0, 4)]
    assert replace_spans("a red fox ran", [(2, 5)], "") == "a fox ran"
    assert replace_spans("red fox ran", [(0, 3), (8, 11)], "") == "fox"
    assert replace_spans(" a  fox", [], "") == " a  fox", "nothing to delete"


@pytest.mark.parametrize(
    "found",
    [["a", "cat"], [("a", 0, 1)], [(0, 1.0)], [(0, 1), (0, 5)], [(2, 5), (0, 1)], [(2, 9)], None, [("ca", "t")]],
)
@pytest.mark.parametrize("use", [lambda words: RakePhrases(words=words), lambda words: EDA(synonyms={}, words=words)])
def test_a_word_finder_that_returns_no_spans_in_order_is_refused(found, use):
    with pytest.raises(ValueError, match=r"^words must return the \(start, end\) spans of a sentence's words, left to"):
        use(lambda text: found)("a cat")


@pytest.mark.parametrize("found", [[("old man", 0.7)], [(9.0, "old man")], [(4.0, 7.0)], [{"word": "man"}]])
def test_what_extractors_return_beside_words_and_spans_is_refused(found):
    message = r" must return words or \(start, end\) spans, got .*such as scores\.$"
    with pytest.raises(ValueError, match=f"^keywords{message}"):
        keyword_spans("the old man", lambda text: found)
    with pytest.raises(ValueError, match=f"^extractor{message}"):
        PhraseMasking(lambda text: found)(["the old man"])


def test_phrases_are_a_list():
    for one in ("old man", None):  # the letters of a string are no phrases
        with pytest.raises(ValueError, match=r"^extractor must return a list of phrases or \(start, end\) spans, got"):
            PhraseMasking(lambda text, one=one: one)(["the old man"])
