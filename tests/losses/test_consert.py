import math

import pytest
import torch
from torch import Tensor

from st_extras.losses import ConSERTLoss
from tests.helpers import cosine, draw


def nt_xent(first: Tensor, second: Tensor, temperature: float, include_positive: bool) -> float:
    everything, count, total = [*first.tolist(), *second.tolist()], len(first), 0.0
    for i, anchor in enumerate(everything):
        positive = (i + count) % (2 * count)
        denominator = 0.0
        for k, other in enumerate(everything):
            if k == i or (k == positive and not include_positive):
                continue
            denominator += math.exp(cosine(anchor, other) / temperature)
        total -= cosine(anchor, everything[positive]) / temperature - math.log(denominator)
    return total / (2 * count)


@pytest.mark.parametrize("include_positive", [True, False])
def test_equation_as_a_loop(encoder, include_positive):
    views = [draw(4, 4, seed=seed) for seed in range(2)]
    loss = ConSERTLoss(encoder, temperature=0.5, include_positive=include_positive).compute_loss_from_embeddings
    expected = nt_xent(*views, 0.5, include_positive)
    assert loss(views).item() == pytest.approx(expected, abs=1e-12)
    assert abs(expected - nt_xent(*views, 0.5, not include_positive)) > 1e-3
    assert torch.autograd.gradcheck(lambda a, b: loss([a, b]), [view.requires_grad_() for view in views])
