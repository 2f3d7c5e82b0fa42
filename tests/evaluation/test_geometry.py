"""Geometry against closed forms and loops written out."""

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
from tests.helpers import cosine, draw

MEASURES = [uniformity, mean_cosine, partition_ratio, iso_score, effective_rank, top_eigenvalue_share]
POSITIVES = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[3])]


def unit_rows(x: Tensor) -> np.ndarray:
    return np.array([[value / math.sqrt(sum(v * v for v in row)) for value in row] for row in x.tolist()])


def test_measures_of_pairs_equal_the_loops(monkeypatch):
    x, y = draw(7, 5, seed=1) + 0.4, draw(7, 5, seed=2)
    by_hand = sum(2 - 2 * cosine(p, q) for p, q in zip(x, y, strict=True)) / 7
    assert alignment(x, y) == pytest.approx(by_hand, abs=1e-12)
    cosines = [cosine(p, q) for p, q in combinations(x, 2)]
    assert mean_cosine(x) == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)
    potentials = [math.exp(-2 * (2 - 2 * value)) for value in cosines]
    for rows in (1024, 3):
        monkeypatch.setattr("st_extras.functional._SCORES", 7 * rows)
        assert uniformity(x) == pytest.approx(math.log(sum(potentials) / len(potentials)), abs=1e-12)


def test_spectral_measures_equal_numpy_by_hand():
    x = draw(12, 4, seed=5) + 0.3
    unit = unit_rows(x)
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
    variances = np.linalg.eigvalsh(np.cov(unit_rows(x).T))
    scaled = math.sqrt(5) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - 1) / math.sqrt(2 * (5 - math.sqrt(5)))
    used = (5 - defect**2 * (5 - math.sqrt(5))) ** 2 / 5**2
    assert iso_score(x) == pytest.approx((5 * used - 1) / 4, abs=1e-12)
    assert 0.05 < iso_score(x) < 0.95


@pytest.mark.parametrize("measure", MEASURES)
def test_neither_scale_nor_order_matters_and_half_precision_is_computed_in_float32(measure):
    x = draw(20, 8, seed=9) + 1.0
    stretched = x.flip(0) * torch.linspace(0.1, 9, 20, dtype=torch.float64).unsqueeze(1)
    assert measure(stretched) == pytest.approx(measure(x), abs=1e-9)
    assert measure(x.to(torch.bfloat16)) == pytest.approx(measure(x.to(torch.bfloat16).double()), abs=1e-4)


def test_a_collapsed_and_an_even_space_have_the_ends_of_each_measure():
    same, even = draw(1, 4).repeat(6, 1), torch.cat([torch.eye(4), -torch.eye(4)])
    collapsed = [
        measure(same) for measure in (uniformity, mean_cosine, iso_score, effective_rank, top_eigenvalue_share)
    ]
    assert collapsed == pytest.approx([0, 1, 0, 1, 1], abs=1e-9)
    assert iso_score(same + 1e-9 * draw(6, 4, seed=1)) == 0, "they differ by rounding alone"
    assert [iso_score(even), effective_rank(even), top_eigenvalue_share(even)] == pytest.approx([1, 4, 0.25])
    assert (partition_ratio(even), alignment(even, even), alignment(even, -even)) == pytest.approx((1, 0, 4))
    assert partition_ratio(same) == pytest.approx(math.exp(-2))


@pytest.mark.parametrize(
    "measure", [*MEASURES, lambda x: alignment(x, draw(*x.shape)), lambda x: alignment(draw(4, 3), x)]
)
def test_what_has_no_measure_is_refused(measure):
    rows = draw(4, 3)
    for value in (0, math.nan):
        rows[2] = value
        with pytest.raises(ValueError, match=r"^[xy] must .*row 2"):
            measure(rows)


def test_too_few_rows_and_sides_of_different_shape_are_refused():
    for measure in (uniformity, mean_cosine, iso_score):
        with pytest.raises(ValueError, match=r"^x must be \(N, D\) with N >= 2"):
            measure(draw(1, 3))
    with pytest.raises(ValueError, match=r"^x must have D >= 2"):
        iso_score(draw(4, 1))
    with pytest.raises(ValueError, match=r"^x and y must have the same shape, got \(4, 3\) and \(1, 3\)\.$"):
        alignment(draw(4, 3), draw(1, 3))
    for given, named in (
        ((["a", "a"],), "sentences must hold at least 2 distinct"), ((["a"],), "sentences must hold at least 2 sent"),
        ((["a", "b"], []), "positives must hold at least one"), ((["a", "b"], ["ab"]), "positives must hold pairs"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{named}"):
            GeometryEvaluator(*given)


def test_the_evaluator_measures_what_the_functions_measure(encoder):
    metrics = GeometryEvaluator([*SENTENCES, SENTENCES[0]], POSITIVES)(encoder)  # a repeat counts once
    embeddings = encoder.encode(SENTENCES, convert_to_tensor=True)
    expected = {measure.__name__: pytest.approx(measure(embeddings), abs=1e-4) for measure in MEASURES}
    assert metrics == expected | {"alignment": pytest.approx(alignment(embeddings[[0, 2]], embeddings[[1, 3]]))}
