import math
from typing import Any

import pytest
import torch
from torch import Tensor

from st_extras.functional import anchor_pull, cosine_scores
from st_extras.losses.parts.adversaries import Adversaries, Climb
from tests.helpers import cosine, draw


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
def test_the_climb_sees_shares_of_its_own_temperature(in_batch_negatives):
    """The share that is reported is the loss's, the pull is that of a softmax at half its temperature."""
    queries, keys, vectors = draw(4, 5), draw(4, 5, seed=1), draw(3, 5, seed=2)
    logits = cosine_scores(queries, torch.cat([keys, vectors]), 0.5)
    if not in_batch_negatives:
        others = torch.ones_like(logits, dtype=torch.bool)
        others[:, 4:] = False
        logits = logits.masked_fill(others.fill_diagonal_(False), -torch.inf)
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
