import math

import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from st_extras.functional import (
    anchor_pull,
    cosine_ascent_direction,
    cosine_scores,
    finite_rows,
    mean_angle,
    reverse_gradient,
    weighted_info_nce,
)
from tests.helpers import draw


def info_nce_loop(scores: Tensor, weights: Tensor | None, include_positive: bool, offset: int = 0) -> float:
    total = 0.0
    for i in range(scores.size(0)):
        p = i + offset
        denominator = math.exp(scores[i, p]) if include_positive else 0.0
        for k in range(scores.size(1)):
            if k != p:
                denominator += (1.0 if weights is None else float(weights[i, k])) * math.exp(scores[i, k])
        total += 0.0 if denominator == 0 else math.log(denominator) - float(scores[i, p])
    return total / scores.size(0)


def test_finite_rows_are_found_without_a_copy():
    x = draw(4000, 64)
    x[0, 3], x[7, 0], x[9, 63], x[11, 1] = math.nan, math.inf, -math.inf, torch.finfo(x.dtype).max
    with profile(profile_memory=True) as seen:
        found = finite_rows(x)
    assert (~found).nonzero().flatten().tolist() == [0, 7, 9]
    assert max(event.self_cpu_memory_usage for event in seen.events()) < x.nbytes / 10
    assert finite_rows(x[:0]).tolist() == []


@pytest.mark.parametrize("include_positive", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("offset", [0, 3])
def test_weighted_info_nce_is_the_loop(include_positive, weighted, offset):
    scores = draw(4, 9) * 3
    weights = (draw(4, 9, seed=1) > 0).double() * draw(4, 9, seed=2).abs() if weighted else None
    if weights is not None:
        assert (weights == 0).any()
        weights[0] = 0  # one row without negatives
    got = weighted_info_nce(scores, weights, include_positive=include_positive, offset=offset)
    assert got.item() == pytest.approx(info_nce_loop(scores, weights, include_positive, offset), abs=1e-12)


def test_weighted_info_nce_gradients():
    scores = draw(3, 5).requires_grad_()
    weights = torch.ones(3, 5, dtype=torch.float64)
    weights[0, 2] = 0
    assert torch.autograd.gradcheck(lambda s: weighted_info_nce(s, weights, include_positive=False), scores)
    nothing_left = torch.zeros(3, 5, dtype=torch.float64)
    loss = weighted_info_nce(scores, nothing_left, include_positive=False)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(scores.grad, torch.zeros_like(scores))


def test_cosine_scores_stay_in_float32_under_autocast():
    a, b = draw(3, 8).float(), draw(5, 8, seed=1).float()
    expected = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=-1) / 0.05
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = cosine_scores(3 * a, b, 0.05)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected)
    assert cosine_scores(a.bfloat16(), b.bfloat16()).dtype == torch.float32


def test_ascent_direction_is_autograds():
    anchors, points = draw(6, 8), draw(4, 8, seed=1).requires_grad_()
    temperature = 0.3
    loss = cosine_scores(anchors, points, temperature).logsumexp(dim=1).mean()
    (expected,) = torch.autograd.grad(loss, points)
    probabilities = cosine_scores(anchors, points.detach(), temperature).softmax(dim=1)
    got = cosine_ascent_direction(points.detach(), anchor_pull(anchors, probabilities)) / (len(anchors) * temperature)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


def test_ascent_direction_of_a_zero_point_is_zero():
    points = torch.zeros(2, 4)
    points[1] = 1
    got = cosine_ascent_direction(points, anchor_pull(draw(3, 4).float(), torch.ones(3, 2)))
    assert torch.isfinite(got).all()
    assert got[0].abs().sum() == 0
    assert got[1].abs().sum() > 0


def test_mean_angle_by_hand():
    start = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    end = torch.tensor([[0.0, 5.0], [0.0, 1.0], [-1.0, 0.0]])
    assert mean_angle(start, end).item() == pytest.approx((90 + 0 + 180) / 3)
    turned = torch.tensor([[math.cos(1e-5), math.sin(1e-5)]])
    assert mean_angle(start[:1], turned).item() == pytest.approx(math.degrees(1e-5), rel=1e-3)  # arccos would give 0


def test_reversed_gradient_is_exactly_the_negative():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, dtype=torch.float64)
    assert torch.equal(reverse_gradient(x), x)
    (plain,) = torch.autograd.grad((x * weights).sin().sum(), x)
    (reversed_one,) = torch.autograd.grad((reverse_gradient(x) * weights).sin().sum(), x)
    assert torch.equal(reversed_one, -plain)
