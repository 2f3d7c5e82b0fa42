"""The threshold phi of DCLR's weights; the weights themselves: tests/losses/test_dclr.py."""

import math
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.losses.parts.instance_weights import BatchWeights, InstanceWeights, share_quantile
from tests.helpers import differing, draw, snapshot


def quantile(cosines: Tensor, share: float) -> float:
    """The cosine that a share of the pairs i != j reaches, between the two pairs next to it, as a plain loop."""
    pairs = sorted(float(cosines[i][j]) for i in range(len(cosines)) for j in range(len(cosines)) if i != j)
    place = (1 - share) * (len(pairs) - 1)
    below = pairs[math.floor(place)]
    return below + (place - math.floor(place)) * (pairs[math.ceil(place)] - below)


def batch(size: int, seed: int) -> Tensor:
    return torch.tanh(draw(size, size, seed=seed))


def made(share: float | None = 0.3) -> Any:
    alone = SentenceTransformer(modules=[torch.nn.Identity()], device="cpu")
    options: dict[str, Any] = {"threshold": None, "masked_share": share, "gather_across_devices": False}
    return InstanceWeights(alone, "self", None, **options)


def logged(weights: InstanceWeights) -> Tensor:
    """The estimate of phi."""
    return weights.instruments["threshold"]


def phi_of(weights: InstanceWeights, cosines: Tensor, **options: Any) -> Any:
    """Phi for a batch of these cosines."""
    return weights.phi(cosines, torch.eye(cosines.size(1)).to(cosines), **options)


@pytest.mark.parametrize("share", [0.02, 0.14, 0.5, 0.97])
def test_the_quantile_of_a_batch_is_the_loops(share):
    cosines = batch(7, seed=1)
    found = share_quantile(cosines, torch.arange(7), share)
    assert found.item() == pytest.approx(quantile(cosines, share), abs=1e-12)
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])  # the own candidate may be in any column
    torch.testing.assert_close(share_quantile(cosines[:, order], order.argsort(), share), found)


def test_phi_is_the_mean_over_all_training_batches_so_far():
    weights, seen = made().double(), []
    assert logged(weights).isnan()
    for step in range(150):
        cosines = batch(3 + step % 5, step)
        seen.append(quantile(cosines, 0.3) + step / 1000)
        phi = phi_of(weights, cosines + step / 1000)
        assert logged(weights).item() == pytest.approx(sum(seen) / len(seen), abs=1e-12)
        assert 0 < logged(weights) - phi < 2e-6  # an allowance for rounding
    assert weights.batches == 150


def test_a_batch_counts_once_and_only_with_gradients():
    weights = made().double()
    with torch.no_grad():
        assert phi_of(weights, batch(6, seed=1)).item() == pytest.approx(quantile(batch(6, seed=1), 0.3), abs=2e-6)
    assert logged(weights).isnan()
    phi, before = phi_of(weights, batch(6, seed=2)), snapshot(weights)
    with torch.no_grad():
        assert phi_of(weights, batch(6, seed=1)) == phi
    assert phi_of(weights, batch(6, seed=1), first_call=False) == phi
    assert not differing(before, snapshot(weights))
    phi_of(weights, batch(6, seed=1))
    assert differing(before, snapshot(weights)) == {"mean", "batches"}


def test_small_batches_and_numbers_that_are_not_finite_do_not_count():
    weights = made().double()
    for size in (1, 2):
        assert phi_of(weights, torch.ones(size, size).double()) == torch.inf  # nothing is masked
    assert logged(weights).isnan()
    phi = phi_of(weights, batch(6, seed=1))
    for cosines in (torch.ones(2, 2), torch.full((6, 6), math.nan), torch.full((6, 6), math.inf)):
        assert phi_of(weights, cosines.double()) == phi
    assert weights.batches == 1


@pytest.mark.parametrize("seed", range(5))
def test_rounding_does_not_decide_between_sentences_that_are_all_alike(seed):
    weights = made(0.14)
    for step in range(3):
        cosines = (1 + 1e-7 * draw(16, 16, seed=10 * seed + step)).float()
        assert (cosines >= phi_of(weights, cosines)).all()
    assert phi_of(weights, torch.zeros(4, 4)).isfinite()


def test_what_is_measured_of_a_batch_in_two_parts():
    given = torch.tanh(draw(4, 6))
    weights, kept = made(None), BatchWeights(given, torch.eye(6).double(), 0.2, 2, torch.float64)
    given[3] = 0.9  # no negative is left, and the own candidate counts nothing
    left = [sum(float(given[i][j]) < 0.2 for j in range(6) if j != i + 2) for i in range(4)]
    assert weights.masked_negatives.isnan()
    found = torch.cat([kept.of_anchors(0, 1), kept.of_anchors(1, 4)])
    assert torch.equal(found, (given < 0.2).double())
    weights.record(kept)
    assert float(weights.masked_negatives) == pytest.approx(1 - sum(left) / 20)
    assert int(weights.anchors_without_negatives) == left.count(0) == 1
