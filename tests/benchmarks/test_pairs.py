"""Pairs in common, scores without them and resampled pairs, on sets small enough to check by hand."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks import pairs
from st_extras.evaluation import STSDataset

DEV = STSDataset("stsb_dev", ["a", "b", "c", "a"], ["x", "y", "z", "x"], [1, 2, 3, 4], ["g"] * 4)
ONE = STSDataset("one", ["x", "b", "p", "q"], ["a", "z", "p", "r"], [1, 2, 3, 4], ["one"] * 4)  # x-a, turned round
TWO = STSDataset("two", ["c", "c", "a"], ["z", "z", "b"], [1, 2, 3], ["two"] * 3)  # c-z, twice


def test_shared_pairs_are_counted_in_either_order():
    assert pairs.shared_pairs(ONE, DEV).tolist() == [True, False, False, False]
    assert pairs.shared_pairs(TWO, DEV).tolist() == [True, True, False]
    assert pairs.overlap_counts(DEV, [ONE, TWO]) == {
        "distinct": 3,  # a-x is there twice
        "in_tests": 2,
        "sets": {"one": {"pairs": 4, "shared": 1}, "two": {"pairs": 3, "shared": 2}},
    }
    assert pairs.overlap_counts(DEV, [DEV])["in_tests"] == 3
    written = STSDataset("three", ["X !", "b", "b y"], ["A", "y z", ""], [1, 2, 3], ["three"] * 3)
    assert pairs.shared_pairs(written, DEV).tolist() == [True, False, False]


def test_scores_without_the_pairs_of_dev():
    cosines = {"one": np.array([0.9, 0.1, 0.3, 0.2]), "two": np.array([0.1, 0.2, 0.3])}
    found = pairs.pair_figures([ONE, TWO], cosines, DEV)["without_dev"]
    assert found == pytest.approx({"one": 100 * spearmanr([2, 3, 4], [0.1, 0.3, 0.2]).statistic, "average": 50.0})
    assert pairs.pair_figures([ONE], cosines, ONE)["without_dev"] == {}  # nothing is left
