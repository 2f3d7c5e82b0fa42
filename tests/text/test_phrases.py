import pickle
import re
from itertools import pairwise

import nltk
import pytest
from hypothesis import given, settings
from nltk.tag import PerceptronTagger
from rake_nltk import Rake

from st_extras.text import ChunkPhrases, PhraseMasking, RakePhrases
from st_extras.text.words import WORD
from tests.text.sentences import ANY_SENTENCE

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


def test_equal_scores_keep_the_order_of_the_sentence():
    assert RakePhrases()("zebra, apple, the mouse and a bird") == ["zebra", "apple", "mouse", "bird"]
    # 7/3 + 7/3 + 3 and 7/3 + 3 + 7/3: in floating point the second is the larger
    found = RakePhrases()("red sweet apple, red, sweet and red apple sweet")
    assert found == ["red sweet apple", "red apple sweet", "red", "sweet"]
    found = RakePhrases().scores("zebra, apple, apple, apple tree")
    assert found == [(pytest.approx(10 / 3), "apple tree"), (pytest.approx(4 / 3), "apple"), (1.0, "zebra")]
    assert RakePhrases()("İİ park, and a red cat") == ["İİ park", "red cat"], "a capital that grows when lowered"


@settings(max_examples=100, deadline=None)
@given(ANY_SENTENCE)
def test_scores_are_those_of_rake_nltk_on_any_text(sentence):
    check_equal_to_rake(sentence)


def test_lengths_and_stop_words():
    sentence = "big red apples and a pear"
    assert RakePhrases(max_words=2)(sentence) == ["pear"]
    assert RakePhrases(min_words=2)(sentence) == ["big red apples"]
    assert RakePhrases(stop_words=["UND", "der"])("Der Hund und die Katze") == ["die Katze", "Hund"]
    with pytest.raises(ValueError, match=r"^max_words must"):
        RakePhrases(max_words=2, min_words=3)
    for wrong in (0, 1001):
        with pytest.raises(ValueError, match=r"^min_words must"):
            RakePhrases(min_words=wrong)
    with pytest.raises(ValueError, match=r"^stop_words must"):
        RakePhrases(stop_words="the")
    with pytest.raises(ValueError, match=r"^language must be .*, got 'klingon': run python -m nltk\.downloader"):
        RakePhrases(language="klingon")
    for text in ("red_cats dog and a mouse", "New York dog and a mouse"):
        assert RakePhrases(words=lambda text: [(0, 8), (9, 12)])(text) == [text[:12]]
    words = [f"word{i}" for i in range(1001)]  # rake-nltk counts every pair of words: a run of more is no phrase
    assert RAKE(f"a red cat and {' '.join(words)}") == ["red cat"]


# --- chunks and parses ---

TAGGED = [
    "the/DT old/JJ man/NN read/VBD a/DT red/JJ book/NN ./.",
    "a/DT dog/NN ran/VBD in/IN the/DT park/NN ./.",
    "she/PRP slept/VBD because/IN the/DT cat/NN sat/VBD on/IN the/DT mat/NN ./.",
    "he/PRP can/MD cook/VB soup/NN with/IN fresh/JJ carrots/NNS ./.",
]


@pytest.fixture(scope="module")
def tagger():
    tagger = PerceptronTagger(load=False)
    tagger.train([[tuple(token.rsplit("/", 1)) for token in line.split()] for line in TAGGED * 5])
    return tagger


def chunks(sentence: str, extractor: ChunkPhrases) -> set[str]:
    return {sentence[start:end] for start, end in extractor(sentence)}


def test_chunks_of_a_trained_tagger(tagger):
    sentence = "the old man read a red book."
    assert chunks(sentence, ChunkPhrases(kinds=["VP"], tagger=tagger.tag)) == {"read a red book"}
    clause = "she slept because the cat sat on the mat ."
    assert "because the cat sat" in chunks(clause, ChunkPhrases(kinds=["SBAR"], tagger=tagger.tag))
    assert ChunkPhrases(tagger=tagger.tag)("") == []
    own = ChunkPhrases(kinds=["THING"], grammar="THING: {<JJ><NN>}", tagger=tagger.tag)
    assert chunks(sentence, own) == {"old man", "red book"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kinds": "NP"}, "kinds must"),
        ({"kinds": []}, "kinds must"),
        ({"parse": list}, "tagger and parse must not both"),
        ({"grammar": "NP: {<NN"}, ".*NN"),
        ({"seed": 0.5}, "seed must"),
        ({"tagger": None}, "tagger must be given .*averaged_perceptron_tagger_eng"),
    ],
)
def test_chunks_of_wrong_settings(options, named):
    with pytest.raises(ValueError, match=rf"^{named}"):
        ChunkPhrases(**{"tagger": list, **options})
    with pytest.raises(ValueError, match=r"^sentence: .*surrogate"):
        ChunkPhrases(tagger=list)("a \ud800")


@pytest.mark.parametrize("sentence", ["He said \"go\" and measured 10'' today", "a \"red\" book, ``old'' today"])
def test_quotation_marks_of_several_forms_in_one_sentence_do_not_stop_a_corpus(sentence):
    """The tokenizer writes each " as `` or \'\', and another mark of that form may stand further on."""
    extractor = ChunkPhrases(
        kinds=["NP"], tagger=lambda tokens: [(token, "NN" if token.isalnum() else ".") for token in tokens]
    )
    words = " ".join(sentence[start:end] for start, end in sorted(extractor(sentence))).split()
    assert words == [word.strip("\"`',") for word in sentence.split()]


@pytest.mark.parametrize("tags", [None, ["DT", "JJ", "NN"], [("the", "DT"), ("old", "JJ")], "DT JJ NN"])
def test_a_tagger_that_returns_no_tag_for_each_token_is_refused(tags):
    with pytest.raises(ValueError, match=r"^tagger must return \(token, tag\) for each of the 3 tokens, got"):
        ChunkPhrases(tagger=lambda tokens: tags)("the old man")


def test_the_order_of_chunks_is_drawn_from_the_seed():
    """As the paper draws a subtree at random; the same in every process."""
    parse = {"a b c d": nltk.Tree.fromstring("(S (NP a) (NP b) (NP c) (NP d))")}.__getitem__
    orders = [ChunkPhrases(parse=parse, seed=seed)("a b c d") for seed in (0, 0, 1, 2)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3
    each = ChunkPhrases(parse=lambda text: nltk.Tree("S", [nltk.Tree("NP", [word]) for word in text.split()]))
    orders = [each(f"a b c {letter}") for letter in "defgh"]
    assert len({tuple(order) for order in orders}) > 1, "and from the sentence"


def test_the_default_tagger_from_its_files(tagger, tmp_path, monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    folder = tmp_path / "taggers" / "averaged_perceptron_tagger_eng"
    folder.mkdir(parents=True, mode=0o700)
    tagger.save_to_json(lang="eng", loc=str(folder))
    extractor = ChunkPhrases(kinds=["NP"])
    assert chunks("a dog ran in the park.", extractor) == {"a dog", "the park"}
    assert pickle.loads(pickle.dumps(extractor))("a dog ran") == [(0, 5)]


def test_subtrees_of_a_given_parse():
    sentence = 'John said "(maybe) he won\'t come".'
    tree = """(S (NP-SBJ John) (VP said (`` ``) (-LRB- -LRB-) (ADVP maybe) (-RRB- -RRB-)
              (SBAR (S (NP he) (VP (MD wo) (RB n't) (VP come)))) ('' '')) (. .))"""
    parse = {sentence: nltk.Tree.fromstring(tree)}.__getitem__
    assert chunks(sentence, ChunkPhrases(parse=parse)) == {
        "John", "he", "come", "won't come", 'said "(maybe) he won\'t come',
    }  # fmt: skip
    assert ChunkPhrases(kinds=["N", "SB"], parse=parse)(sentence) == [], "labels that begin so are others"
    rows = PhraseMasking(ChunkPhrases(kinds=["SBAR"], parse=parse))([sentence])
    assert rows["masked"] == ['John said "(maybe) [MASK] [MASK] [MASK]".']
    with pytest.raises(ValueError, match="tree of the sentence 'John', got the token 'Mary'"):
        ChunkPhrases(parse=lambda _: nltk.Tree.fromstring("(S (NP Mary))"))("John")
    signs = ChunkPhrases(parse=lambda _: nltk.Tree.fromstring("(S (NP (`` ``)) (NP cats) (NP (-RRB- -RRB-)))"))
    assert signs('"cats)') == [(1, 5)], "a phrase without words is none"
    repeated = ChunkPhrases(parse=lambda _: nltk.Tree.fromstring("(S (NP a cat) and (NP a dog))"))
    assert sorted(repeated("a cat and a dog")) == [(0, 5), (10, 15)]
    within = ChunkPhrases(parse=lambda _: nltk.Tree.fromstring("(S (NP (NP cats)) (VP sleep))"))
    assert sorted(within("cats sleep")) == [(0, 4), (5, 10)], "each span once, verbs by themselves"
