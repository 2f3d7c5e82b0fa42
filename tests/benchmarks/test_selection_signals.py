"""The signals of a study: the perturbed forms of sentences, and that every signal is computed of them."""

import math
import random

import pytest
import torch

from benchmarks.selection_signals import SIGNALS, PerturbedForms, SignalsEvaluator, delete_words, swap_adjacent
from benchmarks.signals import agreement_margin, graded_agreement
from st_extras.evaluation.geometry import uniformity
from tests.evaluation.test_selection import CORPUS


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


@pytest.fixture
def evaluator():
    return SignalsEvaluator(CORPUS, size=20, name="toy", batch_size=8)


def test_the_evaluator_returns_every_signal(encoder, evaluator):
    metrics = evaluator(encoder)
    assert list(metrics) == [f"toy_{name}" for name in SIGNALS]
    assert all(math.isfinite(value) for value in metrics.values())
    embeddings = evaluator.embed(encoder)
    clean = encoder.encode(evaluator.sentences, convert_to_tensor=True)
    for form in ("deletion", "swap", "shortening", "blending"):
        changed = encoder.encode(evaluator.forms[form], convert_to_tensor=True)
        torch.testing.assert_close(embeddings[form], changed)
        assert not torch.allclose(changed, clean)
    assert metrics["toy_margin_swap"] == pytest.approx(agreement_margin(clean, embeddings["swap"]), abs=1e-5)
    assert metrics["toy_graded_blending"] == pytest.approx(
        graded_agreement(clean, embeddings["blending"], evaluator.kept["blending"]), abs=1e-2
    )
    assert metrics["toy_spread"] == pytest.approx(-uniformity(clean), abs=1e-5)


def test_stability_compares_with_the_call_before(encoder, evaluator):
    assert evaluator(encoder)["toy_stability"] == 0.0
    assert evaluator(encoder)["toy_stability"] == 1.0
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    assert 0 < evaluator(encoder)["toy_stability"] < 1


def test_all_checkpoints_answer_the_same_questions(encoder, evaluator):
    first = evaluator.embed(encoder)
    torch.manual_seed(2)
    second = evaluator.embed(encoder)
    for form, embeddings in first.items():
        torch.testing.assert_close(embeddings, second[form], rtol=0, atol=0)
    assert not torch.allclose(first["dropout"], first["clean"])
    assert torch.initial_seed() == 2
    evaluator.seed += 1
    assert not torch.allclose(evaluator.embed(encoder)["dropout"], first["dropout"])
    assert all(i < j for i, j in evaluator.pairs.tolist())
    assert len(evaluator.pairs) == len(evaluator.overlap) == 190
