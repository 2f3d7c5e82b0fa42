from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from st_extras.functional import anchor_pull
from st_extras.losses.parts.adversaries import Climb, adversarial_info_nce, adversary_shares, ascend, mean_similarity
from tests.helpers import cosine, draw, generator


@pytest.mark.parametrize("in_batch_negatives", [True, False])
@pytest.mark.parametrize("offset", [0, 2])
def test_equation_5_and_the_shares_as_a_loop(in_batch_negatives: bool, offset: int) -> None:
    """With gathered keys, the shifted positive stands among 6 candidates."""
    queries, keys, adversaries = draw(2, 5), draw(6, 5, seed=1), draw(3, 5, seed=2)
    loss, logits = adversarial_info_nce(
        queries, keys, adversaries, temperature=0.5, in_batch_negatives=in_batch_negatives, offset=offset
    )
    shares = adversary_shares(logits, 3)
    total = 0.0
    for i in range(2):
        positive = math.exp(cosine(queries[i], keys[i + offset]) / 0.5)
        taken = [math.exp(cosine(queries[i], n) / 0.5) for n in adversaries]
        denominator = positive + sum(taken)
        if in_batch_negatives:
            denominator += sum(math.exp(cosine(queries[i], keys[j]) / 0.5) for j in range(6) if j != i + offset)
        total -= math.log(positive / denominator) / 2
        assert shares[i].tolist() == pytest.approx([term / denominator for term in taken], abs=1e-12)
    assert loss.item() == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("in_batch_negatives", [True, False])
def test_the_climb_sees_shares_of_its_own_temperature(in_batch_negatives: bool) -> None:
    """The share that is reported is the loss's, the pull is that of a softmax at half its temperature."""
    queries, keys, adversaries = draw(4, 5), draw(4, 5, seed=1), draw(3, 5, seed=2)
    options = {"in_batch_negatives": in_batch_negatives}
    _, logits = adversarial_info_nce(queries, keys, adversaries, temperature=0.5, **options)
    climb = Climb(adversaries, sharpness=2.0)
    for rows in (slice(0, 1), slice(1, 4)):
        climb.add(queries[rows], logits[rows])
    taken = {0.5: torch.zeros(4, 3, dtype=torch.float64), 0.25: torch.zeros(4, 3, dtype=torch.float64)}
    for temperature, shares in taken.items():
        for i in range(4):
            others = [keys[j] for j in range(4) if in_batch_negatives or j == i]
            denominator = sum(math.exp(cosine(queries[i], other) / temperature) for other in (*others, *adversaries))
            for m in range(3):
                shares[i, m] = math.exp(cosine(queries[i], adversaries[m]) / temperature) / denominator
    assert climb.share.item() == pytest.approx(taken[0.5].sum(dim=1).mean().item(), abs=1e-12)
    torch.testing.assert_close(climb.pull, anchor_pull(queries, taken[0.25]))
    assert (taken[0.5] - taken[0.25]).abs().max() > 0.01


def test_permutation_and_scale() -> None:
    queries, keys, adversaries = draw(6, 16), draw(6, 16, seed=1), draw(3, 16, seed=2)
    loss, logits = adversarial_info_nce(queries, keys, adversaries, temperature=0.1)
    order = torch.randperm(6, generator=generator(5))
    moved, moved_logits = adversarial_info_nce(3 * queries[order], keys[order] / 7, 2 * adversaries, temperature=0.1)
    torch.testing.assert_close(loss, moved)
    torch.testing.assert_close(adversary_shares(logits, 3)[order], adversary_shares(moved_logits, 3))


@pytest.mark.parametrize("in_batch_negatives", [True, False])
def test_gradcheck(in_batch_negatives: bool) -> None:
    queries, keys = draw(3, 5).requires_grad_(), draw(3, 5, seed=1).requires_grad_()
    adversaries = draw(2, 5, seed=2)

    def scalar(q: Tensor, k: Tensor) -> Tensor:
        return adversarial_info_nce(q, k, adversaries, temperature=0.5, in_batch_negatives=in_batch_negatives)[0]

    assert torch.autograd.gradcheck(scalar, (queries, keys))


def test_the_logits_are_constants_and_half_precision_is_not_kept() -> None:
    queries, keys = draw(3, 5).bfloat16().requires_grad_(), draw(3, 5, seed=1).bfloat16()
    loss, logits = adversarial_info_nce(queries, keys, draw(2, 5, seed=2), temperature=0.5)
    assert loss.requires_grad
    assert not logits.requires_grad
    assert loss.dtype == logits.dtype == torch.float32


def test_no_adversaries_take_nothing() -> None:
    queries, keys = draw(3, 5), draw(3, 5, seed=1)
    loss, logits = adversarial_info_nce(queries, keys, torch.empty(0, 5), temperature=0.5)
    assert logits.shape == (3, 3)
    assert adversary_shares(logits, 0).shape == (3, 0)
    scores = torch.tensor([[cosine(h, k) / 0.5 for k in keys] for h in queries])
    torch.testing.assert_close(loss.float(), torch.nn.functional.cross_entropy(scores, torch.arange(3)))


@pytest.mark.parametrize("in_batch_negatives", [True, False])
def test_ascent_is_torchs_sgd_that_maximises(in_batch_negatives: bool) -> None:
    options = {"temperature": 0.3, "in_batch_negatives": in_batch_negatives}
    adversaries = draw(6, 8, seed=2)
    velocity = torch.zeros_like(adversaries)
    reference = adversaries.clone().requires_grad_()
    optimizer = torch.optim.SGD([reference], lr=0.3, momentum=0.9, weight_decay=0.01, maximize=True)
    start = adversaries.clone()
    for step in range(4):
        queries, keys = draw(5, 8, seed=10 + step), draw(5, 8, seed=20 + step)
        _, logits = adversarial_info_nce(queries, keys, adversaries, **options)
        ascend(
            adversaries, velocity, anchor_pull(queries, adversary_shares(logits, 6)), len(queries),
            temperature=0.3, learning_rate=0.3, momentum=0.9, weight_decay=0.01,
        )  # fmt: skip
        optimizer.zero_grad()
        adversarial_info_nce(queries, keys, reference, **options)[0].backward()
        optimizer.step()
        torch.testing.assert_close(adversaries, reference.detach(), rtol=0, atol=1e-12)
    assert (adversaries - start).abs().max() > 0.01


def test_ascent_is_in_place_and_without_gradients() -> None:
    adversaries, velocity = draw(3, 8), torch.zeros(3, 8, dtype=torch.float64)
    places = adversaries.data_ptr(), velocity.data_ptr()
    shares = torch.full((5, 3), 0.2, dtype=torch.float64, requires_grad=True)
    settings = {"temperature": 0.3, "momentum": 0.9, "weight_decay": 0.0}
    before = adversaries.clone()
    pull = anchor_pull(draw(5, 8, seed=1).requires_grad_(), shares)
    ascend(adversaries, velocity, pull, 5, learning_rate=0.0, **settings)
    assert torch.equal(adversaries, before)
    ascend(adversaries, velocity, pull, 5, learning_rate=0.1, **settings)
    assert (adversaries.data_ptr(), velocity.data_ptr()) == places
    assert not torch.equal(adversaries, before)
    assert not adversaries.requires_grad
    assert not velocity.requires_grad


def test_mean_similarity_is_the_mean_cosine() -> None:
    anchors, adversaries = draw(3, 4), draw(5, 4, seed=1)
    expected = sum(cosine(a, n) for a in anchors for n in adversaries) / 15
    assert mean_similarity(anchors, adversaries).item() == pytest.approx(expected)
