import os
from itertools import pairwise

import pytest
from datasets import Dataset, disable_progress_bars
from hypothesis import given, settings

from st_extras.text import EDA, PhraseMasking, RakePhrases
from st_extras.text.words import jieba_spans, word_spans
from tests.text.sentences import ANY_SENTENCE

MASK = "[MASK]"
RAKE = RakePhrases()
disable_progress_bars()


def holds(text: str, phrase: list[str]) -> bool:
    """Whether the words of ``phrase`` stand in ``text`` with nothing but space between them."""
    spans = word_spans(text)
    runs = [spans[i : i + len(phrase)] for i in range(len(spans) - len(phrase) + 1)]
    return any(
        [text[start:end].casefold() for start, end in run] == phrase
        and not any(text[first[1] : second[0]].strip() for first, second in pairwise(run))
        for run in runs
    )


def check_row(sentence: str, masked: str, phrase: str) -> None:
    """Unmasking recomposes the sentence, the phrase stands in it, and no occurrence is left."""
    pieces = masked.split(MASK)
    parts = phrase.split(" ")
    assert len(pieces) > 1
    assert (len(pieces) - 1) % len(parts) == 0
    answers = [parts[i % len(parts)] for i in range(len(pieces) - 1)]
    unmasked = "".join([pieces[0], *(a + p for a, p in zip(answers, pieces[1:], strict=True))])
    assert unmasked.casefold() == sentence.casefold()
    assert sentence.startswith(pieces[0] + parts[0]), "exactly as it stands, case and all, at its first occurrence"
    assert holds(sentence, [part.casefold() for part in parts])
    assert not holds(masked.replace(MASK, " xmaskx "), [part.casefold() for part in parts])


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
    ],
)
def test_every_occurrence_as_a_word_and_nothing_else(sentence, phrase, masked):
    rows = PhraseMasking(lambda text: [phrase])([sentence])
    assert rows["masked"] == [masked]
    check_row(sentence, masked, rows["phrase"][0])


def test_chinese_through_jieba():
    sentence = "我喜欢机器学习，也喜欢深度学习。机器学习！"
    rows = PhraseMasking(RakePhrases(language="chinese"))([sentence])
    assert {*rows["phrase"]} == {"喜欢 机器 学习", "喜欢 深度 学习", "机器 学习"}
    shown = PhraseMasking(lambda text: ["机器学习"], words=jieba_spans)([sentence])
    assert shown["masked"] == [f"我喜欢{MASK}{MASK}，也喜欢深度学习。{MASK}{MASK}！"]
    middle = PhraseMasking(lambda text: [(5, 7)], words=jieba_spans)([sentence])  # no space tells it from 机器
    assert middle["masked"][0].startswith(f"我喜欢机器{MASK}，")


def test_an_occurrence_never_crosses_punctuation():
    sentence = "We ate Red. Apples and red apples were good"
    rows = PhraseMasking(top_k=2)([sentence])
    assert rows["phrase"] == ["ate Red", "red apples"]
    assert rows["masked"][1] == "We ate Red. Apples and [MASK] [MASK] were good"
    crossing = PhraseMasking(lambda text: [(7, 18), "Red. Apples", "Apples and", "ate (Red"])
    assert crossing([sentence])["phrase"] == ["Apples and"]
    listed = PhraseMasking(lambda text: ["a b a"])(["a b, a b a b a"])  # the match that crosses hides no other
    assert listed["masked"] == ["a b, [MASK] [MASK] [MASK] b a"]


def every_pair(sentence: str) -> list[tuple[int, int]]:
    spans = word_spans(sentence)
    return [(a[0], b[1]) for a, b in pairwise(spans)]


@settings(max_examples=100, deadline=None)
@given(ANY_SENTENCE)
def test_any_text_is_recomposed(sentence):
    for extractor in (RAKE, every_pair):
        rows = PhraseMasking(extractor, top_k=5)([sentence])
        for row in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
            check_row(*row)


def test_phrases_come_as_strings_or_spans_once_each_and_must_stand_in_the_sentence():
    masking = PhraseMasking(lambda text: ["absent", "OLD dog", (4, 11), "", "...", (8, 9), (0, 3), "sat"])
    rows = masking(["The old Dog sat", "... !"])  # not even nothing, in a sentence without words
    assert rows["phrase"] == ["old Dog", "Dog", "The"], "three at most, unless it is set"
    assert rows["masked"][1] == "The old [MASK] sat"
    span = PhraseMasking(lambda text: [(11, 14)])(["The cat, a CAT"])
    assert (span["phrase"], span["masked"]) == (["CAT"], ["The [MASK], a [MASK]"]), "as it stands there, everywhere"


def test_sentences_without_a_phrase_are_counted():
    masking = PhraseMasking()
    given = ["a red cat, a dog", "the", "one [MASK] dog"]
    rows = {
        "sentence": ["a red cat, a dog"] * 2, "masked": ["a [MASK] [MASK], a dog", "a red cat, a [MASK]"],
        "phrase": ["red cat", "dog"],
    }  # fmt: skip
    assert masking(given) == masking.dataset(given)[:] == masking.dataset(Dataset.from_dict({"text": given}))[:] == rows
    assert masking.skipped == 6


def test_processes_agree_and_the_skipped_of_all_are_counted(tmp_path):
    sentences = [f"the red cat {i} sat, with a dog" if i % 5 else "the" for i in range(20)]
    found, swap = [], EDA(synonym_ratio=0, swap_ratio=0.3)

    def noted(sentence):
        (tmp_path / str(os.getpid())).touch()
        return swap(sentence)

    for processes in (None, 2):
        masking = PhraseMasking(augmentation=noted)
        found.append(masking.dataset(Dataset.from_dict({"sentence": sentences}), num_proc=processes).to_dict())
        assert masking.skipped == 4
    assert found[0] == found[1]
    assert len([*tmp_path.iterdir()]) == 3, "this one, and two"


def test_the_phrase_is_taken_from_the_augmented_sentence():
    eda = EDA(synonyms={"cat": list("bcdefgh")}, synonym_ratio=1)
    rows = PhraseMasking(augmentation=eda)(["the cat"])
    assert rows == {"sentence": [f"the {rows['phrase'][0]}"], "masked": ["the [MASK]"], "phrase": rows["phrase"]}
    assert rows["phrase"] != ["cat"]
    assert PhraseMasking(augmentation=lambda sentence: "the")(["a cat"])["sentence"] == ["a cat"], "no phrase is left"


def test_without_a_mask_token_phrases_are_deleted():
    deleting = PhraseMasking(mask_token=None, on_missing_mask="delete", top_k=1)
    rows = deleting(["Red apples, and more red apples!", "The old man read a book.", "red apples"])
    assert rows["phrase"] == ["Red apples", "old man read"]
    assert rows["masked"] == [", and more !", "The a book."]
    assert deleting.skipped == 1  # nothing would be left of "red apples"


@pytest.mark.parametrize(
    ("options", "sentences", "named"),
    [
        *(({"mask_token": token}, [], "mask_token") for token in (None, "", " ", 3)),
        ({"mask_token": " ", "on_missing_mask": "delete"}, [], "mask_token"),
        ({"on_missing_mask": "drop"}, [], "on_missing_mask"),
        ({"top_k": 0}, [], "top_k"),
        ({}, ["the of and", "of"], "sentences must hold a sentence with a phrase to mask, got 2 sentences without one"),
        ({}, [], "sentences must hold a sentence with a phrase to mask, got 0 sentences without one"),
    ],
)
def test_bad_input_is_named(options, sentences, named):
    with pytest.raises(ValueError, match=rf"^{named}"):
        PhraseMasking(**options).dataset(sentences)
    with pytest.raises(ValueError, match="sentences, row 1: expected"):
        PhraseMasking()(["a cat", None])


def test_the_mask_is_that_of_the_encoder():
    masking = PhraseMasking(mask_token="<mask>", top_k=1)
    rows = masking(["a red cat", "one <mask> dog", "the [MASK]"])
    assert rows["masked"] == ["a <mask> <mask>", "the [<mask>]"]
    assert masking.skipped == 1
    with pytest.raises(ValueError, match="masked whole"):
        masking.dataset(["red cat", "dogs"])


def test_text_that_is_masked_whole_is_refused_or_warned_of(caplog):
    chinese = ["今天天气很好", "我们去图书馆看书", "他喜欢机器学习"]
    with pytest.raises(ValueError, match="masked whole"):
        PhraseMasking().dataset(chinese)
    PhraseMasking().dataset([*chinese, "a red cat", "the old man read a book"])
    assert "50% of the masked sentences are nothing but the mask" in caplog.text
    caplog.clear()
    PhraseMasking(RakePhrases(language="chinese")).dataset(chinese)
    PhraseMasking().dataset(["a red cat"] * 9 + ["dogs"])
    assert not caplog.messages


def test_clauses_taken_for_words_are_warned_of(caplog):
    chinese = ["今天天气很好，我们去图书馆看书。", "他喜欢机器学习，她喜欢语言学习。"]  # something is left of each
    PhraseMasking().dataset(chinese)
    [message] = caplog.messages
    assert "Took 4 of 4 phrases of text without spaces for words of 7 characters on average" in message
    assert "language='chinese'" in message
    caplog.clear()
    PhraseMasking(RakePhrases(language="chinese")).dataset(chinese)
    PhraseMasking().dataset([*["the old man read a red book"] * 9, chinese[0]])  # a few are no reason
    assert not caplog.messages


def test_an_augmentation_that_returns_no_sentence_is_refused():
    for changed in (None, ["a red cat"]):
        with pytest.raises(ValueError, match=r"^augmentation must return the changed sentence, got"):
            PhraseMasking(augmentation=lambda sentence, changed=changed: changed)(["a red cat"])
