"""What the trainings of the domain study gained: alone, and before the step that ``adapt`` would also put there."""

from __future__ import annotations

import statistics

from benchmarks.records import records
from benchmarks.tables.domains import by_cell
from benchmarks.tables.markdown import difference, markdown_table

STEP = "neighbours, medium"
_THEN = f", then {STEP}"
_Scores = dict[int, dict[str, dict[str, float]]]
"""By seed and domain."""


def trainings_table(encoder: str) -> str:
    """List the trainings of an encoder that were run on every domain, by what they gained alone.

    Gains are in the mean of 1-NN, V-measure and MAP@R, averaged over the domains; the intervals are over seeds.
    """
    cells = {domain: rows for (name, domain), rows in by_cell(records("domains")).items() if name == encoder}
    start = _everywhere(cells, "start")[0]
    lines = {}
    for row in {row for rows in cells.values() for row in rows if f"{row}{_THEN}" in rows}:
        alone = _everywhere(cells, row)
        if not alone:
            continue
        gains = _gains(alone, start, "mean")
        means = {seed: statistics.mean(of_domains.values()) for seed, of_domains in gains.items()}
        worst = min(statistics.mean(one[domain] for one in gains.values()) for domain in cells)
        forgotten = [x for one in _gains(alone, start, "stsb_test").values() for x in one.values()]
        lines[row] = statistics.mean(means.values()), [
            row,
            difference(means, dict.fromkeys(means, 0.0)),
            f"{worst:+.2f}",
            difference(_means(_everywhere(cells, f"{row}{_THEN}")), _means(_everywhere(cells, STEP))),
            f"{statistics.mean(forgotten):+.1f}",
            str(len(alone)),
        ]  # fmt: skip
    titles = ("training", "gain", "worst domain", "with the step, minus the step alone", "STS-B test", "seeds")
    return markdown_table(titles, [cells for _, cells in sorted(lines.values(), key=lambda line: -line[0])])


def _everywhere(cells: dict[str, dict[str, dict[int, dict[str, float]]]], row: str) -> _Scores:
    """Return the scores of a row by seed and domain, of the seeds that were run on every domain."""
    found = {domain: rows.get(row, {}) for domain, rows in cells.items()}
    seeds = set.intersection(*map(set, found.values()))
    return {seed: {domain: scores[seed] for domain, scores in found.items()} for seed in sorted(seeds)}


def _gains(found: _Scores, start: dict[str, dict[str, float]], key: str) -> dict[int, dict[str, float]]:
    """Return by seed and domain how far a score is above the start's."""
    return {seed: {name: one[key] - start[name][key] for name, one in scores.items()} for seed, scores in found.items()}


def _means(found: _Scores) -> dict[int, float]:
    """Return the mean over the domains of each seed."""
    return {seed: statistics.mean(one["mean"] for one in scores.values()) for seed, scores in found.items()}
