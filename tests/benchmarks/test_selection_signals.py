"""The signals of a study: the perturbed forms of sentences, and that every signal is computed of them."""

import math
import random

import pytest
import torch

from benchmarks.selection_signals import SIGNALS, PerturbedForms, SignalsEvaluator
from benchmarks.signals import agreement_margin, graded_agreement
from st_extras.evaluation.geometry import uniformity
from tests.evaluation.test_selection import CORPUS


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
