from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from st_extras.losses.parts import similarity_threshold as module
from st_extras.losses.parts.similarity_threshold import SimilarityThreshold, share_quantile
from tests.helpers import differing, draw, snapshot


def quantile(cosines: Tensor, share: float) -> float:
    """The cosine that a share of the pairs i != j reach, between the two pairs next to it, as a plain loop."""
    pairs = sorted(float(cosines[i][j]) for i in range(len(cosines)) for j in range(len(cosines)) if i != j)
    place = (1 - share) * (len(pairs) - 1)
    below = pairs[math.floor(place)]
    return below + (place - math.floor(place)) * (pairs[math.ceil(place)] - below)


def batch(size: int, seed: int) -> Tensor:
    return torch.tanh(draw(size, size, seed=seed))


@pytest.mark.parametrize("share", [0.02, 0.14, 0.5, 0.97])
def test_the_quantile_of_a_batch_is_the_loops(share: float) -> None:
    cosines = batch(7, seed=1)
    found = share_quantile(cosines, torch.arange(7), share)
    assert found.item() == pytest.approx(quantile(cosines, share), abs=1e-12)
    reached = sum(float(cosines[i][j]) >= found for i in range(7) for j in range(7) if i != j)
    assert abs(reached - 42 * share) <= 1


def test_the_own_candidate_may_stand_anywhere() -> None:
    cosines, order = batch(7, seed=1), torch.tensor([3, 1, 6, 0, 2, 5, 4])
    moved = cosines[:, order]
    torch.testing.assert_close(
        share_quantile(moved, order.argsort(), 0.3), share_quantile(cosines, torch.arange(7), 0.3)
    )
    some = share_quantile(cosines[2:4], torch.tensor([2, 3]), 0.3)
    others = [float(cosines[i][j]) for i in (2, 3) for j in range(7) if i != j]
    assert some.item() == pytest.approx(torch.tensor(others, dtype=torch.float64).quantile(0.7).item(), abs=1e-12)


def test_phi_is_the_mean_over_the_training_batches_so_far() -> None:
    threshold = SimilarityThreshold(None, 0.3).double()
    assert threshold.value.isnan()
    seen = []
    for step, size in enumerate((8, 5, 3, 12)):
        seen.append(quantile(batch(size, step), 0.3))
        phi = threshold(batch(size, step))
        assert phi.item() == pytest.approx(sum(seen) / len(seen), abs=2e-6)  # less the allowance for rounding
        assert threshold.value.item() == pytest.approx(sum(seen) / len(seen), abs=1e-12)
        assert phi < threshold.value
    assert len({round(value, 3) for value in seen}) == 4


def test_a_share_is_met_on_new_batches() -> None:
    """Sentences of 40 kinds, so that their cosines have a heavy tail."""
    kinds = draw(40, 32).repeat_interleave(100, dim=0)
    points = torch.nn.functional.normalize(kinds + draw(4000, 32, seed=1), dim=1)
    order = torch.randperm(4000, generator=torch.Generator().manual_seed(2))
    for size, share in ((16, 0.14), (64, 0.02), (64, 0.14), (64, 0.3)):
        threshold = SimilarityThreshold(None, share)
        for rows in order[:2048].split(size):
            threshold(points[rows] @ points[rows].T)
        rest = points[order[2048:]] @ points[order[2048:]].T
        masked = (rest.fill_diagonal_(-1) >= threshold.value).float().mean()
        assert masked.item() == pytest.approx(share, rel=0.15)


def test_a_given_threshold_stays_what_it_is() -> None:
    for given, expected in ((None, 0.9), (0.4, 0.4), (1, 1.0)):
        threshold = SimilarityThreshold(given, None)
        assert threshold(batch(4, seed=0)) == threshold.value == expected
        assert threshold.config == {"threshold": expected, "masked_share": None}
        assert not threshold.state_dict()
    assert SimilarityThreshold(None, 0.14).config == {"threshold": None, "masked_share": 0.14}


def test_without_gradients_nothing_moves() -> None:
    threshold = SimilarityThreshold(None, 0.3).double()
    with torch.no_grad():
        assert threshold(batch(6, seed=1)).item() == pytest.approx(quantile(batch(6, seed=1), 0.3), abs=2e-6)
    assert threshold.value.isnan()
    phi = threshold(batch(6, seed=2))
    before = snapshot(threshold)
    with torch.no_grad():
        assert threshold(batch(6, seed=1)) == phi
    assert threshold(batch(6, seed=1), first=False) == phi
    assert not differing(before, snapshot(threshold))
    threshold(batch(6, seed=1))
    assert differing(before, snapshot(threshold)) == {"mean", "batches"}


@pytest.mark.parametrize("size", [1, 2])
def test_batches_of_fewer_than_three_do_not_count(size: int) -> None:
    threshold = SimilarityThreshold(None, 0.3).double()
    assert threshold(torch.ones(size, size)) == torch.inf  # nothing is masked
    assert threshold.value.isnan()
    phi = threshold(batch(6, seed=1))
    assert threshold(torch.ones(size, size)) == phi


@pytest.mark.parametrize("seed", range(5))
def test_sentences_that_are_all_alike_are_all_masked(seed: int) -> None:
    """Rounding must not decide which of them are negatives."""
    threshold = SimilarityThreshold(None, 0.14)
    for step in range(3):
        cosines = (1 + 1e-7 * draw(16, 16, seed=10 * seed + step)).float()
        assert (cosines >= threshold(cosines)).all()
    assert threshold(torch.zeros(4, 4)).isfinite()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_does_not_count(value: float) -> None:
    threshold = SimilarityThreshold(None, 0.3)
    phi = threshold(batch(6, seed=1).float())
    assert threshold(torch.full((6, 6), value)) == phi
    assert threshold.batches == 1


def test_gathered_processes_take_the_pairs_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cosines = batch(9, seed=1)
    expected = SimilarityThreshold(None, 0.3)(cosines)
    for first in (0, 3, 6):
        monkeypatch.setattr(module, "gather_rows", lambda x, across: (cosines if across else x, 0))
        monkeypatch.setattr(module, "get_world_size", lambda: 3)
        together = SimilarityThreshold(None, 0.3, gather_across_devices=True)
        assert together(cosines[first : first + 3]) == expected


def test_other_processes_have_one_phi(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the mean of theirs: a checkpoint keeps the state of one of them."""
    monkeypatch.setattr(module, "get_world_size", lambda: 2)
    monkeypatch.setattr(module, "sum_over_processes", lambda x: x.add_(quantile(batch(6, seed=2), 0.3)))
    threshold = SimilarityThreshold(None, 0.3).double()
    threshold(batch(6, seed=1))
    mean = (quantile(batch(6, seed=1), 0.3) + quantile(batch(6, seed=2), 0.3)) / 2
    assert threshold.value.item() == pytest.approx(mean, abs=1e-12)


def test_of_a_very_large_batch_the_first_rows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    threshold = SimilarityThreshold(None, 0.3)
    assert threshold.most_rows(4096) == 4096
    assert threshold.most_rows(2**30) == 1
    cosines = batch(10, seed=1)
    monkeypatch.setattr(module, "_MOST_PAIRS", 40)
    threshold(cosines)
    expected = share_quantile(cosines[:4], torch.arange(4), 0.3)
    assert threshold.value.item() == pytest.approx(expected.item(), abs=1e-6)


def test_in_half_precision_phi_is_still_a_mean() -> None:
    threshold = SimilarityThreshold(None, 0.3).half()
    for step in range(300):
        threshold(batch(8, seed=step % 7).float())
    expected = sum(quantile(batch(8, seed=step % 7), 0.3) for step in range(300)) / 300
    assert threshold.batches == 300
    assert threshold.value.item() == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, "0.1", True, math.nan])
def test_bad_shares(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^masked_share must be between 0 and 1, both excluded, got .*\.$"):
        SimilarityThreshold(None, value)


def test_one_of_the_two() -> None:
    with pytest.raises(ValueError, match=r"^threshold and masked_share .*, got threshold=0.9 and masked_share=0.14\.$"):
        SimilarityThreshold(0.9, 0.14)
