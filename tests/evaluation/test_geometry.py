"""Geometry against closed forms (simplex, orthogonal, collapsed, uniform sphere) and loops written out."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

from st_extras.evaluation.geometry import (
    GeometryEvaluator,
    alignment,
    effective_rank,
    iso_score,
    mean_cosine,
    partition_ratio,
    top_eigenvalue_share,
    uniformity,
)
from tests.fixtures import SENTENCES
from tests.helpers import draw

MEASURES = [uniformity, mean_cosine, partition_ratio, iso_score, effective_rank, top_eigenvalue_share]


def unit_rows(x: Tensor) -> list[list[float]]:
    rows = []
    for row in x.tolist():
        norm = math.sqrt(sum(value * value for value in row))
        rows.append([value / norm for value in row])
    return rows


def distance2(a: list[float], b: list[float]) -> float:
    return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))


def test_alignment_and_uniformity_equal_the_loops(monkeypatch):
    x, y = draw(7, 5, seed=1) + 0.4, draw(7, 5, seed=2)
    a, b = unit_rows(x), unit_rows(y)
    by_hand = sum(distance2(p, q) for p, q in zip(a, b, strict=True)) / 7
    assert alignment(x, y) == pytest.approx(by_hand, abs=1e-12)
    potentials = [math.exp(-2 * distance2(p, q)) for p, q in combinations(a, 2)]
    for rows in (1024, 3):
        monkeypatch.setattr("st_extras.evaluation.geometry._ROWS_AT_ONCE", rows)
        assert uniformity(x) == pytest.approx(math.log(sum(potentials) / len(potentials)), abs=1e-12)


def test_mean_cosine_equals_the_loop():
    x = draw(9, 6, seed=4) + 0.5
    cosines = [1 - distance2(p, q) / 2 for p, q in combinations(unit_rows(x), 2)]
    assert mean_cosine(x) == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)
    assert mean_cosine(x) > 0.1


def test_spectral_measures_equal_numpy_by_hand():
    x = draw(12, 4, seed=5) + 0.3
    unit = np.array(unit_rows(x))
    values = np.sqrt(np.linalg.eigvalsh(unit.T @ unit))
    shares = values / values.sum()
    assert effective_rank(x) == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)), abs=1e-9)
    assert top_eigenvalue_share(x) == pytest.approx(values.max() ** 2 / 12, abs=1e-12)
    sums = []
    for direction in np.linalg.eigh(unit.T @ unit)[1].T:
        sums += [sum(math.exp(sign * float(row @ direction)) for row in unit) for sign in (1, -1)]
    assert partition_ratio(x) == pytest.approx(min(sums) / max(sums), abs=1e-12)


def test_iso_score_equals_the_papers_steps():
    x = draw(30, 5, seed=6) * torch.tensor([3.0, 1.0, 1.0, 0.5, 0.2])
    variances = np.linalg.eigvalsh(np.cov(np.array(unit_rows(x)).T))
    scaled = math.sqrt(5) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - 1) / math.sqrt(2 * (5 - math.sqrt(5)))
    used = (5 - defect**2 * (5 - math.sqrt(5))) ** 2 / 5**2
    assert iso_score(x) == pytest.approx((5 * used - 1) / 4, abs=1e-12)
    assert 0.05 < iso_score(x) < 0.95


def test_collapsed():
    x = torch.tensor([1.0, 2.0, -1.0]).repeat(5, 1)
    assert alignment(x, 4 * x) == pytest.approx(0.0, abs=1e-6)
    assert uniformity(x) == pytest.approx(0.0, abs=1e-5)
    assert mean_cosine(x) == pytest.approx(1.0, abs=1e-6)
    assert effective_rank(x) == pytest.approx(1.0, abs=1e-4)
    assert top_eigenvalue_share(x) == pytest.approx(1.0, abs=1e-6)
    assert partition_ratio(x) == pytest.approx(math.exp(-2), abs=1e-6)
    assert iso_score(x) == 0.0


def test_one_direction_has_no_iso_score_but_an_offset_does_not_lower_it():
    line = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0], [1.0, 0, 0]], dtype=torch.float64)
    assert iso_score(line) == pytest.approx(0.0, abs=1e-12)
    corners = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], dtype=torch.float64)
    small = torch.cat([0.1 * corners, torch.ones(4, 1, dtype=torch.float64)], dim=1)
    assert mean_cosine(small) > 0.9
    assert iso_score(small[:, :2]) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_scale_and_order_do_not_matter(measure):
    x = draw(10, 4, seed=8) + 0.2
    stretched = x.flip(0) * torch.linspace(0.1, 9, 10, dtype=torch.float64).unsqueeze(1)
    assert measure(stretched) == pytest.approx(measure(x), abs=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_half_precision_is_computed_in_float32(measure):
    x = draw(20, 8, seed=9) + 1.0
    assert measure(x.to(torch.bfloat16)) == pytest.approx(measure(x.to(torch.bfloat16).double()), abs=1e-4)


def test_pairs_need_two_rows_and_one_shape():
    for measure in (uniformity, mean_cosine, iso_score):
        with pytest.raises(ValueError, match=r"N >= 2, got the shape \(1, 3\)"):
            measure(torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"same shape, got \(2, 3\) and \(3, 3\)"):
        alignment(torch.ones(2, 3), torch.ones(3, 3))
    with pytest.raises(ValueError, match="D >= 2"):
        iso_score(torch.ones(4, 1))


def test_arrays_and_lists_are_taken():
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert uniformity(x.numpy()) == uniformity(x) == pytest.approx(uniformity(x.tolist()), abs=1e-6)


POSITIVES = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[3])]


def test_the_evaluator_measures_what_the_functions_measure(encoder):
    metrics = GeometryEvaluator([*SENTENCES, SENTENCES[0]], POSITIVES)(encoder)  # a repeat counts once
    embeddings = encoder.encode(SENTENCES, convert_to_tensor=True)
    expected = {measure.__name__: pytest.approx(measure(embeddings), abs=1e-4) for measure in MEASURES}
    assert metrics == expected | {"alignment": pytest.approx(alignment(embeddings[[0, 2]], embeddings[[1, 3]]))}
    assert GeometryEvaluator(SENTENCES)(encoder).keys() == expected.keys()


@pytest.mark.parametrize(("primary", "greater"), [("iso_score", True), ("mean_cosine", False), ("alignment", False)])
def test_the_direction_follows_the_primary_metric(primary, greater):
    evaluator = GeometryEvaluator(SENTENCES, POSITIVES, primary=primary, name="x")
    assert (evaluator.greater_is_better, evaluator.primary_metric) == (greater, f"x_{primary}")


@pytest.mark.parametrize(
    ("given", "options", "named"),
    [
        (["one", "one"], {}, "sentences .* 2 distinct"), (["a", "b"], {"positives": []}, "positives"),
        (["a", "b"], {"positives": ["ab"]}, "positives"), (["a", "b"], {"primary": "alignment"}, "primary"),
        (["a", "b"], {"primary": "beauty"}, "primary"),
    ],
)  # fmt: skip
def test_what_the_evaluator_refuses(given, options, named):
    with pytest.raises(ValueError, match=named):
        GeometryEvaluator(given, **options)
