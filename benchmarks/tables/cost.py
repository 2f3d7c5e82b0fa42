"""Time and memory: of training steps and of RepAL's ways to encode (benchmarks.speed), and of data preparation."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from benchmarks.names import MNRL
from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table


def newest_speed(sweep: str | None = None) -> dict[str, Any] | None:
    """Return the newest complete record on CPU: of a sweep, or of all cases if ``sweep`` is None."""
    found = reversed(records("speed", f"{sweep}-*" if sweep else "[0-9]*"))
    return next((r for r in found if r.get("full", True) and r.get("device", "cpu") == "cpu"), None)


def speed_table(shown: Container[str] | None = None) -> str:
    """Tabulate the time and memory of each case, relative to the bare passes that it needs and to MNRL.

    Args:
        shown: names of the cases; None: all but the bare passes.
    """
    record = newest_speed()
    if record is None:
        return "Not measured yet."
    rows = []
    for name, row in record["cases"].items():
        if name.startswith("bare") or (shown is not None and name not in shown):
            continue
        ratios = {other: ratio["median"] for other, ratio in row.get("ratios", {}).items()}
        if row.get("reference"):  # the first records had this ratio only
            ratios[row["reference"]] = row["ratio"]
        beside_mnrl = f"{ratios.pop(MNRL):.2f} x" if MNRL in ratios else ""
        needs = ", ".join(f"{ratio:.2f} x {other}" for other, ratio in ratios.items())
        rows.append([name, f"{row['median_ms']:.0f}", needs, beside_mnrl, _mebibytes(row)])
    table = markdown_table(("step", "ms", "beside what it needs", "beside MNRL", "MiB"), rows)
    return "\n".join([table, "", _conditions(record)])


def sweep_table(sweep: str) -> str:
    """Tabulate milliseconds and MiB of each case, a column for each value of the sweep."""
    record = newest_speed(sweep)
    if record is None:
        return "Not measured yet."
    values: dict[str, dict[str, Any]] = record["values"]
    rows = []
    for name in dict.fromkeys(name for cases in values.values() for name in cases):
        found = [cases.get(name) for cases in values.values()]
        cells = ["" if row is None else f"{row['median_ms']:.0f} ms, {_mebibytes(row)} MiB" for row in found]
        rows.append([name, *cells])
    return "\n".join([markdown_table((sweep, *values), rows), "", _conditions(record)])


def preparation_table(task: str) -> str:
    """Tabulate sentences per second by wall clock, and the speed relative to each reference.

    A column for each number of sentences, from its newest record.

    Args:
        task: "masking" or "counting".
    """
    newest = {found["sentences"]: found for found in records("preparation", f"*-{task}")}
    columns = [newest[size] for size in sorted(newest)]
    titles = [f"{found['sentences']:,} sentences, rounds: {found['rounds']}" for found in columns]
    rows = []
    for name in columns[0]["cases"]:
        found = [column["cases"][name]["wall"] for column in columns]
        rows.append([name, *(f"{row['per_second']:,.0f}/s ({', '.join(_relative(row))})" for row in found)])
    lines = [markdown_table((task, *titles), rows)]
    memory = [
        f"{row['texts']:,} texts {row['peak_MiB']:.0f} MiB" for found in columns for row in found.get("memory", ())
    ]
    if memory:
        lines += ["", f"Peak memory: {'; '.join(memory)}."]
    return "\n".join(lines)


def _relative(row: dict[str, Any]) -> list[str]:
    """Write the median speed relative to each reference."""
    return [f"{value[0]:.2f} x" for name, value in row.items() if name.startswith("x ")]


def _mebibytes(row: dict[str, Any]) -> str:
    return "" if row.get("peak_mib") is None else f"{row['peak_mib']:.0f}"


def _conditions(record: dict[str, Any]) -> str:
    """Write in a line how a record of ``benchmarks.speed`` was measured."""
    size = {"batch": f"{record['batch']} sentences a batch", "length": f"at most {record.get('length', 32)} tokens"}
    fixed = [words for name, words in size.items() if name != record.get("sweep")]
    clock = ["processor time"] if record.get("clock") == "cpu" else []
    words = [*fixed, f"{record['rounds']} rounds", *clock, record["machine"], f"revision {record['revision']}"]
    return f"Measured: {', '.join(words)}."
