import math

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_extras.losses import SimCSELoss
from tests.helpers import columns, cosine, draw
from tests.losses.cases import owned


def loop(a: Tensor, b: Tensor, temperature: float) -> float:
    total = 0.0
    for i in range(len(a)):
        exponentials = [math.exp(cosine(a[i], b[j]) / temperature) for j in range(len(b))]
        total -= math.log(exponentials[i] / sum(exponentials))
    return total / len(a)


def test_equation(encoder):
    a, b = draw(5, 8, seed=0), draw(5, 8, seed=1)
    loss = SimCSELoss(encoder, temperature=0.2).compute_loss_from_embeddings
    assert loss([a, b]).item() == pytest.approx(loop(a, b, 0.2), abs=1e-12)
    assert abs(loop(a, b, 0.2) - loop(b, a, 0.2)) > 1e-3
    assert torch.autograd.gradcheck(lambda x, y: loss([x, y]), (a.requires_grad_(), b.requires_grad_()))


def test_it_is_multiple_negatives_ranking(still_encoder, sentences):
    features = [still_encoder.train().preprocess(column) for column in columns(sentences, 2).values()]
    found = []
    for loss in (SimCSELoss(still_encoder), MultipleNegativesRankingLoss(still_encoder, scale=20)):
        value = loss([dict(column) for column in features], None)
        value.backward()
        found.append([value.detach(), *(p.grad.clone() for p in still_encoder.parameters() if p.grad is not None)])
        still_encoder.zero_grad()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_head_is_a_tanh_layer_on_both_views(encoder):
    loss = SimCSELoss(encoder, projection=True)
    a, b = draw(4, 16, seed=0).float(), draw(4, 16, seed=1).float()
    weight, bias = owned(loss, encoder).values()
    heads = [torch.tanh(x @ weight.T + bias) for x in (a, b)]
    expected = SimCSELoss(encoder).compute_loss_from_embeddings(heads)
    torch.testing.assert_close(loss.compute_loss_from_embeddings([a, b]), expected)


def test_three_columns(encoder):
    with pytest.raises(ValueError, match=r"one column .* got 3"):
        SimCSELoss(encoder)([encoder.preprocess(["a cat"])] * 3)
