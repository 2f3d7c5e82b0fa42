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

from st_extras.functional import cosine_scores
from st_extras.losses import AdCSELoss
from tests.helpers import columns, cosine, draw, generator
from tests.losses.cases import owned

D = 16


def equation_5(queries: Tensor, keys: Tensor, adversaries: Tensor, tau: float, in_batch: bool = True) -> Tensor:
    """Anchor by anchor; torch's gradient of it is the one to be had."""
    terms = []
    for i, anchor in enumerate(queries):
        negatives = [*adversaries, *(key for j, key in enumerate(keys) if in_batch and j != i)]
        positive, *rest = (torch.cosine_similarity(anchor, x, dim=0) / tau for x in (keys[i], *negatives))
        terms.append(-torch.log(positive.exp() / (positive.exp() + sum(x.exp() for x in rest))))
    return torch.stack(terms).mean()


def make_loss(encoder: SentenceTransformer, **options: Any) -> AdCSELoss:
    """Without a head, so that what it is given are the anchors themselves."""
    settings: dict[str, Any] = {"num_adversaries": 6, "generator": generator(5), "temperature": 0.3}
    return AdCSELoss(encoder, **settings | {"projection": False} | options)


def vectors(loss: AdCSELoss) -> Tensor:
    return loss.state_dict()["adversaries.vectors"]


def batch(step: int = 0, rows: int = 4) -> list[Tensor]:
    return [draw(rows, D, seed=step), draw(rows, D, seed=100 + step)]


@pytest.mark.parametrize("in_batch_negatives", [True, False])
def test_adversaries_climb_by_momentum_sgd(encoder, in_batch_negatives):
    """Each step is SGD up the loop, eq. 7."""
    rate, momentum, decay = 0.3, 0.9, 0.01
    loss = make_loss(encoder, in_batch_negatives=in_batch_negatives, adversary_learning_rate=rate).double()
    assert (loss.adversaries.momentum, loss.adversaries.weight_decay) == (momentum, 1e-4)
    loss.adversaries.weight_decay = decay  # which shows
    velocity = torch.zeros_like(vectors(loss))
    for step in range(3):
        start, (queries, keys) = vectors(loss).clone().requires_grad_(), batch(step)
        value = loss.compute_loss_from_embeddings([queries, keys])
        torch.testing.assert_close(value, equation_5(queries, keys, start, 0.3, in_batch_negatives))
        (gradient,) = torch.autograd.grad(equation_5(queries, keys, start, 0.3, in_batch_negatives), start)
        velocity = momentum * velocity - gradient + decay * start.detach()
        torch.testing.assert_close(vectors(loss), start.detach() - rate * velocity)
    assert not vectors(loss).requires_grad
    if in_batch_negatives:
        scores = torch.cat([cosine_scores(queries, keys), cosine_scores(queries, start)], dim=1).detach()
        assert float(loss.instruments["adversary_similarity"]) == pytest.approx(float(scores[:, 4:].mean()))
        share = (scores / 0.3).softmax(dim=1)[:, 4:].sum(dim=1).mean()
        assert float(loss.instruments["adversary_share"]) == pytest.approx(float(share))


def test_adversaries_from_features_are_the_keys_of_the_first_batches(encoder):
    loss = make_loss(encoder, num_adversaries=7, adversary_start="features", adversary_learning_rate=0.2).double()
    expected, drawn = vectors(loss).clone(), []
    for step in range(4):
        queries, keys = batch(step, rows=3)
        with torch.no_grad():
            loss.compute_loss_from_embeddings([queries, keys])  # an evaluation draws nothing
        value = loss.compute_loss_from_embeddings([queries, keys])
        torch.testing.assert_close(value, equation_5(queries, keys, expected, 0.3))
        new = slice(3 * step, min(3 * step + 3, 7))  # the last of the third batch's keys find no place
        drawn += [key / key.norm() for key in keys][: max(0, new.stop - new.start)]
        for m in range(7)[new]:
            torch.testing.assert_close(vectors(loss)[m], drawn[m])
            assert not loss.state_dict()["adversaries.velocity"][m].any()
        if step:
            assert not torch.allclose(vectors(loss)[0], expected[0]), "adversaries climb as soon as they are drawn"
        expected = vectors(loss).clone()
    angles = [math.degrees(math.acos(cosine(x, y))) for x, y in zip(drawn, expected, strict=True)]
    assert float(loss.instruments["adversary_angle"]) == pytest.approx(sum(angles) / 7, abs=1e-6)
    assert sum(angles) > 7


def test_gradients_reach_both_views_of_a_tied_encoder(encoder):
    loss = make_loss(encoder, tied=True, adversary_learning_rate=0.0).double()
    views = [view.requires_grad_() for view in batch(rows=3)]
    assert torch.autograd.gradcheck(lambda x, y: loss.compute_loss_from_embeddings([x, y]), views)


# ---- the momentum encoder


@pytest.mark.parametrize("size", [None, 3])
def test_keys_come_from_the_momentum_encoder_and_teach_nothing(make_encoder, sentences, size):
    """Eq. 4 by hand for encoder and head."""
    model = make_encoder(dropout=0.0).train()
    loss = make_loss(model, projection=True, momentum=0.9, mini_batch_size=size, adversary_learning_rate=0.0)
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
        own = [0.9 * q + 0.1 * p for p, q in zip(head, own, strict=True)]
        keys = torch.tanh(copied(dict(features[1]))["sentence_embedding"] @ own[0].T + own[1])
    values, gradients = [], []
    queries = torch.tanh(model(dict(features[0]))["sentence_embedding"] @ head[0].T + head[1])
    for value in (loss(features), equation_5(queries, keys, vectors(loss), 0.3)):
        loss.zero_grad()
        value.backward()
        values.append(value)
        gradients.append([p.grad.clone() for p in (*head, *model.parameters()) if p.grad is not None])
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)


def test_the_trained_encoder_sees_the_sentences_once(encoder, sentences):
    """A loss around it is told so; tied, it sees both columns."""
    features = [encoder.preprocess(column) for column in columns(sentences, 2).values()]
    rows, count = make_loss(encoder).views(features)
    assert count == 1
    assert torch.equal(rows["input_ids"], features[0]["input_ids"])
    assert make_loss(encoder, tied=True).views(features)[1] == 2


def test_bad_inputs(encoder):
    with pytest.raises(ValueError, match=r"^num_adversaries must"):
        make_loss(encoder, num_adversaries=0, in_batch_negatives=False)
