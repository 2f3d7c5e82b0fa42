import math
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.functional import unit_rows
from st_extras.losses.parts.instance_weights import InstanceWeights, count_negatives, share_quantile
from tests.helpers import columns, cosine, differing, draw, generator, snapshot

# ---- the threshold


def quantile(cosines: Tensor, share: float) -> float:
    """The cosine that a share of the pairs i != j reach, between the two pairs next to it, as a plain loop."""
    pairs = sorted(float(cosines[i][j]) for i in range(len(cosines)) for j in range(len(cosines)) if i != j)
    place = (1 - share) * (len(pairs) - 1)
    below = pairs[math.floor(place)]
    return below + (place - math.floor(place)) * (pairs[math.ceil(place)] - below)


def batch(size: int, seed: int) -> Tensor:
    return torch.tanh(draw(size, size, seed=seed))


def made(model: SentenceTransformer, guide: Any, **options: Any) -> InstanceWeights:
    settings = {"threshold": None, "masked_share": None, "gather_across_devices": False} | options
    return InstanceWeights(model, guide, None, **settings)


def threshold_of(given: Any, share: Any, **options: Any) -> InstanceWeights:
    alone = SentenceTransformer(modules=[torch.nn.Identity()], device="cpu")
    return made(alone, "self", threshold=given, masked_share=share, **options)


def value(weights: InstanceWeights) -> Tensor:
    """Phi as it is logged."""
    return weights.instruments["threshold"]


def phi_of(threshold: InstanceWeights, cosines: Tensor, **options: Any) -> Any:
    """Phi for a batch of these cosines."""
    return threshold.phi(cosines, torch.eye(cosines.size(1)).to(cosines), **options)


@pytest.mark.parametrize("share", [0.02, 0.14, 0.5, 0.97])
def test_the_quantile_of_a_batch_is_the_loops(share):
    cosines = batch(7, seed=1)
    found = share_quantile(cosines, torch.arange(7), share)
    assert found.item() == pytest.approx(quantile(cosines, share), abs=1e-12)
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])  # the own candidate may stand anywhere
    torch.testing.assert_close(share_quantile(cosines[:, order], order.argsort(), share), found)


def test_phi_is_the_mean_over_the_training_batches_so_far():
    """Over all of them, be they more than a hundred."""
    threshold = threshold_of(None, 0.3).double()
    assert value(threshold).isnan()
    seen = []
    for step in range(150):
        cosines = batch(3 + step % 5, step)
        seen.append(quantile(cosines, 0.3) + step / 1000)
        phi = phi_of(threshold, cosines + step / 1000)
        assert value(threshold).item() == pytest.approx(sum(seen) / len(seen), abs=1e-12)
        assert 0 < value(threshold) - phi < 2e-6  # an allowance for rounding
    assert threshold.batches == 150


def test_without_gradients_nothing_moves():
    threshold = threshold_of(None, 0.3).double()
    with torch.no_grad():
        found = phi_of(threshold, batch(6, seed=1))
        assert found.item() == pytest.approx(quantile(batch(6, seed=1), 0.3), abs=2e-6)
    assert value(threshold).isnan()
    phi = phi_of(threshold, batch(6, seed=2))
    before = snapshot(threshold)
    with torch.no_grad():
        assert phi_of(threshold, batch(6, seed=1)) == phi
    assert phi_of(threshold, batch(6, seed=1), first=False) == phi
    assert not differing(before, snapshot(threshold))
    phi_of(threshold, batch(6, seed=1))
    assert differing(before, snapshot(threshold)) == {"mean", "batches"}


def test_batches_of_fewer_than_three_and_numbers_that_are_not_finite_do_not_count():
    threshold = threshold_of(None, 0.3).double()
    for size in (1, 2):
        assert phi_of(threshold, torch.ones(size, size).double()) == torch.inf  # nothing is masked
    assert value(threshold).isnan()
    phi = phi_of(threshold, batch(6, seed=1))
    for cosines in (torch.ones(2, 2), torch.full((6, 6), math.nan), torch.full((6, 6), math.inf)):
        assert phi_of(threshold, cosines.double()) == phi
    assert threshold.batches == 1


@pytest.mark.parametrize("seed", range(5))
def test_sentences_that_are_all_alike_are_all_masked(seed):
    """Rounding must not decide which of them are negatives."""
    threshold = threshold_of(None, 0.14)
    for step in range(3):
        cosines = (1 + 1e-7 * draw(16, 16, seed=10 * seed + step)).float()
        assert (cosines >= phi_of(threshold, cosines)).all()
    assert phi_of(threshold, torch.zeros(4, 4)).isfinite()


# ---- the weights


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("options", [{"threshold": 0.1}, {"masked_share": 0.4}])
@pytest.mark.parametrize("guide", ["start", "self"])
def test_the_weights_as_a_loop(make_encoder, sentences, guide, options, count):
    model = make_encoder()
    data = list(columns(sentences, count).values())
    anchors, candidates = draw(8, 16).float(), draw(8, 16, seed=1).float()
    pair = (anchors, candidates) if guide == "self" else [model.encode(data[i]) for i in (0, -1)]
    cosines = torch.tensor([[cosine(x, y) for y in pair[1]] for x in pair[0]])
    phi = options.get("threshold", quantile(cosines, 0.4) - 1e-6)
    parts = [[model.preprocess(column[:3]), model.preprocess(column[3:])] for column in data]
    weights = made(model, guide, **options)
    weigh: Any = weights(anchors.requires_grad_(), unit_rows(candidates), parts, first=True)
    found = torch.cat([weigh(begin, begin + 4) for begin in (0, 4)])
    assert not any(kept.requires_grad for kept in (found, *weights.buffers()))  # which would hold a step's graph
    assert torch.equal(found, (cosines < phi).float())


def test_what_is_measured():
    given = (torch.rand(4, 6, generator=generator(1)) > 0.5).float()
    left = [sum(float(given[i][j]) for j in range(6) if j != i + 2) for i in range(4)]
    assert count_negatives(given, 2).tolist() == left
    weights = made(SentenceTransformer(modules=[torch.nn.Identity()], device="cpu"), "self")
    assert weights.masked_negatives.isnan()
    weights.measure(torch.tensor([0.0, 5.0, 3.0, 0.0]), 6, others=True)
    assert (float(weights.masked_negatives), int(weights.anchors_without_negatives)) == (pytest.approx(0.6), 0)
    weights.measure(torch.tensor([0.0, 5.0, 3.0, 0.0]), 6, others=False)
    assert int(weights.anchors_without_negatives) == 2
