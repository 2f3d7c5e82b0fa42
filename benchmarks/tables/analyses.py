"""Tables of the papers' small analyses: what RepAL takes away, and the counts behind SLT-FAI's frequency labels."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.records import records
from benchmarks.tables.domains import NAMES
from benchmarks.tables.floors import noted
from benchmarks.tables.markdown import markdown_table, spread

PLAIN = "plain"
_NOT_RUN = "Not run yet."


def importance_table() -> str:
    """Tabulate the importance of each trivial word, with its difference from the plain encoder in brackets.

    The last column has the mean over every word of the first sentences of the overlap's draws.
    """
    found = by_encoder("word_importance")
    if not found:
        return _NOT_RUN
    overlap = by_encoder("overlap")
    words = list(next(iter(found.values()))["rows"][PLAIN])
    lines = []
    for name, one in found.items():
        rows, draws = one["rows"], overlap.get(name, {}).get("draws", ())
        for row, values in rows.items():
            cells = [beside(values[word], rows[PLAIN][word], row) for word in words]
            if draws:
                every, plain = (statistics.mean(draw[each]["importance"] for draw in draws) for each in (row, PLAIN))
            lines.append([NAMES[name], row, weights(one, row), *cells, beside(every, plain, row) if draws else ""])
    titles = ("encoder", "", "lambda_1, lambda_2", *(f'"{word}"' for word in words), "any word")
    return noted(markdown_table(titles, lines, left=(0, 1)))


def redundancy_table() -> str:
    """Tabulate the overlap ratio in %, mean ± standard deviation over the draws, and its change in each of them."""
    found = by_encoder("overlap")
    if not found:
        return _NOT_RUN
    lines = []
    for name, one in found.items():
        for row in one["weights"]:
            ratios = [draw[row]["ratio"] for draw in one["draws"]]
            changes = [draw[row]["ratio"] - draw[PLAIN]["ratio"] for draw in one["draws"]]
            of_each = "" if row == PLAIN else ", ".join(f"{change:+.2f}" for change in changes)
            lines.append([NAMES[name], row, weights(one, row), spread(ratios), of_each])
    titles = ("encoder", "", "lambda_1, lambda_2", "overlap ratio, %", "minus plain, each draw")
    return noted(markdown_table(titles, lines, left=(0, 1)))


def eigenvalue_table() -> str:
    """Tabulate where on each set Spearman is best, where the eigenvalue is least, and Spearman there minus its best."""
    found = by_encoder("eigenvalues")
    if not found:
        return _NOT_RUN
    sets = list(next(iter(found.values()))["curves"][0]["sets"])
    lines = []
    for name, one in found.items():
        for curve in one["curves"]:
            of_sets = curve["sets"]
            lines.append([NAMES[name], f"{curve['lambda_1']:.2f}", *(_places(of_sets[each]) for each in sets)])
    return noted(markdown_table(("encoder", "lambda_1", *sets), lines))


def _places(found: dict[str, Any]) -> str:
    lost = found["spearman_at_least_eigenvalue"] - found["best_spearman"]
    return f"{found['best_spearman_at']:.1f}; {found['least_eigenvalue_at']:.1f} ({lost:+.2f})"


def frequency_table() -> str:
    """Tabulate the counts of BookCorpus' tokens by rank, and what the low-frequency half has of all occurrences."""
    found = records("analyses", "bookcorpus-frequencies")
    if not found:
        return _NOT_RUN
    one = found[0]
    ranks = {f"rank {int(rank):,}": f"{count:,}" for rank, count in one["count_at_rank"].items()}
    shares = {f"at {100 * float(share):.0f} %": f"{count:,}" for share, count in one["count_at_share"].items()}
    cells = {
        "tokens": f"{one['tokens']:,}",
        "occurrences": f"{one['occurrences']:,}",
        **ranks,
        **shares,
        "never seen": f"{one['never_seen']:,}",
        "share of the rarer half": f"{one['least_half_percent']:.2f} %",
        "labelled low-frequency": f"{one['labelled_low']:,}",
        "their share": f"{one['labelled_low_percent']:.2f} %",
    }
    return markdown_table(list(cells), [list(cells.values())], left=())


def by_encoder(analysis: str) -> dict[str, dict[str, Any]]:
    """Return the records of an analysis by encoder, in the order of NAMES."""
    found = {record["encoder"]: record for record in records("analyses", f"*-{analysis}")}
    return {name: found[name] for name in NAMES if name in found}


def beside(value: float, plain: float, row: str) -> str:
    """Write a value, and behind it how far it is from the plain encoder's."""
    return f"{value:.2f}" if row == PLAIN else f"{value:.2f} ({value - plain:+.2f})"


def weights(record: dict[str, Any], row: str) -> str:
    """Write the weights of both terms."""
    chosen = record["weights"][row]
    return f"{chosen['lambda_1']:.2f}, {chosen['lambda_2']:.2f}"
