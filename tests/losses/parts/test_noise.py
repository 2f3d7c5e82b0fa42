import math
from typing import Any

import pytest
import torch

from st_extras.losses.parts.noise import NoiseNegatives
from tests.helpers import cosine, draw, generator


def make_noise(**options: Any) -> NoiseNegatives:
    settings: dict[str, Any] = {
        "noise_ratio": 1.0,
        "noise_std": 1.0,
        "noise_steps": 4,
        "noise_step_size": 1e-3,
        "noise_norm": "gaussian",
        "noise_temperature": 0.05,
    }
    return NoiseNegatives(**(settings | options))


# ---- the ascent


@pytest.mark.parametrize("unit_norm", [True, False])
def test_ascent_follows_equations_2_to_4(unit_norm):
    """With the gradient of L_U by autograd, each term a loop over the noise."""
    anchors, noise = draw(3, 6), draw(4, 6, seed=1)
    expected = noise / noise.norm(dim=1, keepdim=True) if unit_norm else noise
    norm = "unit" if unit_norm else "gaussian"
    made = make_noise(noise_steps=3, noise_step_size=0.3, noise_temperature=0.2, noise_norm=norm)
    got = made.refine(expected, [anchors[:1], anchors[1:]])
    for _ in range(3):
        moved = expected.detach().requires_grad_()
        total = sum(
            sum(torch.exp(h @ n / h.norm() / n.norm() / 0.2) for n in moved).log() for h in anchors
        ) / len(anchors)  # fmt: skip
        (gradient,) = torch.autograd.grad(total, moved)
        expected = moved.detach() + 0.3 * gradient / gradient.norm(dim=1, keepdim=True)
        if unit_norm:
            expected = expected / expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_noise_without_a_gradient_stays():
    anchors = torch.tensor([[1.0, 0.0]])
    noise = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.5, 0.5]])
    moved = make_noise(noise_steps=3, noise_step_size=0.1).refine(noise, [anchors])
    assert torch.equal(moved[:2], noise[:2])
    assert not torch.equal(moved[2], noise[2])


# ---- the draws


@pytest.mark.parametrize(("ratio", "rows", "count"), [(1, 5, 5), (1.4, 5, 7), (0.5, 3, 2), (0.1, 4, 0), (0, 9, 0)])
def test_count(ratio, rows, count):
    noise = make_noise(noise_ratio=ratio)([draw(rows, 8)])
    assert noise.shape == (count, 8)
    assert noise.dtype == torch.float64


def test_the_draws_are_gaussian_of_the_given_deviation():
    got = make_noise(noise_std=0.7, noise_steps=0, generator=generator(4))([draw(5, 8)])
    expected = 0.7 * torch.randn(5, 8, generator=generator(4), dtype=torch.float64)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_noise_for_half_precision_is_in_float32(dtype):
    anchors = draw(5, 8).to(dtype)
    assert make_noise()([anchors]).dtype == torch.float32
    assert make_noise(noise_ratio=0)([anchors]).dtype == torch.float32


# ---- the angle


def test_the_angle_is_the_mean_over_the_vectors():
    noise, anchors = make_noise(noise_step_size=0.5, generator=generator(4)), draw(5, 8)
    moved = noise([anchors])
    drawn = torch.randn(5, 8, generator=generator(4), dtype=torch.float64)
    expected = [math.degrees(math.acos(cosine(a, b))) for a, b in zip(drawn, moved, strict=True)]
    assert float(noise.angle) == pytest.approx(sum(expected) / 5, abs=1e-9)


# ---- settings


def test_a_deviation_that_the_unit_norm_would_ignore_is_refused():
    with pytest.raises(ValueError, match=r"noise_std must be 1 .* 0\.7"):
        make_noise(noise_norm="unit", noise_std=0.7)
