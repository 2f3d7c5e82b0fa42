"""The perturbed forms of sentences: what they keep, and how much of it."""

import math
import random

import pytest

from st_extras.evaluation.selection_texts import PerturbedForms, delete_words, swap_adjacent, words_or_letters


def test_words_where_there_are_words_and_letters_elsewhere():
    assert words_or_letters("the cat sat down") == ["the", "cat", "sat", "down"]
    assert words_or_letters("我爱北京") == ["我", "爱", "北", "京"]
    assert words_or_letters("cat") == ["c", "a", "t"]


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 1), (4, 3), (10, 8), (20, 17)])
def test_deletion_keeps_order_and_its_share(count, left):
    units = [f"w{i:02d}" for i in range(count)]
    shorter = delete_words(units, random.Random(1))
    assert len(shorter) == left
    assert shorter == sorted(shorter)


def test_swap_moves_neighbours_and_loses_nothing():
    units = list("abcdefghij")
    swapped = swap_adjacent(units, random.Random(3))
    assert swapped != units
    assert sorted(swapped) == units
    assert sum(a != b for a, b in zip(units, swapped, strict=True)) <= 4
    assert swap_adjacent(["a"], random.Random(3)) == ["a"]
    assert swap_adjacent(["a", "b"], random.Random(3)) == ["b", "a"]
    assert units == list("abcdefghij")


def test_kept_shares_equal_a_hand_count():
    """Every word once: equal weights, so the kept share is a share of words."""
    sentences = [" ".join(f"s{i}w{j}" for j in range(10)) for i in range(12)]
    forms = PerturbedForms(sentences, random.Random(0))
    for index, sentence in enumerate(sentences):
        own = set(sentence.split())
        shortened = forms.texts["shortening"][index].split()
        assert set(shortened) < own
        assert forms.kept["shortening"][index] == pytest.approx(len(shortened) / 10)
        blended = forms.texts["blending"][index].split()
        assert len(blended) == 10
        assert forms.kept["blending"][index] == pytest.approx(sum(word in own for word in blended) / 10)
        strangers = {word.split("w")[0] for word in blended} - {f"s{index}"}
        assert len(strangers) == 1
    assert {round(10 * float(share)) for share in forms.kept["blending"]} >= {2, 4, 6, 8}


def test_rare_words_weigh_more():
    sentences = [f"the the the rare{i}" for i in range(12)]
    forms = PerturbedForms(sentences, random.Random(0))
    weight = math.log(13 / 2) + 1
    for text, kept in zip(forms.texts["shortening"], forms.kept["shortening"].tolist(), strict=True):
        words = text.split()
        mass = words.count("the") + weight * (len(words) - words.count("the"))
        assert kept == pytest.approx(mass / (3 + weight))


def test_forms_of_text_without_spaces_have_none():
    forms = PerturbedForms(["我爱北京天安门"] * 3 + ["a b c d e"], random.Random(0))
    for texts in forms.texts.values():
        assert all(" " not in text for text in texts[:3] if not set(text) & set("abcde"))
    assert len(forms.texts["deletion"][3].split()) == 4
