import math

import pytest
import torch
from torch import Tensor

from st_extras.losses import ConSERTLoss
from tests.helpers import cosine, draw


def pair(rows: int = 5) -> list[Tensor]:
    return [draw(rows, 4, seed=seed) for seed in range(2)]


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
    views = pair()
    loss = ConSERTLoss(encoder, temperature=0.5, include_positive=include_positive).compute_loss_from_embeddings
    expected = nt_xent(*views, 0.5, include_positive)
    assert loss(views).item() == pytest.approx(expected, abs=1e-12)
    assert abs(expected - nt_xent(*views, 0.5, not include_positive)) > 1e-3
    order = torch.tensor([3, 0, 4, 1, 2])
    for other in ([view[order] for view in views], [7 * views[0], 0.2 * views[1]], views[::-1]):
        torch.testing.assert_close(loss(other), loss(views))
    small = [view.requires_grad_() for view in pair(rows=3)]
    assert torch.autograd.gradcheck(lambda a, b: loss([a, b]), small)
