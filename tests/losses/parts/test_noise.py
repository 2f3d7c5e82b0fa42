"""Noise negatives alone; their ascent and their angle: tests/losses/test_dclr.py."""

from typing import Any

import pytest
import torch

from st_extras.losses.parts.noise import NoiseNegatives
from tests.helpers import draw


def make_noise(**options: Any) -> NoiseNegatives:
    settings: dict[str, Any] = {"noise_ratio": 1.0, "noise_std": 1.0, "noise_steps": 4, "noise_step_size": 1e-3}
    return NoiseNegatives(**settings | {"noise_norm": "gaussian", "noise_temperature": 0.05} | options)


def test_noise_without_a_gradient_stays():
    anchors = torch.tensor([[1.0, 0.0]])
    noise = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.5, 0.5]])
    moved = make_noise(noise_steps=3, noise_step_size=0.1).refine(noise, [anchors])
    assert torch.equal(moved[:2], noise[:2])
    assert not torch.equal(moved[2], noise[2])


@pytest.mark.parametrize(("ratio", "rows", "count"), [(1.4, 5, 7), (0.5, 3, 2), (0.1, 4, 0), (0, 9, 0)])
def test_number_and_precision(ratio, rows, count):
    for given, kept in ((torch.float64, torch.float64), (torch.bfloat16, torch.float32)):
        noise = make_noise(noise_ratio=ratio)([draw(rows, 8).to(given)])
        assert (noise.shape, noise.dtype) == ((count, 8), kept)


def test_a_deviation_that_the_unit_norm_would_ignore_is_refused():
    with pytest.raises(ValueError, match=r"^noise_std must be 1 .* 0\.7"):
        make_noise(noise_norm="unit", noise_std=0.7)
