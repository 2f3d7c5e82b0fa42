"""Cosines of graded pairs by level of the gold score: the table, the evaluator and the densities."""

import math

import pytest

from benchmarks.figures.cosine_levels import cosine_by_level, level_separation

pytest.importorskip("matplotlib").use("Agg")


def test_cosine_by_level_equals_the_loop():
    cosines = [0.1, 0.3, 0.5, 0.4, 0.9, 0.8, 0.7]
    scores = [0.0, 0.9, 1.0, 2.5, 4.0, 5.0, 4.9]
    table = cosine_by_level(cosines, scores)
    assert [level.count for level in table] == [2, 1, 1, 0, 3]
    assert [(level.low, level.high) for level in table] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert table[0].mean == pytest.approx(0.2)
    assert table[0].variance == pytest.approx(0.01)
    assert table[4].mean == pytest.approx(0.8)
    assert table[4].variance == pytest.approx(0.02 / 3)
    assert math.isnan(table[3].mean)
    assert math.isnan(table[3].variance)
    mean = sum(cosines) / 7
    between = 2 * (0.2 - mean) ** 2 + (0.5 - mean) ** 2 + (0.4 - mean) ** 2 + 3 * (0.8 - mean) ** 2
    assert level_separation(table) == pytest.approx(between / sum((c - mean) ** 2 for c in cosines))
