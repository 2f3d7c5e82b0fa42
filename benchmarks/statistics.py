"""The statistics of the tables: mean and spread over seeds, intervals of paired differences, and what a choice costs.

Scores are given by seed. ``EVERY`` is the seed of what was not trained, which stands beside every seed of another row.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from scipy.stats import sem, spearmanr
from scipy.stats import t as student

EVERY = -1


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the standard deviation; None in its place for a single value."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


def paired_differences(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """Return ours minus theirs for each seed that both have; what has the seed ``EVERY`` stands beside all of them."""
    if EVERY in ours and EVERY not in theirs:
        ours = dict.fromkeys(theirs, ours[EVERY])
    elif EVERY in theirs and EVERY not in ours:
        theirs = dict.fromkeys(ours, theirs[EVERY])
    return {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}


def mean_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval by Student's t; three times the mean if the differences are all the same.

    The interval covers the seeds of training, not which pairs a test set holds.

    Args:
        differences: at least two.
    """
    mean, error = statistics.mean(differences), float(sem(differences))
    low, high = student.interval(0.95, len(differences) - 1, mean, error) if error else (mean, mean)
    return mean, float(low), float(high)


def best(scores: Sequence[float]) -> int:
    """Return the place of the highest score, the first of equals."""
    return max(range(len(scores)), key=scores.__getitem__)


def regret(scores: Sequence[float], truth: Sequence[float]) -> float:
    """Return how far the truth of the row with the highest score stays below the best truth."""
    return max(truth) - truth[best(scores)]


def rank_correlation(scores: Sequence[float], truth: Sequence[float]) -> float:
    """Return Spearman's correlation."""
    return float(spearmanr(scores, truth).statistic)
