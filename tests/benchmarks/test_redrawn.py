from __future__ import annotations

import math

import pytest
import torch

from benchmarks.redrawn import RedrawnAdversariesLoss
from tests.conftest import SENTENCES, build_encoder


@pytest.mark.parametrize("every", [1, 2])
def test_the_oldest_give_way_to_the_keys_of_the_batch(tmp_path, every):
    """Five adversaries, three sentences a batch, nothing learned: each is a key of the batch that it was drawn in."""
    model = build_encoder(tmp_path / "encoder", dropout=0.0)
    loss = RedrawnAdversariesLoss(model, every=every, num_adversaries=5, projection=False)
    start = loss.adcse.adversaries.vectors.tolist()
    expected = list(start)
    oldest = filled = 0
    for step in range(1, 5):
        texts = SENTENCES[step : step + 3]
        keys = [[x / math.hypot(*key) for x in key] for key in model.encode(texts).astype(float).tolist()]
        with torch.no_grad():
            loss([model.preprocess(texts)])
        before = loss.adcse.adversaries.vectors.tolist()
        assert all(row == pytest.approx(want, abs=1e-4) for row, want in zip(before, expected, strict=True))
        value = loss([model.preprocess(texts)])
        shares = [
            sum(math.exp(sum(a * b for a, b in zip(query, row, strict=True)) / math.hypot(*row) / 0.05) for row in rows)
            for query in keys
            for rows in (keys, before)
        ]
        own = math.exp(1 / 0.05)
        total = [math.log((a + b) / own) for a, b in zip(shares[::2], shares[1::2], strict=True)]
        assert value.item() == pytest.approx(sum(total) / 3, rel=1e-3)
        for key in keys[: 5 - filled]:  # the first batches fill the places, as in AdCSE
            expected[filled] = key
            filled += 1
        if step % every == 0:
            for key in keys:
                expected[oldest] = key
                oldest = (oldest + 1) % 5
    now = loss.adcse.adversaries.vectors.tolist()
    assert all(row == pytest.approx(want, abs=1e-4) for row, want in zip(now, expected, strict=True))
    assert not any(row == pytest.approx(want, abs=1e-2) for row, want in zip(now, start, strict=True))
    assert loss.adcse.instruments["adversary_angle"] < 0.1
