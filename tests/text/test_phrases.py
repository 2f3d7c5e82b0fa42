from __future__ import annotations

import gzip
import pickle
import re
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path

import nltk
import pytest
from datasets import Dataset, disable_progress_bars
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tag import PerceptronTagger
from rake_nltk import Rake

from st_extras.text.augmentation import EDA
from st_extras.text.extractors import jieba_spans
from st_extras.text.phrases import ChunkPhrases, PhraseMasking, RakePhrases
from st_extras.text.words import WORD, word_spans

MASK = "[MASK]"
disable_progress_bars()


@pytest.fixture(autouse=True)
def no_nltk_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed on this machine, a test sees only what it writes."""
    monkeypatch.setattr(nltk.data, "path", [])


def folded_words(text: str, words: Callable[[str], Sequence[tuple[int, int]]] = word_spans) -> list[str]:
    return [text[start:end].casefold() for start, end in words(text)]


def holds(words: list[str], phrase: list[str]) -> bool:
    return any(words[i : i + len(phrase)] == phrase for i in range(len(words) - len(phrase) + 1))


def check_row(sentence: str, masked: str, phrase: str) -> None:
    """Unmasking recomposes the sentence, the phrase stands in it, and no occurrence is left."""
    pieces = masked.split(MASK)
    parts = phrase.split(" ")
    assert len(pieces) > 1
    assert (len(pieces) - 1) % len(parts) == 0
    answers = [parts[i % len(parts)] for i in range(len(pieces) - 1)]
    unmasked = "".join([pieces[0], *(a + p for a, p in zip(answers, pieces[1:], strict=True))])
    assert unmasked.casefold() == sentence.casefold()
    first = masked.index(MASK)  # exactly as it stands, case and all, at its first occurrence
    assert sentence.startswith(pieces[0] + parts[0]), (sentence, first)
    assert holds(folded_words(sentence), [part.casefold() for part in parts])
    assert not holds(folded_words(masked.replace(MASK, " xmaskx ")), [part.casefold() for part in parts])


# ---- RAKE


def test_rake_scores_by_hand() -> None:
    # deep 2 times: co-occurs with itself twice and learning once, cat once -> degree 4, score 2
    # learning once, degree 2; cat once, degree 2; model once, degree 1
    sentence = "the deep learning of a model, and deep cat"
    assert RakePhrases().scores(sentence) == [(4.0, "deep learning"), (4.0, "deep cat"), (1.0, "model")]
    assert RakePhrases()(sentence) == ["deep learning", "deep cat", "model"]


def test_rake_on_the_example_of_its_paper() -> None:
    scores = RakePhrases(stopwords=["of", "a", "and", "are", "over", "the"]).scores(
        "Criteria of compatibility of a system of linear Diophantine equations, strict inequations, and "
        "nonstrict inequations are considered. Linear constraints over the set of natural numbers"
    )
    assert scores[0] == (8.5, "linear Diophantine equations")  # 2.5 + 3 + 3
    assert (4.5, "Linear constraints") in scores
    assert (4.0, "nonstrict inequations") in scores


def test_equal_scores_keep_the_order_of_the_sentence() -> None:
    assert RakePhrases()("zebra, apple, the mouse and a bird") == ["zebra", "apple", "mouse", "bird"]
    # 7/3 + 7/3 + 3 and 7/3 + 3 + 7/3: in floating point the second is the larger
    phrases = RakePhrases()("red sweet apple, red, sweet and red apple sweet")
    assert phrases == ["red sweet apple", "red apple sweet", "red", "sweet"]


def test_a_capital_that_grows_when_lowered_moves_nothing() -> None:
    assert len("İ".lower()) == 2
    assert RakePhrases()("İİ park, and a red cat") == ["i̇i̇ park", "red cat"]
    assert PhraseMasking()(["İİ Park, and a red cat"])["phrase"] == ["İİ Park", "red cat"]


RAKE, RAKE_OF_2_OR_3 = RakePhrases(), RakePhrases(min_words=2, max_words=3)
TOKEN = re.compile(rf"{WORD.pattern}|\S")


def plain_rake(sentence: str, **lengths: int) -> list[tuple[float, str]]:
    """rake-nltk alone, best first: our words, every other character a punctuation mark."""
    tokens = TOKEN.findall(sentence)
    rake = Rake(
        stopwords=set(RAKE.stopwords),
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


@pytest.mark.parametrize("name", ["sts_unlabeled", "wiki_sentences", "books_sentences"])
def test_scores_are_those_of_rake_nltk_on_real_sentences(data_folder: Path, name: str) -> None:
    with gzip.open(data_folder / f"{name}.txt.gz", "rt", encoding="utf8") as lines:
        for sentence in islice(lines, 0, 20_000, 20):
            check_equal_to_rake(sentence)


def test_a_phrase_holds_no_punctuation_and_stops_at_it() -> None:
    phrases = RakePhrases()("Red apples… green (pears) «blue»—berries! state-of-the-art don't @user #tag_x")
    assert "Red apples" in phrases
    assert not any(re.search(r"[^\w \-'’]|_", phrase) for phrase in phrases)
    assert "green pears" not in phrases
    assert "state-of-the-art" in phrases


def test_lengths_stop_words_and_languages() -> None:
    sentence = "big red apples and a pear"
    assert RakePhrases(max_words=2)(sentence) == ["pear"]
    assert RakePhrases(min_words=2)(sentence) == ["big red apples"]
    assert RakePhrases(stopwords=[])(sentence) == [sentence]
    assert RakePhrases(stopwords=["UND", "der"])("Der Hund und die Katze") == ["die Katze", "Hund"]
    with pytest.raises(ValueError, match=r"language='german'.*nltk\.downloader stopwords"):
        RakePhrases(language="german")
    with pytest.raises(ValueError, match=r"stopwords='the'"):
        RakePhrases(stopwords="the")
    with pytest.raises(ValueError, match=r"min_words=3 and max_words=2"):
        RakePhrases(min_words=3, max_words=2)


def test_nltk_stop_words_of_another_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    nltk.corpus.stopwords._unload()
    (tmp_path / "corpora" / "stopwords").mkdir(parents=True)
    (tmp_path / "corpora" / "stopwords" / "german").write_text("der\nund\n")
    try:
        assert RakePhrases(language="german")("Der Hund und Otto") == ["Hund", "Otto"]
    finally:
        nltk.corpus.stopwords._unload()


def test_chinese_through_jieba() -> None:
    sentence = "我喜欢机器学习，也喜欢深度学习。机器学习！"
    rake = RakePhrases(language="chinese")
    rows = PhraseMasking(rake)([sentence])
    assert len(rows["phrase"]) > 1
    for masked, phrase in zip(rows["masked"], rows["phrase"], strict=True):
        assert "".join(phrase.split()) in sentence
        assert not holds(folded_words(masked, jieba_spans), phrase.split())
    shown = PhraseMasking(lambda text: ["机器学习"], words=jieba_spans)([sentence])
    assert shown["masked"] == [f"我喜欢{MASK}{MASK}，也喜欢深度学习。{MASK}{MASK}！"]
    middle = PhraseMasking(lambda text: [(5, 7)], words=jieba_spans)([sentence])  # no space tells it from 机器
    assert middle["phrase"] == ["学习"]
    assert middle["masked"][0].startswith(f"我喜欢机器{MASK}，")


# ---- masking in the text


@pytest.mark.parametrize(
    ("sentence", "phrase", "masked"),
    [
        ("The cat sat.", "cat", "The [MASK] sat."),
        ("Cat, a CAT and cats; concatenate cat", "cat", "[MASK], a [MASK] and cats; concatenate [MASK]"),
        ("red apple (Red   Apple) redapple", "red apple", "[MASK] [MASK] ([MASK]   [MASK]) redapple"),
        ("very very very old", "very very", "[MASK] [MASK] very old"),
        ("It's Zoë’s naïve idea", "Zoë’s", "It's [MASK] naïve idea"),
        ("well-known well known", "well known", "well-known [MASK] [MASK]"),
        ("STRASSE und Straße", "straße", "[MASK] und [MASK]"),
        ("日本語 text", "text", "日本語 [MASK]"),
        ("a.b.c", "b", "a.[MASK].c"),
    ],
)
def test_every_occurrence_as_a_word_and_nothing_else(sentence: str, phrase: str, masked: str) -> None:
    rows = PhraseMasking(lambda text: [phrase])([sentence])
    assert rows["masked"] == [masked]
    check_row(sentence, masked, rows["phrase"][0])


def test_phrases_come_as_strings_or_spans_once_each_and_must_stand_in_the_sentence() -> None:
    sentence = "The old Dog sat"
    masking = PhraseMasking(lambda text: ["absent", "OLD dog", (4, 11), "", "...", (8, 9), (0, 3), "sat"])
    assert masking([sentence])["phrase"] == ["old Dog", "Dog", "The"]
    assert masking([sentence])["masked"][1] == "The old [MASK] sat"
    assert masking(["... !"])["phrase"] == []  # not even nothing, in a sentence without words


def test_top_k_and_the_other_mask_tokens() -> None:
    sentence = "zebra, apple, the mouse and a bird"
    assert len(PhraseMasking()([sentence])["phrase"]) == 3
    assert PhraseMasking(top_k=1, mask_token="<mask>")([sentence])["masked"] == ["<mask>, apple, the mouse and a bird"]


SENTENCE_TEXT = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(["a", "A", "cat", "CAT", "the", "red", ",", " ", " ", "-", "'", "ß", "SS", "é", "İ", "\n", "_"])
    ).map("".join),
)


@settings(max_examples=300, deadline=None)
@given(SENTENCE_TEXT)
def test_scores_are_those_of_rake_nltk_on_any_text(sentence: str) -> None:
    check_equal_to_rake(sentence)


@settings(max_examples=300, deadline=None)
@given(SENTENCE_TEXT)
def test_any_text_is_recomposed(sentence: str) -> None:
    for extractor in (RAKE, every_pair):
        rows = PhraseMasking(extractor, top_k=5)([sentence])
        for row in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
            assert row[0] == sentence
            check_row(*row)


def every_pair(sentence: str) -> list[tuple[int, int]]:
    spans = word_spans(sentence)
    return [(a[0], b[1]) for a, b in pairwise(spans)]


@pytest.mark.parametrize("name", ["sts_unlabeled", "wiki_sentences", "books_sentences"])
def test_real_sentences_are_recomposed(data_folder: Path, name: str) -> None:
    with gzip.open(data_folder / f"{name}.txt.gz", "rt", encoding="utf8") as lines:
        sentences = [next(lines).rstrip("\n") for _ in range(3000)]
    masking = PhraseMasking()
    rows = masking(sentences)
    assert len(rows["phrase"]) > 1.8 * len(sentences)
    assert masking.skipped < 0.05 * len(sentences)
    for row in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
        check_row(*row)


# ---- data sets


@pytest.mark.parametrize("sentences", [[], ["the of and"], ["the of and", "of"]])
def test_text_without_any_phrase_is_refused(sentences: list[str]) -> None:
    with pytest.raises(ValueError, match=f"none of the {len(sentences)} sentences has a phrase to mask"):
        PhraseMasking().dataset(sentences)


def test_map_keeps_other_columns_and_counts_the_skipped() -> None:
    data = Dataset.from_dict({"id": [1, 2, 3], "sentence": ["a red cat, a dog", "the", "one [MASK] dog"]})
    masking = PhraseMasking()
    rows = data.map(masking, batched=True, load_from_cache_file=False)
    assert rows.column_names == ["id", "sentence", "masked", "phrase"]
    assert rows["id"][:] == [1, 1]
    assert rows["phrase"][:] == ["red cat", "dog"]
    assert masking.skipped == 2


def test_processes_agree_and_the_skipped_of_all_are_counted() -> None:
    sentences = [f"the red cat {i} sat, with a dog" if i % 5 else "the" for i in range(100)]
    one, two = PhraseMasking(augmentation=EDA_SWAP), PhraseMasking(augmentation=EDA_SWAP)
    alone, shared = (
        one.dataset(sentences),
        two.dataset(Dataset.from_dict({"sentence": sentences}), num_proc=2),
    )
    assert alone.column_names == shared.column_names == ["sentence", "masked", "phrase"]
    assert alone.to_dict() == shared.to_dict()
    assert one.skipped == two.skipped == 20
    examples = PhraseMasking().examples(sentences[:3])
    assert examples[0].texts == [
        "the red cat 1 sat, with a dog",
        "the [MASK] [MASK] [MASK] [MASK], with a dog",
        "red cat 1 sat",
    ]


EDA_SWAP = EDA(synonym_ratio=0, swap_ratio=0.3)


def test_counting_does_not_change_the_cache_key() -> None:
    from datasets.fingerprint import Hasher

    masking = PhraseMasking()
    before = Hasher.hash(masking)
    masking(["the", "a red cat"])
    assert masking.skipped == 1
    assert Hasher.hash(masking) == before
    assert pickle.loads(pickle.dumps(masking))(["a red cat"]) == masking(["a red cat"])


def test_sampling_draws_a_phrase_at_each_call_and_returns_every_row() -> None:
    masking = PhraseMasking(sample=True, seed=1)
    data = Dataset.from_dict({"sentence": ["a red cat, a dog, the park", "the", "one bird"]})
    kept = data.filter(masking.has_phrase, load_from_cache_file=False)
    kept.set_transform(masking)
    seen = {kept[0]["phrase"] for _ in range(50)}
    assert seen == {"red cat", "dog", "park"}
    assert kept[:]["sentence"] == ["a red cat, a dog, the park", "one bird"]
    again = PhraseMasking(sample=True, seed=1)
    drawn = [masking(["a red cat, a dog"])["phrase"] for masking in (PhraseMasking(sample=True, seed=1), again)]
    assert drawn[0] == drawn[1]
    with pytest.raises(ValueError, match=r"no phrase in 'the'.*has_phrase"):
        masking(["a cat", "the"])
    with pytest.raises(ValueError, match="set_transform"):
        masking.dataset(["a cat"])


def test_the_phrase_is_taken_from_the_augmented_sentence() -> None:
    rows = PhraseMasking(augmentation=EDA(synonym_ratio=1, synonyms={"cat": ["feline"]}))(["the cat"])
    assert rows == {"sentence": ["the feline"], "masked": ["the [MASK]"], "phrase": ["feline"]}
    emptied = PhraseMasking(augmentation=lambda sentence: "the")(["a cat"])
    assert emptied["sentence"] == ["a cat"]
    eda = EDA(synonyms={"cat": list("bcdefgh")}, synonym_ratio=1)
    anew = PhraseMasking(augmentation=eda, sample=True)
    assert len({anew(["the cat"])["sentence"][0] for _ in range(20)}) > 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PhraseMasking(top_k=0), r"top_k=0 must be .* at least 1"),
        (lambda: PhraseMasking(top_k=2.5), r"top_k=2\.5"),  # type: ignore[arg-type]
        (lambda: PhraseMasking(mask_token=None), r"mask_token=None"),  # type: ignore[arg-type]
        (lambda: PhraseMasking(mask_token=""), r"mask_token=''"),
        (lambda: PhraseMasking(column="phrase"), r"column='phrase'"),
        (lambda: PhraseMasking()({"text": ["a"]}), r"column='sentence' .*\['text'\]"),
        (lambda: PhraseMasking()({"sentence": "a cat"}), r"batched=True"),
        (lambda: PhraseMasking()(["a cat", None]), r"'sentence' must hold strings, got None"),  # type: ignore[list-item]
        (lambda: PhraseMasking().dataset(Dataset.from_dict({"text": ["a"]})), r"column='sentence'"),
        (lambda: ChunkPhrases(kinds="NP"), r"kinds='NP'"),
        (lambda: ChunkPhrases(kinds=(), parse=str), r"kinds=\(\)"),
        (lambda: ChunkPhrases(tagger=list, parse=str), r"tagger or parse"),  # type: ignore[arg-type]
        (lambda: ChunkPhrases(grammar="NP: <DT", parse=str), r"grammar='NP: <DT'"),
        (lambda: ChunkPhrases(), r"nltk\.downloader averaged_perceptron_tagger_eng"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# ---- chunks

TAGGED = [
    "the/DT old/JJ man/NN read/VBD a/DT red/JJ book/NN ./.",
    "a/DT dog/NN ran/VBD in/IN the/DT park/NN ./.",
    "she/PRP slept/VBD because/IN the/DT cat/NN sat/VBD on/IN the/DT mat/NN ./.",
    "he/PRP can/MD cook/VB soup/NN with/IN fresh/JJ carrots/NNS ./.",
]


@pytest.fixture(scope="module")
def tagger() -> PerceptronTagger:
    tagger = PerceptronTagger(load=False)
    tagger.train([[tuple(token.rsplit("/", 1)) for token in line.split()] for line in TAGGED * 5])
    return tagger


def chunks(sentence: str, extractor: ChunkPhrases) -> set[str]:
    return {sentence[start:end] for start, end in extractor(sentence)}


def test_chunks_of_a_trained_tagger(tagger: PerceptronTagger) -> None:
    sentence = "the old man read a red book."
    assert chunks(sentence, ChunkPhrases(kinds=["NP"], tagger=tagger.tag)) == {"the old man", "a red book"}
    assert chunks(sentence, ChunkPhrases(kinds=["VP"], tagger=tagger.tag)) == {"read a red book"}
    clause = "she slept because the cat sat on the mat ."
    assert "because the cat sat" in chunks(clause, ChunkPhrases(kinds=["SBAR"], tagger=tagger.tag))
    assert ChunkPhrases(tagger=tagger.tag)("") == []
    own = ChunkPhrases(kinds=["THING"], grammar="THING: {<JJ><NN>}", tagger=tagger.tag)
    assert chunks(sentence, own) == {"old man", "red book"}
    rows = PhraseMasking(ChunkPhrases(kinds=["NP"], tagger=tagger.tag))([sentence])
    assert set(rows["masked"]) == {
        "[MASK] [MASK] [MASK] read a red book.",
        "the old man read [MASK] [MASK] [MASK].",
    }


def test_the_default_tagger_from_its_files(
    tagger: PerceptronTagger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    folder = tmp_path / "taggers" / "averaged_perceptron_tagger_eng"
    folder.mkdir(parents=True, mode=0o700)
    tagger.save_to_json(lang="eng", loc=str(folder))
    extractor = ChunkPhrases(kinds=["NP"])
    assert chunks("a dog ran in the park.", extractor) == {"a dog", "the park"}
    assert pickle.loads(pickle.dumps(extractor))("a dog ran") == [(0, 5)]


def test_the_order_of_chunks_is_drawn_from_the_seed(tagger: PerceptronTagger) -> None:
    sentence = "the old man read a red book."
    firsts = {ChunkPhrases(tagger=tagger.tag, seed=seed)(sentence)[0] for seed in range(20)}
    assert len(firsts) == 3
    again = [ChunkPhrases(tagger=tagger.tag, seed=7)(sentence) for _ in range(2)]
    assert again[0] == again[1]


def test_sub_trees_of_a_parse_that_the_user_brings() -> None:
    sentence = 'John said "(maybe) he won\'t come".'
    tree = """(S (NP-SBJ John) (VP said (`` ``) (-LRB- -LRB-) (ADVP maybe) (-RRB- -RRB-)
              (SBAR (S (NP he) (VP (MD wo) (RB n't) (VP come)))) ('' '')) (. .))"""
    parse = {sentence: nltk.Tree.fromstring(tree)}.__getitem__
    assert chunks(sentence, ChunkPhrases(parse=parse)) == {
        "John", "he", "come", "won't come", 'said "(maybe) he won\'t come',
    }  # fmt: skip
    rows = PhraseMasking(ChunkPhrases(kinds=["SBAR"], parse=parse))([sentence])
    assert rows["masked"] == ['John said "(maybe) [MASK] [MASK] [MASK]".']
    with pytest.raises(ValueError, match="'Mary', which does not stand in the sentence 'John'"):
        ChunkPhrases(parse=lambda _: nltk.Tree.fromstring("(S (NP Mary))"))("John")
