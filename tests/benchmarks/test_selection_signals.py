"""The signals of a study: the perturbed forms of sentences, and that every signal is computed of them."""

import math

import pytest
import torch

from benchmarks.selection_signals import SIGNALS, SignalsEvaluator
from benchmarks.signals import agreement_margin, graded_agreement
from st_extras.evaluation.geometry import uniformity
from tests.evaluation.test_selection import CORPUS


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
