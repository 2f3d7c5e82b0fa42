"""What the trainings of the domain study gained: alone, and before the step that ``adapt`` would also put there."""

from __future__ import annotations

import statistics

from benchmarks.records import records
from benchmarks.tables.domains import Scores, by_cell, domain_means, everywhere
from benchmarks.tables.markdown import difference, markdown_table

STEP = "neighbours, medium"
THEN = f", then {STEP}"


def trainings_table(encoder: str) -> str:
    """List the trainings of an encoder that were run on every domain, by what they gained alone.

    Gains are in the mean of 1-NN, V-measure and MAP@R, averaged over the domains; the intervals are over seeds.
    """
    cells = {domain: rows for (name, domain), rows in by_cell(records("domains")).items() if name == encoder}
    start = everywhere(cells, "start")[0]
    lines = {}
    for row in {row for rows in cells.values() for row in rows if f"{row}{THEN}" in rows}:
        alone = everywhere(cells, row)
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
            difference(domain_means(everywhere(cells, f"{row}{THEN}")), domain_means(everywhere(cells, STEP))),
            f"{statistics.mean(forgotten):+.1f}",
            str(len(alone)),
        ]  # fmt: skip
    titles = ("training", "gain", "worst domain", "with the step, minus the step alone", "STS-B test", "seeds")
    return markdown_table(titles, [cells for _, cells in sorted(lines.values(), key=lambda line: -line[0])])


def _gains(found: Scores, start: dict[str, dict[str, float]], key: str) -> dict[int, dict[str, float]]:
    """Return by seed and domain how far a score is above the start's."""
    return {seed: {name: one[key] - start[name][key] for name, one in scores.items()} for seed, scores in found.items()}
