"""Each label-free signal against a loop written out."""

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

from benchmarks.signals import (
    agreement_margin,
    discriminability,
    graded_agreement,
    hub_freeness,
    lexical_agreement,
    neighbor_stability,
    recovery,
    structure_agreement,
)
from st_extras.evaluation.geometry import nearest
from st_extras.modules.lambda_search import rank_correlation
from tests.evaluation.test_sts import spearman
from tests.helpers import cosine, draw


def test_margin_and_recovery_equal_the_loops():
    z, p = draw(6, 3, seed=1), draw(6, 3, seed=1) + 2 * draw(6, 3, seed=2)
    margins, ranks = [], []
    for i in range(6):
        own = cosine(p[i], z[i])
        others = [cosine(p[i], z[j]) for j in range(6) if j != i]
        margins.append(own - max(others))
        ranks.append(1 / (1 + sum(other >= own for other in others)))
    assert min(margins) < 0 < max(margins)
    assert agreement_margin(z, p) == pytest.approx(sum(margins) / 6)
    assert recovery(z, p) == pytest.approx(sum(ranks) / 6)
    assert recovery(torch.ones(4, 3), torch.ones(4, 3)) == pytest.approx(1 / 4)  # ties count against it


def test_discriminability_equals_the_loop():
    z, p = draw(6, 3, seed=3), draw(6, 3, seed=3) + 0.3 * draw(6, 3, seed=4)
    own = [cosine(p[i], z[i]) for i in range(6)]
    rest = [cosine(p[i], z[j]) for i in range(6) for j in range(6) if i != j]
    mean = sum(rest) / 30
    spread = math.sqrt(sum((c - mean) ** 2 for c in rest) / 30)
    assert discriminability(z, p) == pytest.approx((sum(own) / 6 - mean) / spread)
    assert discriminability(torch.ones(4, 3), torch.ones(4, 3)) == 0.0


def test_rank_signals_equal_the_loops():
    z, p = draw(6, 3, seed=5), draw(6, 3, seed=5) + 0.5 * draw(6, 3, seed=6)
    first = [cosine(z[i], z[j]) for i, j in combinations(range(6), 2)]
    second = [cosine(p[i], p[j]) for i, j in combinations(range(6), 2)]
    assert structure_agreement(z, p) == pytest.approx(spearman(first, second))
    kept = torch.tensor([0.1, 0.9, 0.3, 0.3, 0.7, 0.5])
    expected = spearman([cosine(z[i], p[i]) for i in range(6)], kept.tolist())
    assert graded_agreement(z, p, kept) == pytest.approx(expected)
    pairs = torch.tensor([[0, 1], [2, 5], [3, 4], [1, 4]])
    overlap = torch.tensor([0.0, 0.5, 0.2, 0.9])
    expected = spearman([cosine(z[i], z[j]) for i, j in pairs.tolist()], overlap.tolist())
    assert lexical_agreement(z, pairs, overlap) == pytest.approx(expected)


def test_neighbor_stability_and_hubs_equal_the_loops():
    z, previous = draw(8, 3, seed=9), draw(8, 3, seed=9) + 0.6 * draw(8, 3, seed=10)

    def neighbours(x: Tensor) -> list[set[int]]:
        return [set(sorted((j for j in range(8) if j != i), key=lambda j: -cosine(x[i], x[j]))[:3]) for i in range(8)]

    now, before = neighbours(z), neighbours(previous)
    assert [set(row) for row in nearest(z, 3).tolist()] == now
    expected = sum(len(a & b) / 3 for a, b in zip(now, before, strict=True)) / 8
    assert 0 < expected < 1
    assert neighbor_stability(z, previous, neighbors=3) == pytest.approx(expected)
    assert neighbor_stability(z, z) == 1.0
    counts = [sum(i in row for row in now) for i in range(8)]
    mean = sum(counts) / 8
    spread = math.sqrt(sum((c - mean) ** 2 for c in counts) / 8)
    assert hub_freeness(z, neighbors=3) == pytest.approx(-sum((c - mean) ** 3 for c in counts) / 8 / spread**3)
    assert hub_freeness(torch.eye(4), neighbors=3) == 0.0


@pytest.mark.parametrize("signal", [agreement_margin, recovery, discriminability, structure_agreement])
def test_signals_do_not_see_scale_and_order_and_refuse_bad_shapes(signal):
    z, p = draw(6, 3, seed=11), draw(6, 3, seed=11) + 0.4 * draw(6, 3, seed=12)
    assert signal(3 * z.flip(0), 0.2 * p.flip(0)) == pytest.approx(signal(z, p))
    with pytest.raises(ValueError, match=r"same shape, got \(6, 3\) and \(5, 3\)"):
        signal(z, p[:5])
    with pytest.raises(ValueError, match=r"clean must be \(N, D\) with N >= 2"):
        signal(z[:1], p[:1])


def test_a_constant_side_correlates_with_nothing():
    assert rank_correlation(torch.ones(4), torch.arange(4)) == 0.0
    assert rank_correlation(torch.arange(4), 2 * torch.arange(4)) == pytest.approx(1.0)
