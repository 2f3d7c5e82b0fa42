"""TF-IDF rows of character grams, and BM25."""

import math
import unicodedata
from collections import Counter

import numpy as np
import pytest
import torch

from st_extras.text import term_weights
from st_extras.text.corpus import blocks_of_words
from st_extras.text.term_weights import (
    BM25,
    STOP_WORDS,
    WordCounts,
    bm25_weight,
    bm25_weight_of_blocks,
    character_tfidf,
    matching_spans,
    near_duplicate_share,
    search_words,
    searchable_sentences,
    word_rules,
)

TEXTS = ["A cat sat.", "the cat sat there", "Dogs ran home", "dogs ran", "ran ran ran home"]


def grams(text: str) -> list[str]:
    """All runs of 3 to 5 characters of each word with a space on both sides; a short word is one gram, once."""
    found = []
    for word in text.lower().split():
        word = f" {word} "
        for size in (3, 4, 5):
            found += [word[i : i + size] for i in range(max(1, len(word) - size + 1))]
            if len(word) <= size:
                break
    return found


def test_it_is_sublinear_tfidf_of_grams_within_words():
    counts = [Counter(grams(text)) for text in TEXTS]
    documents = Counter(gram for count in counts for gram in count)
    rows = []
    for count in counts:
        weights = {
            gram: (1 + math.log(number)) * (1 + math.log((1 + len(TEXTS)) / (1 + documents[gram])))
            for gram, number in count.items()
            if documents[gram] >= 2
        }
        length = math.sqrt(sum(weight**2 for weight in weights.values()))
        rows.append({gram: weight / length for gram, weight in weights.items()})
    expected = [[sum(a[gram] * b.get(gram, 0) for gram in a) for b in rows] for a in rows]
    found = character_tfidf(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose((found @ found.T).toarray(), expected, atol=1e-6)


def test_texts_that_share_nothing_have_rows_of_zeros():
    assert character_tfidf([*TEXTS, "xyz"])[-1].nnz == 0
    assert character_tfidf([*TEXTS, "xyz", "xyz " * 501 + TEXTS[0]])[-2:].nnz == 12  # the end of a text is not read
    assert character_tfidf(["cat one", "cat one", "cat two", "cat two"], 0.5).nnz == 2 * 12  # nor what most texts have
    for texts in (["abc", "xyz"], ["", " "], ["one"]):
        found = character_tfidf(texts)
        assert (found.shape[0], found.nnz, found.dtype) == (len(texts), 0, np.float32)


def test_texts_with_a_common_word_are_no_near_duplicates():
    assert near_duplicate_share(["the cat sat", "the dog ran home", "birds sing"]) == 0
    repeated = ["The cat sat on the mat", "the cat sat on the mat", "a dog ran home", "birds sing near a river"]
    assert near_duplicate_share(repeated) == 0.5
    assert near_duplicate_share([]) == near_duplicate_share(["one"]) == 0


@pytest.mark.parametrize("texts", [TEXTS, [*TEXTS, "!"]], ids=["words in all", "one without a word"])
def test_bm25_is_the_formula_in_a_loop(texts):
    documents = [search_words(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    queries = ["The CAT ran, ran!", "dogs xyz", "xyz", ""]
    expected = np.zeros((len(queries), len(texts)))
    for i, query in enumerate(queries):
        for word in search_words(query):
            holding = sum(word in document for document in documents)
            for j, document in enumerate(documents):
                count = document.count(word)
                idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
                expected[i, j] += idf * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(document) / mean))
    found = BM25(texts).scores(queries)
    assert found.dtype == np.float32
    assert (found[:2] > 0).any(axis=1).all()
    assert not found[2:].any()
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_bm25_of_documents_without_a_word():
    for documents in (["!", "?"], ["", "cat"]):
        found = BM25(documents).scores(["cat", "?"])
        assert [list(row > 0) for row in found] == [[text == "cat" for text in documents], [False] * len(documents)]


def test_the_weight_of_bm25_is_the_formula_in_a_loop():
    draw = np.random.default_rng(0)
    dense, bm25 = draw.normal(0.3, 0.1, (5, 40)), np.maximum(0, draw.normal(0, 4, (5, 40)))
    bm25[3] = 0  # a query without a word that a document has counts too
    spreads = [sum(np.std(row) for row in side) / 5 for side in (dense, bm25)]
    assert bm25_weight(dense, bm25) == pytest.approx(0.2 * spreads[0] / spreads[1])
    for share in (0.5, 10):
        assert bm25_weight(dense, bm25, share=share) == pytest.approx(share * spreads[0] / spreads[1])
    blocks = [(dense[rows].astype("float32"), bm25[rows]) for rows in (slice(0, 2), slice(2, 5))]
    assert bm25_weight_of_blocks(blocks) == pytest.approx(bm25_weight(dense, bm25))
    assert bm25_weight(torch.tensor(dense), torch.tensor(bm25).bfloat16()) == pytest.approx(
        bm25_weight(dense, bm25), rel=0.01
    )
    assert bm25_weight_of_blocks([(np.array([[0.5, 0.1]]), np.zeros((1, 2)))]) == 0, "all alike"
    unlike = dense.astype("float32") * np.array([[1e7], [1], [-1e7], [1e-3], [0]], dtype=np.float32)
    spread = np.mean([np.std(row.tolist()) for row in unlike])
    for rows in ([0, 1, 2, 3, 4], [1, 3], [0, 3], [2, 3]):  # the rounding of one query is not that of another
        spread = np.mean([np.std(row.tolist()) for row in unlike[rows]])
        others = np.mean([np.std(row.tolist()) for row in bm25[rows]])
        assert bm25_weight_of_blocks([(unlike[rows], bm25[rows])]) == pytest.approx(0.2 * spread / others, rel=1e-5)


def test_a_weight_is_no_quotient_of_rounding_errors():
    """Equal documents have equal scores, but for the last digit of a matrix product."""
    draw = np.random.default_rng(0)
    rounded = (0.7 + 6e-8 * draw.integers(0, 2, (3, 61))).astype(np.float32)
    words = np.full((3, 61), 2.3, dtype=np.float32)
    assert rounded.std() > 0
    apart = draw.normal(size=(3, 61)).astype(np.float32)
    alike = ((rounded, words), (apart, words), (rounded, apart), (-rounded, apart))
    assert [bm25_weight_of_blocks([sides]) for sides in alike] == [0] * 4
    with pytest.raises(ValueError, match=r"^dense_scores must differ"):
        bm25_weight(rounded, apart)
    dense = 1 - np.abs(draw.normal(0, 4e-7, (3, 61))).astype(np.float32)  # of a raw encoder
    assert bm25_weight_of_blocks([(dense, apart)]) == pytest.approx(
        0.2 * dense.std(axis=1, dtype=float).mean(), rel=0.2
    )


SCORES = np.array([[0.1, 0.2], [0.3, 0.5]])


@pytest.mark.parametrize(
    "scores",
    [np.array([[1, 2], [3, 4]], dtype=np.int8), torch.zeros(2, 2), SCORES > 0.2, np.array([[0.1, np.nan], [0.3, 0.5]])],
    ids=str,
)
def test_scores_that_give_no_weight_are_refused(scores):
    with pytest.raises(ValueError, match=r"^dense_scores must"):
        bm25_weight(scores, SCORES)
    with pytest.raises(ValueError, match=r"^bm25_scores must"):
        bm25_weight(SCORES, scores)
    for share in (0, -1, 10.1):
        with pytest.raises(ValueError, match=r"^share must"):
            bm25_weight(SCORES, SCORES, share=share)
    with pytest.raises(ValueError, match=r"^bm25_scores must have the shape of dense_scores, \(2, 2\), got \(2, 1\)"):
        bm25_weight(SCORES, SCORES[:, :1])
    for negative in (-SCORES, np.minimum(0, 0.2 - SCORES)):  # with and without documents that share no word
        with pytest.raises(ValueError, match=r"^bm25_scores must be higher"):
            bm25_weight(SCORES, negative)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The X-ray of O'Neil_2, STRASSE Straße!", "the x ray of o neil 2 strasse strasse"),
        ("ﬁne ＡＢＣ naïve नमस्ते", "fine abc naïve नमस्ते"),
        ("rock'n’roll x-ray y‐ray z‑ray", "rock n roll x ray y ray z ray"),
        ("我们搜索text文档 猫", "我们 们搜 搜索 text 文档 猫"),
        ("スーパー 人々", "スー ーパ パー 人々"),
        ("ไทย ខ្មែរ", "ไท ทย ខ្ ្ម មែ ែរ"),
        ("한국어 검색", "한국 국어 검색"),
    ],
)
def test_the_words_that_a_search_compares(text, words):
    assert search_words(text) == words.split()


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("software", "soft\u00adware"), ("software", "soft\u200dware"), ("میخواهم", "می\u200cخواهم"),
        ("istanbul", "İstanbul"), ("ISTANBUL", "İSTANBUL"), ("كتاب", "كِتَاب"), ("كتاب", "كتـــاب"), ("שלום", "שָׁלוֹם"),
        ("水", "水道"), ("々", "人々"), ("학교", "학교에서"), ("မြန်မာ", "မြန်မာနိုင်ငံ"), ("e\u0301te\u0301", "été"),
    ],
)  # fmt: skip
def test_no_word_is_lost_between_two_ways_to_write_it(query, word):
    found = BM25([f"one {word} two", "one two three"]).scores([query, word])
    assert found[:, 0].min() > 0
    assert not found[:, 1].any()
    others = BM25(["café", "ılık", "道水", "a\u200bb"]).scores(["cafe", "ilik", "水道", "ab"])
    assert not others.any(), "other words"


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        ("What are the Flights of the WINGS", "english", ["what", "flight", "wing"]),
        ("what are the flights", None, ["what", "are", "the", "flights"]),
        ("was an der Tür", "german", ["was", "an", "der", "tur"]),
        ("Die Häuser, daß er die Straße suchte", "german", ["die", "haus", "dass", "er", "die", "strass", "sucht"]),
        ("talossa ja taloissa", "finnish", ["talo", "ja", "talo"]),
        ("飛行機 flights", "english", ["飛行", "行機", "flight"]),
    ],
)
def test_a_language_has_stems_and_english_no_stop_words(text, language, words):
    assert search_words(text, language) == words


def test_bm25_of_a_language_is_that_of_the_stems():
    documents = ["The dog runs home", "dogs", "a cat was running", "the the the"]
    index, plain = BM25(documents, "english"), BM25(["dog run home", "dog", "cat run", ""])
    queries = ["a dog that runs", "the", "RUNNING"]
    expected = plain.scores(["dog run", "", "run"])
    np.testing.assert_allclose(index.scores(queries), expected)
    assert expected[2].tolist()[1] == 0 < expected[2].min(initial=1, where=[True, False, True, False])


@pytest.mark.parametrize(
    "pair", ["ไท", "ລາ", "བད", "မန", "ខម", "人々", "々〇", "かな", "カナ", "ㇰㇱ", "㐀㐁", "漢字", "豈更", "𠀋𪜀"]
)
def test_scripts_without_spaces_count_by_characters(pair):
    folded = unicodedata.normalize("NFKC", pair)  # of a character that has two codes, the usual one
    assert search_words(f"a {pair} b") == ["a", folded, "b"]
    assert search_words(f"a{pair}b", singles=True) == ["a", folded, *folded, "b"]
    assert [*blocks_of_words([f"ab{pair}cd"], 1)] == ["ab", *pair, "cd"]


def test_what_is_no_collection_of_texts_is_refused():
    for documents in ("a cat", [], [3], {"a": "a cat"}):
        with pytest.raises(ValueError, match=r"^documents must"):
            BM25(documents)
    for queries in ("a cat", [3]):
        with pytest.raises(ValueError, match=r"^queries must"):
            BM25(TEXTS).scores(queries)


@pytest.mark.parametrize(
    ("text", "query", "language", "marked"),
    [
        ("The X-ray, an x; rays", "x-ray", None, "The *X*-*ray*, an *x*; rays"),
        ("The X-ray, an x; rays", "ray of x", "english", "The *X*-*ray*, an *x*; *rays*"),
        ("東京タワーは高い、東京", "東京 タワー", None, "*東京タワー*は高い、*東京*"),
        ("犬と猫と犬小屋", "犬", None, "*犬*と猫と*犬*小屋"),
        ("abc東京def", "東京 def", None, "abc*東京**def*"),
        ("İstanbul ＡＢＣ", "istanbul abc", None, "*İstanbul* *ＡＢＣ*"),
        ("nothing", "other", None, "nothing"),
    ],
)
def test_the_words_of_a_query_are_marked_where_they_stand(text, query, language, marked):
    shown = text
    for first, last in reversed(matching_spans(text, frozenset(search_words(query, language)), language)):
        shown = f"{shown[:first]}*{shown[first:last]}*{shown[last:]}"
    assert shown == marked


def test_the_rules_of_words_are_recognized_by_what_they_make(monkeypatch):
    rules = {language: word_rules(language) for language in (None, "english", "german")}
    assert len({*rules.values()}) == 3
    assert {language: word_rules(language) for language in rules} == rules
    with monkeypatch.context() as patch:
        patch.setattr(term_weights, "version", lambda package: f"another {package}")
        assert word_rules() == rules[None], "nothing is stemmed"
        assert word_rules("english") != rules["english"]
    words = search_words
    monkeypatch.setattr(term_weights, "search_words", lambda *given, **named: [*words(*given, **named)][:-1])
    assert all(word_rules(language) != rules[language] for language in rules)
    monkeypatch.setattr(term_weights, "search_words", lambda text, language, **_: words(text, language))
    assert all(word_rules(language) != rules[language] for language in rules), "without single characters"


def test_sentences_and_lines_of_three_words_can_be_searched_for():
    text = " The cat sat. Dogs ran! He is no-one? 12.5 of 3\nlost cards here \n\n我们搜索。文档在这里！ end"
    wanted = ["The cat sat.", "He is no-one?", "12.5 of 3", "lost cards here", "我们搜索。", "文档在这里！"]
    assert searchable_sentences(text) == wanted


@pytest.mark.parametrize("language", ["porter", "English", "en", "", 1])
def test_a_language_without_a_stemmer(language):
    with pytest.raises(ValueError, match=r"^language must be one of 'arabic', 'danish', .*, got"):
        BM25(TEXTS, language)


def test_the_stop_words_are_those_of_lucene():
    stopwords = pytest.importorskip("bm25s.stopwords")
    assert frozenset(stopwords.STOPWORDS_EN) == STOP_WORDS


@pytest.mark.parametrize("language", [None, "english"])
def test_counts_that_are_changed_are_those_of_the_new_documents(language):
    counts = WordCounts.of(TEXTS, language)
    before = counts.bm25.scores(["ran cat", "new words"])
    kept = np.array([True, False, True, True, False])
    changed = counts.changed(kept, ["new words ran", ""])
    expected = BM25([TEXTS[0], TEXTS[2], TEXTS[3], "new words ran", ""], language)
    for queries in (["ran cat"], ["new there words"], ["word"]):
        np.testing.assert_allclose(changed.bm25.scores(queries), expected.scores(queries), rtol=1e-6)
    np.testing.assert_array_equal(counts.bm25.scores(["ran cat", "new words"]), before, "what was there stays")
    assert WordCounts.of([]).bm25.scores(["cat"]).shape == (1, 0)
    assert "home" in counts.vocabulary
    assert {*changed.vocabulary} == {*expected.vocabulary}, "words of documents that went are forgotten"
    left = counts.changed(np.zeros(5, dtype=bool), [])
    assert (left.vocabulary, left.counts.shape) == ({}, (0, 0))
