"""Tables of time and memory: a training step, RepAL's ways to encode, large batches, corpora and hybrid search."""

from __future__ import annotations

from typing import Any

from benchmarks.records import records
from benchmarks.studies import MNRL
from benchmarks.tables.render import Part, Table, number, picked

SPEED = ({"study": "speed", "run": "20261123-022106"},)
"""The newest measurement of all steps."""
WHOLE, TIMES = number("{:.0f}"), picked("{:.2f} x".format)


def beside_what_it_needs(ratios: dict[str, dict[str, float]]) -> str:
    """Write the ratios of a step to the bare passes that it cannot do without."""
    return ", ".join(f"{ratio['median']:.2f} x {name}" for name, ratio in ratios.items() if name != MNRL)


def conditions() -> str:
    """Return a line on how the steps were measured."""
    (record,) = (record for record in records("speed") if record["run"] == SPEED[0]["run"])
    return (
        f"Measured: {record['batch']} sentences a batch, at most {record['length']} tokens, {record['rounds']} rounds, "
        f"{record['machine']}, revision {record['revision']}."
    )


NEEDS: tuple[str, Part] = (
    "beside what it needs",
    {"metric": "cases/<case>/ratios", "show": picked(beside_what_it_needs)},
)


def steps(*cases: str, needs: bool = True) -> Table:
    """Return the table of some steps: milliseconds, beside the passes that they need and beside MNRL, and memory.

    Args:
        cases: of ``benchmarks.speed_cases``.
        needs: show the passes; without them, a line on how the steps were measured is under the table.
    """
    columns: list[tuple[str, Part]] = [("ms", {"metric": "cases/<case>/median_ms", "show": WHOLE})]
    columns += [NEEDS] if needs else []
    columns += [
        ("beside MNRL", {"metric": f"cases/<case>/ratios/{MNRL}/median", "show": TIMES}),
        ("MiB", {"metric": "cases/<case>/peak_mib", "show": WHOLE}),
    ]
    rows: dict[str, Part] = {case: {"of": SPEED, "fill": {"case": case}} for case in cases}
    return Table("step", rows, columns, note="" if needs else conditions)


STEPS = steps("simcse", "dclr", "adcse, no head", "consert", "slt-fai", "paser, no mlm", needs=False)
METHODS = {
    "simcse": steps(MNRL, "simcse"),
    "dclr": steps(MNRL, "simcse", "dclr", "dclr, table", "dclr, model", "GISTEmbed"),
    "adcse": steps(MNRL, "simcse", "adcse", "adcse, no head"),
    "consert": steps(MNRL, "simcse", "consert"),
    "slt-fai": steps(MNRL, "simcse", "consert", "slt-fai", "slt-fai over adcse"),
    "paser": steps(MNRL, "simcse", "paser", "paser, no mlm", "TSDAE"),
    "repal": steps("encode", "repal", "repal pooled"),
}
"""By the name of a page."""


def beside_mnrl(row: dict[str, Any]) -> str:
    """Write the milliseconds of a step, beside MNRL's where it is not MNRL itself."""
    ratio = row["ratios"].get(MNRL)
    return f"{row['median_ms']:.0f}" + (f" ({ratio['median']:.2f} x)" if ratio else "")


GPU_CASES = (MNRL, "simcse", "dclr", "adcse, no head", "consert", "slt-fai", "paser, no mlm", "GISTEmbed", "TSDAE")
GPU_RUNS = {
    "64, float32": "20261127-112957",
    "256, float32": "20261127-113315",
    "1,024, float32": "20261127-113609",
    "64, bfloat16": "20261127-113043",
    "256, bfloat16": "20261127-113349",
    "1,024, bfloat16": "20261127-113427",
}
"""The run of each number of sentences a batch, and dtype."""
GPU = Table(
    "step",
    {case: {"fill": {"case": case}} for case in GPU_CASES},
    [
        (title, {"of": ({"study": "speed", "run": run},), "metric": "cases/<case>", "show": picked(beside_mnrl)})
        for title, run in GPU_RUNS.items()
    ],
)
JOBS_RUN = ({"study": "scale", "run": "jobs-20261127-113215"},)


def lowest_and_highest(seconds: list[float]) -> str:
    """Write the seconds of several rounds."""
    return f"{min(seconds):.1f} to {max(seconds):.1f}"


JOBS = Table(
    "job",
    {
        title: {"of": JOBS_RUN, "fill": {"job": job}}
        for title, job in {"encode": "encode", "build a hybrid search": "search", "adapt": "adapt"}.items()
    },
    [("seconds", {"metric": "seconds/<job>", "show": picked(lowest_and_highest)})],
)


def with_range(ratio: dict[str, float]) -> str:
    """Write a ratio, with its lowest and highest value if it was measured more than once."""
    rounds = "" if ratio["lowest"] == ratio["highest"] else f" ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"
    return f"{ratio['median']:.2f} x{rounds}"


def large_batches() -> Table:
    """Return the table of what gradient caching costs: of each loss the record with the most rounds."""
    rows: dict[str, Part] = {}
    for record in sorted(records("large_batches"), key=lambda one: one["settings"]["rounds"]):
        of = ({"study": "large_batches", "run": record["run"]},)
        rows |= {loss: {"of": of, "fill": {"loss": loss}} for loss in record["losses"]}
    one = number("{:.1f}")
    columns: list[tuple[str, Part]] = [
        ("ms a sentence, plain", {"metric": "losses/<loss>/ms_per_sentence/uncached", "show": one}),
        ("cached", {"metric": "losses/<loss>/ms_per_sentence/cached", "show": one}),
        ("time", {"metric": "losses/<loss>/time_ratio", "show": picked(with_range)}),
        ("memory", {"metric": "losses/<loss>/memory_ratio", "show": TIMES}),
        ("rounds", {"metric": "settings/rounds", "show": picked(str)}),
    ]
    return Table("loss", dict(sorted(rows.items())), columns)


_SEARCH = {"embeddings and BM25's index": "parts", "held": "built", "peak": "peak", "more while searching": "searching"}
SEARCH = Table(
    "documents",
    {
        f"{size:,}": {"of": ({"study": "scale", "run": "search-20261127-023316"},), "fill": {"size": str(size)}}
        for size in (100_000, 1_000_000)
    },
    [(f"{title}, MiB", {"metric": f"mib/<size>/{name}", "show": WHOLE}) for title, name in _SEARCH.items()],
)


def milliseconds(row: dict[str, float]) -> str:
    """Write the median of a query, and what 95 % of queries take at most."""
    return f"{row['median']:.0f} ({row['late']:.0f})"


LATENCY = Table(
    "passages",
    {
        f"{size:,}": {"of": ({"study": "scale", "run": f"latency-20261127-{run}"},), "fill": {"size": str(size)}}
        for size, run in ((1000, "111939"), (100_000, "111939"), (1_000_000, "134450"))
    },
    [
        ("one a document, ms", {"metric": "rows/<size>, 1 a document", "show": picked(milliseconds)}),
        ("four a document, ms", {"metric": "rows/<size>, 4 a document", "show": picked(milliseconds)}),
        ("held, MiB", {"metric": "rows/<size>, 1 a document/held", "show": WHOLE}),
        ("more while searching, MiB", {"metric": "rows/<size>, 1 a document/searching", "show": WHOLE}),
    ],
)
"""Of one query; held memory includes BM25. The million is of a second run: other work disturbed the first."""
