"""The threshold phi of DCLR's weights; its value and the weights as a loop: tests/losses/test_dclr.py."""

import math
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.losses.parts.instance_weights import InstanceWeights
from tests.helpers import differing, draw, snapshot


def made(share: float = 0.3) -> Any:
    alone = SentenceTransformer(modules=[torch.nn.Identity()], device="cpu")
    options: dict[str, Any] = {"threshold": None, "masked_share": share, "gather_across_devices": False}
    return InstanceWeights(alone, "self", None, **options).double()


def phi_of(weights: InstanceWeights, cosines: Tensor, **options: Any) -> Any:
    """Phi for a batch of these cosines."""
    return weights.phi(cosines, torch.eye(cosines.size(1)).to(cosines), **options)


def test_a_batch_counts_once_and_only_with_gradients():
    weights = made()
    first, second = (torch.tanh(draw(6, 6, seed=seed)) for seed in (1, 2))
    with torch.no_grad():
        alone = phi_of(weights, first)
    assert weights.instruments["threshold"].isnan()
    phi, before = phi_of(weights, second), snapshot(weights)
    with torch.no_grad():
        assert phi_of(weights, first) == phi
    assert phi_of(weights, first, first_call=False) == phi
    assert not differing(before, snapshot(weights))
    assert phi_of(weights, first) == pytest.approx(float(alone + phi) / 2)
    assert differing(before, snapshot(weights)) == {"mean", "batches"}


def test_small_batches_and_numbers_that_are_not_finite_do_not_count():
    weights = made()
    for size in (1, 2):
        assert phi_of(weights, torch.ones(size, size).double()) == torch.inf  # nothing is masked
    assert weights.instruments["threshold"].isnan()
    phi = phi_of(weights, torch.tanh(draw(6, 6)))
    for cosines in (torch.ones(2, 2), torch.full((6, 6), math.nan), torch.full((6, 6), math.inf)):
        assert phi_of(weights, cosines.double()) == phi
    assert weights.batches == 1


def test_rounding_does_not_decide_between_sentences_that_are_all_alike():
    for seed in range(5):
        weights = made(0.14).float()
        for step in range(3):
            cosines = (1 + 1e-7 * draw(16, 16, seed=10 * seed + step)).float()
            assert (cosines >= phi_of(weights, cosines)).all()
