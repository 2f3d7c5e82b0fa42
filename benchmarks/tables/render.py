"""The one renderer of all tables: which runs, which value, which baseline, and how to write it.

A table is declared by its rows and columns. Both declare parts of a cell, as keywords of ``Cell``; what a row declares
goes before what its column does::

    Table(
        "method",
        {"SimCSE": {"of": runs("foundation/simcse")}, "DCLR": {"of": runs("foundation/dclr")}},
        [
            ("seven sets", {"metric": "average", "show": spread}),
            ("minus SimCSE", {"metric": "average", "show": gain, "minus": runs("foundation/simcse")}),
        ],
    )
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import records
from benchmarks.records import Metric
from benchmarks.statistics import EVERY, mean_and_deviation, mean_interval, paired_differences

Runs = tuple[dict[str, str], ...]
"""Which records: each entry has a study, and values of other columns of the long table."""
Part = Mapping[str, Any]
"""Keywords of ``Cell``."""


def runs(names: str) -> Runs:
    """Return the runs of ``study/method study/method ...``."""
    return tuple({"study": study, "method": method} for study, _, method in (n.partition("/") for n in names.split()))


class Values:
    """Values of some runs by seed and unit. A unit is what else tells values apart: a data set, a layer, a draw.

    Args:
        found: rows of ``long_table``; of equal method, seed and unit, the last one counts.
        captured: the columns that make a unit, besides the data.
    """

    def __init__(self, found: pd.DataFrame, captured: Sequence[str] = ()) -> None:
        self.by_place: dict[tuple[int, str, tuple[str, ...]], Any] = {}
        for row in found.to_dict("records"):
            seed = EVERY if pd.isna(row["seed"]) else int(row["seed"])
            unit = tuple(str(row[name]) for name in ("data", *captured))
            self.by_place[seed, str(row["method"]), unit] = row["value"]

    def all(self) -> list[Any]:
        """Return every value."""
        return list(self.by_place.values())

    def by_unit(self) -> dict[str, dict[int, float]]:
        """Return the values by the last part of their unit, then by seed."""
        found: dict[str, dict[int, float]] = {}
        for (seed, _, unit), value in self.by_place.items():
            found.setdefault(" ".join(unit), {})[seed] = value
        return found

    def by_seed(self) -> dict[int, float]:
        """Return the mean over the units for each seed that has all of them."""
        units = self.by_unit()
        seeds = sorted(set.intersection(*(set(of_unit) for of_unit in units.values()))) if units else []
        return {seed: statistics.mean(of_unit[seed] for of_unit in units.values()) for seed in seeds}


Show = Callable[[Values, Values], str]
"""Writes a cell from its values and those of its baseline, which may be none."""


def values(of: Runs, metrics: Sequence[Metric]) -> Values:
    """Read the values of runs; of several metrics, each run has the first one that it knows."""
    frames, captured = [], []
    for wanted in of:
        for one in metrics:
            path = records.file_of(wanted["study"])
            if not path.is_file():
                continue
            frame = _read(wanted["study"], one, path, path.stat().st_mtime_ns)
            for name, value in wanted.items():
                frame = frame[frame[name] == value] if name in frame else frame[:0]
            if len(frame):
                frames.append(frame)
                captured = re.findall(r"\{(\w+)\}", one) if isinstance(one, str) else []
                break
    return Values(pd.concat(frames) if frames else pd.DataFrame(), captured)


@lru_cache(maxsize=4096)
def _read(study: str, metric: Metric, path: Path, modified: int) -> pd.DataFrame:
    return records.long_table([study], metric, root=path.parent)


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        of: its runs; by name where a table has several kinds of columns, such as one for each encoder.
        metric: the value to read.
        show: how to write it.
        minus: the runs of the baseline; None: there is none.
        minus_metric: the baseline's value; None: the same.
        which: which of ``of`` and ``minus``, where they are given by name.
        fill: what stands for each ``<name>`` in the metrics.
    """

    of: Runs | Mapping[str, Runs] = ()
    metric: Metric | Sequence[Metric] = ""
    show: Show | None = None
    minus: Runs | Mapping[str, Runs] | None = None
    minus_metric: Metric | Sequence[Metric] | None = None
    which: str = ""
    fill: Mapping[str, str] = field(default_factory=dict)

    def written(self) -> str:
        """Return the cell; empty where there are no values."""
        of, minus = self._chosen(self.of), self._chosen(self.minus or ())
        ours, theirs = values(of, self._filled(self.metric)), Values(pd.DataFrame())
        if minus or self.minus_metric:
            theirs = values(minus or of, self._filled(self.minus_metric or self.metric))
        return self.show(ours, theirs) if self.show and ours.by_place else ""

    def _chosen(self, given: Runs | Mapping[str, Runs]) -> Runs:
        return given.get(self.which, ()) if isinstance(given, Mapping) else given

    def _filled(self, given: Metric | Sequence[Metric]) -> list[Metric]:
        metrics = [given] if isinstance(given, str) or callable(given) else list(given)
        return [re.sub("<(.+?)>", lambda m: self.fill[m[1]], one) if isinstance(one, str) else one for one in metrics]


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        first: title of the labels; of several, one for each part of a label.
        rows: parts of cells by label.
        columns: titles with parts of cells, or with ``texts``, by label, that are no values.
        left: how many columns are aligned left.
        note: stands under the table.
    """

    first: str | tuple[str, ...]
    rows: Mapping[str | tuple[str, ...], Part]
    columns: Sequence[tuple[str, Part]]
    left: int | None = None
    note: str | Callable[[], str] = ""

    def written(self) -> str:
        """Return the table in Markdown."""
        first = (self.first,) if isinstance(self.first, str) else self.first
        titles = [*first, *(title for title, _ in self.columns)]
        left = len(first) if self.left is None else self.left
        rule = "".join("---|" if place < left else "---:|" for place in range(len(titles)))
        lines = [_line(titles), f"|{rule}"]
        for label, row in self.rows.items():
            labels = (label,) if isinstance(label, str) else label
            lines.append(_line([*labels, *(_written(label, row, column) for _, column in self.columns)]))
        note = self.note() if callable(self.note) else self.note
        return "\n".join([*lines, *(["", note] if note else [])])


@dataclass(frozen=True)
class Sentence:
    """A sentence with values.

    Attributes:
        template: with a ``{name}`` for each cell.
        cells: parts of cells by name.
    """

    template: str
    cells: Mapping[str, Part]

    def written(self) -> str:
        """Return the sentence."""
        return self.template.format(**{name: Cell(**part).written() for name, part in self.cells.items()})


@dataclass(frozen=True)
class Text:
    """Text that is known: tables under headings."""

    text: str

    def written(self) -> str:
        """Return the text."""
        return self.text


def of_texts(first: str, rows: Mapping[str, Mapping[str, str]], left: int | None = None) -> Table:
    """Return a table whose cells are known: by label of the row, then by title of the column."""
    titles = list(dict.fromkeys(title for row in rows.values() for title in row))
    columns = [(title, {"texts": {label: row.get(title, "") for label, row in rows.items()}}) for title in titles]
    return Table(first, {label: {} for label in rows}, columns, left)


def _written(label: str | tuple[str, ...], row: Part, column: Part) -> str:
    return column["texts"].get(label, "") if "texts" in column else Cell(**{**column, **row}).written()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def number(form: str) -> Show:
    """Write the mean in a format."""
    return lambda ours, _: form.format(statistics.mean(ours.all()))


def lowest(form: str) -> Show:
    """Write the lowest value in a format."""
    return lambda ours, _: form.format(min(ours.all()))


def picked(write: Callable[[Any], str]) -> Show:
    """Write the last of the values, which may be anything, by a function of it."""
    return lambda ours, _: write(ours.all()[-1])


def count(ours: Values, _: Values) -> str:
    """Write the number of seeds; 1 for what was not trained."""
    return str(len(ours.by_seed()))


def spread(ours: Values, _: Values) -> str:
    """Write mean ± standard deviation over the seeds."""
    return write_spread(list(ours.by_seed().values()))


def counted(ours: Values, theirs: Values) -> str:
    """Write the same, with the number of seeds."""
    return f"{spread(ours, theirs)} ({count(ours, theirs)})"


def gain(ours: Values, theirs: Values) -> str:
    """Write the mean of the paired differences, from two seeds on with its 95 % interval; nothing for the baseline."""
    if ours.by_place == theirs.by_place:
        return ""
    return write_interval(list(paired_differences(ours.by_seed(), theirs.by_seed()).values()))


def counted_gain(ours: Values, theirs: Values) -> str:
    """Write the same, with the number of pairs."""
    written = gain(ours, theirs)
    return f"{written} ({len(paired_differences(ours.by_seed(), theirs.by_seed()))})" if written else ""


def span(ours: Values, _: Values) -> str:
    """Write the lowest and the highest value, and how many there are."""
    found = ours.all()
    return f"{min(found):.2f} to {max(found):.2f} ({len(found)})"


def write_spread(found: Sequence[float]) -> str:
    """Write mean ± standard deviation, without the latter for a single value; nothing for none."""
    if not found:
        return ""
    mean, deviation = mean_and_deviation(found)
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def write_interval(differences: Sequence[float]) -> str:
    """Write the mean difference and its interval, without the latter for a single one; nothing for none."""
    if len(differences) < 2:
        return "".join(f"{difference:+.2f}" for difference in differences)
    mean, low, high = mean_interval(differences)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
