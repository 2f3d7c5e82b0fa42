"""Cells and tables in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Container, Iterable, Sequence

from scipy.stats import sem
from scipy.stats import t as student


def markdown_table(titles: Sequence[str], rows: Iterable[Iterable[str]], left: Container[int] = (0,)) -> str:
    """Write a table.

    Args:
        titles: of the columns.
        rows: cells of each row.
        left: the columns that are aligned left, by position; the others are aligned right.
    """
    rule = "".join("---|" if column in left else "---:|" for column in range(len(titles)))
    return "\n".join([_line(titles), f"|{rule}", *map(_line, rows)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float]) -> str:
    """Write mean ± standard deviation; without the latter for a single value, and nothing for none."""
    if not values:
        return ""
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def counted(values: dict[int, float], of: int | None = None) -> str:
    """Write the spread of the scores of seeds, with how many seeds there are, unless ``of``; nothing for none."""
    number = f" ({len(values)})" if values and len(values) != of else ""
    return spread(list(values.values())) + number


def span(values: Sequence[float]) -> str:
    """Write the lowest and the highest value, with how many there are; nothing for none."""
    return f"{min(values):.2f} to {max(values):.2f} ({len(values)})" if values else ""


def difference(ours: dict[int, float], baseline: dict[int, float]) -> str:
    """Write the mean difference over the seeds that both have, from two seeds on with its 95 % interval (Student's t).

    The interval covers the seeds of training, not which pairs a test set holds.

    Args:
        ours: score of each seed.
        baseline: score of each seed, to be subtracted.
    """
    pairs = [ours[seed] - baseline[seed] for seed in sorted(ours.keys() & baseline.keys())]
    if not pairs:
        return ""
    mean = statistics.mean(pairs)
    if len(pairs) < 2:
        return f"{mean:+.2f}"
    error = float(sem(pairs))
    low, high = student.interval(0.95, len(pairs) - 1, mean, error) if error else (mean, mean)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
