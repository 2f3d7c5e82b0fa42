"""Every loss inside Sentence Transformers' loss modifiers: each pair works, or is refused in one sentence."""

import pytest
from sentence_transformers.sentence_transformer.losses import AdaptiveLayerLoss, Matryoshka2dLoss, MatryoshkaLoss

from tests.helpers import differing, snapshot, some_fast
from tests.losses.cases import CASES, MINI_BATCHED, PLAIN

FAST = ("simcse, head", "consert", "adcse", "slt-fai", "paser")


@pytest.mark.parametrize("name", some_fast(CASES, FAST))
def test_matryoshka_works_or_is_refused(encoder, name):
    case = CASES[name]
    loss = case.make(encoder.train())
    wrapped, features = MatryoshkaLoss(encoder, loss, [16, 8]), case.features(encoder)
    before = snapshot(loss)
    if case.refused:
        cached = [case.make(encoder, mini_batch_size=3)] if case.cached else []
        for each in (wrapped, *(MatryoshkaLoss(encoder, one, [16, 8]) for one in cached)):
            with pytest.raises(ValueError, match=case.refused):
                each(features, None)
        assert "adversary" not in str(differing(before, snapshot(loss)))
        return
    for _ in range(2):  # the first may be a warm-up
        value = wrapped(features, None)
        assert value.dim() == 0
        assert value.isfinite()
    value.backward()
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())
    assert loss.state_dict().get("steps", 2) == 2  # however often the loss runs for one batch


@pytest.mark.parametrize("name", PLAIN)
def test_adaptive_layers_are_refused(encoder, name):
    case = CASES[name]
    refusals = r"^(AdaptiveLayerLoss cannot run this loss: .*|.* MatryoshkaLoss.*)\.$"
    losses = [case.make(encoder.train()), *([case.make(encoder, mini_batch_size=3)] if name in MINI_BATCHED else [])]
    for loss in losses:
        for wrapped in (AdaptiveLayerLoss(encoder, loss), Matryoshka2dLoss(encoder, loss, [16, 8])):
            with pytest.raises(ValueError, match=refusals):
                wrapped(case.features(encoder), None)
