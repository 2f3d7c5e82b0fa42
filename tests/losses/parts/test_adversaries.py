from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from st_extras.functional import anchor_pull
from st_extras.losses.parts.adversaries import Adversaries, Climb
from tests.helpers import cosine, draw
from tests.losses.equations import adversarial_info_nce


def adversaries(vectors: Tensor, **options: Any) -> Adversaries:
    settings: dict[str, Any] = {
        "start": "random",
        "learning_rate": 0.3,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "temperature": 0.3,
        "climbed_temperature": None,
        "generator": None,
    }
    made = Adversaries(*vectors.shape, torch.device("cpu"), **(settings | options)).double()
    made.vectors.copy_(vectors)
    return made


@pytest.mark.parametrize("in_batch_negatives", [True, False])
def test_the_climb_sees_shares_of_its_own_temperature(in_batch_negatives: bool) -> None:
    """The share that is reported is the loss's, the pull is that of a softmax at half its temperature."""
    queries, keys, vectors = draw(4, 5), draw(4, 5, seed=1), draw(3, 5, seed=2)
    options = {"temperature": 0.5, "in_batch_negatives": in_batch_negatives}
    _, logits = adversarial_info_nce(queries, keys, vectors, **options)  # type: ignore[arg-type]
    moved = adversaries(vectors, temperature=0.5, climbed_temperature=0.25)
    climb = Climb(moved)
    for rows in (slice(0, 1), slice(1, 4)):
        climb.add(queries[rows].requires_grad_(), logits[rows])
    taken = {0.5: torch.zeros(4, 3, dtype=torch.float64), 0.25: torch.zeros(4, 3, dtype=torch.float64)}
    for temperature, shares in taken.items():
        for i in range(4):
            others = [keys[j] for j in range(4) if in_batch_negatives or j == i]
            denominator = sum(math.exp(cosine(queries[i], other) / temperature) for other in (*others, *vectors))
            for m in range(3):
                shares[i, m] = math.exp(cosine(queries[i], vectors[m]) / temperature) / denominator
    torch.testing.assert_close(climb.pull, anchor_pull(queries, taken[0.25]))
    assert (taken[0.5] - taken[0.25]).abs().max() > 0.01
    assert moved.instruments["adversary_share"].isnan()
    moved.climb(climb, keys)
    found = {name: value.item() for name, value in moved.instruments.items()}
    assert found["adversary_share"] == pytest.approx(taken[0.5].sum(dim=1).mean().item(), abs=1e-12)
    mean = sum(cosine(h, n) for h in queries for n in vectors) / 12
    assert found["adversary_similarity"] == pytest.approx(mean, abs=1e-12)
    assert found["adversary_angle"] > 1


@pytest.mark.parametrize("in_batch_negatives", [True, False])
@pytest.mark.parametrize("climbed", [None, 0.1])
def test_the_climb_is_torchs_sgd_that_maximises(in_batch_negatives: bool, climbed: float | None) -> None:
    start = draw(6, 8, seed=2)
    moved, reference = adversaries(start, climbed_temperature=climbed), start.clone().requires_grad_()
    optimizer = torch.optim.SGD([reference], lr=0.3, momentum=0.9, weight_decay=0.01, maximize=True)
    place = moved.vectors.data_ptr()
    for step in range(4):
        queries, keys = draw(5, 8, seed=10 + step), draw(5, 8, seed=20 + step)
        _, logits = adversarial_info_nce(
            queries, keys, moved.vectors, temperature=0.3, in_batch_negatives=in_batch_negatives
        )
        climb = Climb(moved)
        climb.add(queries[:2].requires_grad_(), logits[:2])
        climb.add(queries[2:], logits[2:])
        moved.climb(climb, keys)
        optimizer.zero_grad()
        value, _ = adversarial_info_nce(
            queries, keys, reference, temperature=climbed or 0.3, in_batch_negatives=in_batch_negatives
        )
        value.backward()
        optimizer.step()
        torch.testing.assert_close(moved.vectors, reference.detach(), rtol=0, atol=1e-12)
    assert (moved.vectors - start).abs().max() > 0.01
    assert moved.vectors.data_ptr() == place
    assert not moved.vectors.requires_grad
