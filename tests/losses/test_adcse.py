"""What only AdCSE has: equation 5, adversaries that climb it, keys of a momentum encoder.

The adversaries are the buffer "adversaries.vectors" of its state, a name that checkpoints know.
"""

import copy
import math
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.losses import AdCSELoss
from tests.helpers import columns, cosine, draw, generator
from tests.losses.cases import owned

D = 16


def equation_5(
    queries: Tensor, keys: Tensor, adversaries: Tensor, tau: float, in_batch: bool = True, symmetric: bool = False
) -> float:
    total = 0.0
    h, k, n = queries.tolist(), keys.tolist(), adversaries.tolist()
    for anchors, others in [(h, k), (k, h)] if symmetric else [(h, k)]:
        for i, anchor in enumerate(anchors):
            positive = math.exp(cosine(anchor, others[i]) / tau)
            denominator = positive
            if in_batch:
                for j, other in enumerate(others):
                    if j != i:
                        denominator += math.exp(cosine(anchor, other) / tau)
            for adversary in n:
                denominator += math.exp(cosine(anchor, adversary) / tau)
            total -= math.log(positive / denominator) / len(anchors)
    return total / (2 if symmetric else 1)


def slope(m: int, d: int, vectors: Tensor, *arguments: Any) -> float:
    """The slope of equation 5 along entry d of adversary m, from both sides."""
    ends = []
    for shift in (-1e-5, 1e-5):
        moved = vectors.clone()
        moved[m, d] += shift
        ends.append(equation_5(*arguments[:2], moved, *arguments[2:]))
    return (ends[1] - ends[0]) / 2e-5


def measured(queries: Tensor, keys: Tensor, start: Tensor, in_batch: bool, symmetric: bool) -> tuple[float, float]:
    """The adversaries' mean cosine with the anchors, and their mean share of the softmax at 0.3, as loops."""
    similar, shares = [], []
    for anchors, others in [(queries, keys), (keys, queries)] if symmetric else [(queries, keys)]:
        for i, h in enumerate(anchors):
            own = [cosine(h, n) for n in start]
            candidates = [cosine(h, others[j]) for j in range(len(others)) if in_batch or j == i]
            weights = [sum(math.exp(x / 0.3) for x in side) for side in (own, candidates)]
            similar += own
            shares.append(weights[0] / sum(weights))
    return sum(similar) / len(similar), sum(shares) / len(shares)


def make_loss(encoder: SentenceTransformer, **options: Any) -> AdCSELoss:
    """Without a head, so that what it is given are the anchors themselves."""
    settings: dict[str, Any] = {"num_adversaries": 6, "generator": generator(5), "temperature": 0.3}
    return AdCSELoss(encoder, **settings | {"projection": False} | options)


def vectors(loss: AdCSELoss) -> Tensor:
    return loss.state_dict()["adversaries.vectors"]


def batch(step: int = 0, rows: int = 4) -> list[Tensor]:
    return [draw(rows, D, seed=step), draw(rows, D, seed=100 + step)]


@pytest.mark.parametrize(
    ("in_batch_negatives", "symmetric", "climbed"),
    [(True, False, None), (False, False, None), (False, True, 0.1), (True, True, 0.1)],
)
def test_adversaries_climb_by_momentum_sgd(encoder, in_batch_negatives, symmetric, climbed):
    """Each step is SGD up the loop at the temperature of the climb, eq. 7; the encoder's loss stays at tau."""
    form = (in_batch_negatives, symmetric)
    rate, momentum, decay = 0.3, 0.9, 0.01
    loss = make_loss(
        encoder, in_batch_negatives=in_batch_negatives, symmetric=symmetric, adversary_temperature=climbed,
        adversary_learning_rate=rate, adversary_momentum=momentum, adversary_weight_decay=decay,
    ).double()  # fmt: skip
    places = ((0, 0), (3, 7), (5, D - 1))
    velocity = dict.fromkeys(places, 0.0)
    for step in range(3):
        start = vectors(loss).clone()
        value = loss.compute_loss_from_embeddings(batch(step))
        assert value.item() == pytest.approx(equation_5(*batch(step), start, 0.3, *form), abs=1e-12)
        similarity, share = measured(*batch(step), start, *form)
        assert float(loss.instruments["adversary_similarity"]) == pytest.approx(similarity, abs=1e-12)
        assert float(loss.instruments["adversary_share"]) == pytest.approx(share, abs=1e-12)
        for m, d in places:
            gradient = slope(m, d, start, *batch(step), climbed or 0.3, *form)
            velocity[m, d] = momentum * velocity[m, d] - gradient + decay * start[m, d].item()
            expected = start[m, d].item() - rate * velocity[m, d]
            assert vectors(loss)[m, d].item() == pytest.approx(expected, rel=1e-6, abs=1e-8)
        if climbed:
            assert abs(slope(0, 0, start, *batch(step), 0.3, *form) - gradient) > 1e-4
    assert not vectors(loss).requires_grad


def test_adversaries_from_features_are_the_keys_of_the_first_batches(encoder):
    loss = make_loss(encoder, num_adversaries=7, adversary_start="features", adversary_learning_rate=0.2).double()
    expected = vectors(make_loss(encoder, num_adversaries=7).double()).tolist()
    drawn: dict[int, list[float]] = {}
    for step in range(4):
        queries, keys = batch(step, rows=3)
        with torch.no_grad():
            loss.compute_loss_from_embeddings([queries, keys])  # an evaluation draws nothing
        value = loss.compute_loss_from_embeddings([queries, keys.clone().requires_grad_()])
        assert value.item() == pytest.approx(equation_5(queries, keys, torch.tensor(expected), 0.3), abs=1e-6)
        now = vectors(loss).tolist()
        for m in range(3 * step, min(3 * step + 3, 7)):  # the last of the third batch's keys find no place
            key = keys[m - 3 * step].tolist()
            drawn[m] = [x / math.hypot(*key) for x in key]
            assert now[m] == pytest.approx(drawn[m], abs=1e-12)
            assert not loss.state_dict()["adversaries.velocity"][m].any()
        if step:
            assert now[0] != pytest.approx(expected[0], abs=1e-4), "adversaries climb as soon as they are drawn"
        expected = now
    angles = [math.degrees(math.acos(cosine(drawn[m], expected[m]))) for m in range(7)]
    assert float(loss.instruments["adversary_angle"]) == pytest.approx(sum(angles) / 7, abs=1e-6)
    assert sum(angles) > 7


def test_gradients_reach_both_views_of_a_tied_encoder(encoder):
    loss = make_loss(encoder, symmetric=True, tied=True, adversary_learning_rate=0.0).double()
    views = [view.requires_grad_() for view in batch(rows=3)]
    assert torch.autograd.gradcheck(lambda x, y: loss.compute_loss_from_embeddings([x, y]), views)


# ---- the momentum encoder


@pytest.mark.parametrize(("shared_head", "size"), [(False, None), (True, 3)])
def test_keys_come_from_the_momentum_encoder_and_teach_nothing(make_encoder, sentences, shared_head, size):
    """Eq. 4 by hand for encoder and head; with a shared head, as in the released code, the keys are g_q(f_p(x))."""
    model = make_encoder(dropout=0.0).train()
    loss = make_loss(
        model, projection=True, shared_head=shared_head, momentum=0.9, mini_batch_size=size, adversary_learning_rate=0.0
    )
    features = [model.preprocess(column) for column in columns(sentences, 2).values()]
    head = list(owned(loss, model).values())
    with torch.no_grad():  # what the model has become when training begins is what is copied
        for parameter in (*model.parameters(), *head):
            parameter.add_(0.05)
    loss(features)
    copied, own = copy.deepcopy(model), [p.detach().clone() for p in head]
    with torch.no_grad():
        for parameter in (*model.parameters(), *head):
            parameter.mul_(1.05)
        for mine, theirs in zip(copied.parameters(), model.parameters(), strict=True):
            mine.mul_(0.9).add_(0.1 * theirs)
        own = [p if shared_head else 0.9 * q + 0.1 * p for p, q in zip(head, own, strict=True)]
        keys = torch.tanh(copied(dict(features[1]))["sentence_embedding"] @ own[0].T + own[1])
    value = loss(features)
    value.backward()
    found = [p.grad.clone() for p in (*head, *model.parameters()) if p.grad is not None]
    loss.zero_grad()
    queries = torch.tanh(model(dict(features[0]))["sentence_embedding"] @ head[0].T + head[1])
    assert value.item() == pytest.approx(equation_5(queries, keys, vectors(loss), 0.3), abs=1e-5)
    with_keys = make_loss(model, adversary_learning_rate=0.0)
    with_keys.load_state_dict({"adversaries.vectors": vectors(loss)}, strict=False)
    with_keys.compute_loss_from_embeddings([queries, keys]).backward()  # keys without a graph
    expected = [p.grad for p in (*head, *model.parameters()) if p.grad is not None]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_bad_inputs(encoder):
    with pytest.raises(ValueError, match=r"^num_adversaries must"):
        make_loss(encoder, num_adversaries=0, in_batch_negatives=False)
    with pytest.raises(ValueError, match=r"^shared_head must"):
        make_loss(encoder, shared_head=True, projection=False)
