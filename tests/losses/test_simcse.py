import math

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_extras.losses import DCLRLoss, SimCSELoss
from tests.helpers import columns, cosine, draw
from tests.losses.cases import owned


def loop(a: Tensor, b: Tensor, temperature: float, include_positive: bool = True) -> float:
    total = 0.0
    for i in range(len(a)):
        exponentials = [math.exp(cosine(a[i], b[j]) / temperature) for j in range(len(b))]
        total -= math.log(exponentials[i] / sum(x for j, x in enumerate(exponentials) if include_positive or j != i))
    return total / len(a)


@pytest.mark.parametrize("include_positive", [True, False])
def test_equation_behind_a_tanh_head(encoder, include_positive):
    module = SimCSELoss(encoder, temperature=0.2, include_positive=include_positive, projection=True).double()
    loss, (weight, bias) = module.compute_loss_from_embeddings, owned(module, encoder).values()
    a, b = draw(5, 16, seed=0), draw(5, 16, seed=1)
    heads = [torch.tanh(x @ weight.T + bias) for x in (a, b)]
    expected = loop(*heads, 0.2, include_positive)
    assert loss([a, b]).item() == pytest.approx(expected, abs=1e-12)
    assert abs(expected - loop(*heads[::-1], 0.2, include_positive)) > 1e-3
    assert abs(expected - loop(*heads, 0.2, not include_positive)) > 1e-3
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


@pytest.mark.parametrize("size", [None, 3])
def test_without_the_positive_it_is_dclr_without_guide_and_noise(make_encoder, sentences, size):
    """To the last bit, on ConSERT's views: the recommended loss."""
    found = []
    for kind, options in ((SimCSELoss, {"include_positive": False}), (DCLRLoss, {"noise_ratio": 0})):
        encoder = make_encoder().train()
        loss = kind(encoder, augmentations=("feature_cutoff", "shuffle"), mini_batch_size=size, **options)
        torch.manual_seed(0)
        value = loss([encoder.preprocess(sentences)])
        value.backward()
        found.append([value.detach(), *(p.grad for p in encoder.parameters() if p.grad is not None)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_three_columns_are_refused(encoder):
    with pytest.raises(ValueError, match=r"one column .* got 3"):
        SimCSELoss(encoder)([encoder.preprocess(["a cat"])] * 3)
