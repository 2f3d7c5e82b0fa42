"""Write the result files' tables into the pages, between their markers; ``--check`` only tells whether they are there.

python -m benchmarks.readme [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from functools import partial

from benchmarks import selection, tables
from benchmarks.common import ROOT
from benchmarks.records import table
from st_extras.evaluation.selection import DEFAULT_SIGNAL

PAGES = (ROOT.parent / "README.md", ROOT / "RESULTS.md")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)
REPAL_ROWS = (
    "plain",
    "centred",
    "corpus term",
    "sentence term",
    "RepAL",
    "RepAL pooled",
    "whitened 256",
    "whitened 256 + RepAL",
)


def repal_table() -> str:
    """Seven-set averages of RepAL and whitening: a column for each encoder and kind of fit."""
    encoders: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for file in sorted((ROOT / "results" / "repal").glob("*.json")):
        encoders |= json.loads(file.read_text(encoding="utf8")).get("encoders", {})
    columns = [
        (f"{name}, {fit} fit", found[f"english, {fit} fit"])
        for name, found in encoders.items()
        for fit in ("target", "general")
        if f"english, {fit} fit" in found
    ]
    lines = ["| variant | " + " | ".join(title for title, _ in columns) + " |", "|---|" + "---:|" * len(columns)]
    for row in REPAL_ROWS:
        cells = (f"{found[row]['average']:.2f}" if row in found else "" for _, found in columns)
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def selection_table() -> str:
    """The study of choosing checkpoints without labels, over all records that have signals."""
    return selection.table(selection.recorded_curves())


def short_selection_table() -> str:
    """The default signal beside the last checkpoint and the lowest training loss."""
    curves = selection.recorded_curves()
    everything = selection.selectors(curves)
    lines = ["| picked by | mean regret | worst run | runs |", "|---|---:|---:|---:|"]
    for name in (DEFAULT_SIGNAL, selection.LAST, selection.LOSS):
        regrets = [curve.regret(everything[name](curve)) for curve in curves]
        lines.append(f"| {name} | {statistics.mean(regrets):.2f} | {max(regrets):.2f} | {len(regrets)} |")
    return "\n".join(lines)


def study_table(make: Callable[[tables.Rows], str], study: str) -> str:
    """One of the tables of all methods, for another study."""
    return make(tables.study_rows(study))


TABLES: dict[str, Callable[[], str]] = {
    "repal": repal_table,
    "main": tables.main_table,
    "refined": tables.refined_table,
    "recipes": partial(tables.ranked_table, "recipes"),
    "recipes-refined": lambda: tables.refined_table(tables.combined_rows()),
    "whitening": tables.whitening_table,
    "pretraining": partial(tables.pretraining_table, "own_encoder"),
    "claims": tables.claims_table,
    "own-main": partial(study_table, tables.main_table, "own_encoder"),
    "own-refined": partial(study_table, tables.refined_table, "own_encoder"),
    "own-recipes": partial(tables.ranked_table, "own_encoder"),
    "wiki-main": partial(study_table, tables.main_table, "own_encoder_wiki"),
    "wiki-refined": partial(study_table, tables.refined_table, "own_encoder_wiki"),
    "both-encoders": tables.both_encoders_table,
    "own-space": partial(tables.space_table, "own_encoder"),
    "wiki-space": partial(tables.space_table, "own_encoder_wiki"),
    "selection": selection_table,
    "selection-short": short_selection_table,
    "frequency-bias": partial(tables.space_table, "slt_fai"),
    "paser-phrases": partial(tables.phrases_table, "paser"),
    **{f"preparation-{what}": partial(tables.preparation_table, what) for what in ("masking", "counting")},
    "unrun": tables.unrun_table,
    "speed": tables.speed_table,
    **{f"speed-{sweep}": partial(tables.sweep_table, sweep) for sweep in ("batch", "length", "negatives")},
}
"""What is no study of its own; any other name between markers is one."""


def updated(text: str) -> str:
    """A page with every block between markers made anew."""

    def fill(match: re.Match[str]) -> str:
        name = match[2]
        return f"{match[1]}{TABLES[name]() if name in TABLES else table(name)}\n{match[3]}"

    return BLOCK.sub(fill, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    only_check = parser.parse_args().check
    for page in PAGES:
        before = page.read_text(encoding="utf8")
        after = updated(before)
        if not only_check:
            page.write_text(after, encoding="utf8")
        elif before != after:
            sys.exit(f"{page.name} is out of step with benchmarks/results: run python -m benchmarks.readme")


if __name__ == "__main__":
    main()
