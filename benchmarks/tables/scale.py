"""Tables of large work: memory by corpus size, speed by processes, and batches beyond memory."""

from __future__ import annotations

from typing import Any

from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table


def memory_table() -> str:
    """Tabulate the most MiB above the start for each reader, a column for each number of sentences."""
    record = records("scale", "memory-*")[-1]
    readers: dict[str, list[dict[str, Any]]] = record["readers"]
    sizes = [run["sentences"] for run in next(iter(readers.values()))]
    rows = [[f"`{name}`", *(f"{run['above_mib']:.0f}" for run in runs)] for name, runs in readers.items()]
    return markdown_table(("MiB above the start", *(f"{size:,} sentences" for size in sizes)), rows)


def processes_table() -> str:
    """Tabulate sentences per second of each work with one and two processes, and what bounds it."""
    record = records("scale", "speed-*")[-1]
    rows = []
    for name, work in record["works"].items():
        small, large = work["sizes"]
        for processes in ("1", "2"):
            found = work[processes]
            speeds = [f"{found[key]:,.0f}" for key in ("small", "large", "once started")]
            bound = f"{work['floor share']:.0%} is {work['bound']}" if processes == "1" else ""
            rows.append([name, processes, f"{small:,} and {large:,}", *speeds, bound])
    titles = ["work", "processes", "sentences", "small", "large", "once started", "what bounds it"]
    table = markdown_table(titles, rows, left=(0, 6))
    return f"{table}\n\nSentences per second, medians of {record['rounds']} rounds. {record['machine']}."


def large_batches_table() -> str:
    """Tabulate what gradient caching costs, from the record of most rounds for each loss."""
    newest: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for record in sorted(records("large_batches"), key=lambda one: one["settings"]["rounds"]):
        newest |= {name: (record["settings"], found) for name, found in record["losses"].items()}
    rows = []
    for name, (settings, found) in sorted(newest.items()):
        time = found["time_ratio"]
        spread = f" ({time['lowest']:.2f} to {time['highest']:.2f})" if settings["rounds"] > 1 else ""
        rows.append([
            name,
            f"{found['ms_per_sentence']['uncached']:.1f}",
            f"{found['ms_per_sentence']['cached']:.1f}",
            f"{time['median']:.2f} x{spread}",
            f"{found['memory_ratio']:.2f} x",
            str(settings["rounds"]),
        ])  # fmt: skip
    titles = ["loss", "ms a sentence, plain", "cached", "time", "memory", "rounds"]
    return markdown_table(titles, rows)
