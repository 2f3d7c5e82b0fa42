"""The statistics of the tables, by hand."""

import math
import statistics as plain

import pytest

from benchmarks import statistics
from benchmarks.statistics import EVERY


def test_mean_and_deviation():
    assert statistics.mean_and_deviation([1.0, 2.0, 4.0]) == pytest.approx((7 / 3, math.sqrt(7 / 3)))
    assert statistics.mean_and_deviation([3.0]) == (3.0, None)


def test_differences_are_paired_by_seed():
    ours, theirs = {0: 5.0, 1: 7.0, 3: 9.0}, {3: 1.0, 0: 2.0, 2: 100.0}
    assert statistics.paired_differences(ours, theirs) == {0: 3.0, 3: 8.0}
    assert statistics.paired_differences(ours, {EVERY: 4.0}) == {0: 1.0, 1: 3.0, 3: 5.0}
    assert statistics.paired_differences({EVERY: 4.0}, theirs) == {0: 2.0, 2: -96.0, 3: 3.0}
    assert statistics.paired_differences({EVERY: 4.0}, {EVERY: 1.0}) == {EVERY: 3.0}
    assert statistics.paired_differences(ours, {}) == {}


def test_the_interval_is_student_s():
    found = [0.5, 1.0, 3.0]
    half = 4.302652729911275 * plain.stdev(found) / math.sqrt(3)  # the 97.5 % quantile at two degrees of freedom
    mean = plain.mean(found)
    assert statistics.mean_interval(found) == pytest.approx((mean, mean - half, mean + half))
    assert statistics.mean_interval([2.0, 2.0]) == (2.0, 2.0, 2.0)


def test_what_a_choice_costs():
    assert statistics.best([1.0, 3.0, 3.0]) == 1
    assert statistics.regret([0.1, 0.9, 0.5], [10.0, 7.0, 2.0]) == 3.0
    assert statistics.regret([0.9, 0.1], [10.0, 7.0]) == 0.0
    assert statistics.rank_correlation([1.0, 2.0, 9.0], [4.0, 5.0, 3.0]) == pytest.approx(-0.5)
