"""What the memory settings of Linux's C library do to a step on the CPU: the same steps, with and without them.

    python -m benchmarks.allocator [--cases simcse paser --rounds 3]

By default glibc gives large buffers back to the system after each use, and the system clears every page of the next
one. ``TUNED`` keeps them, and asks for large pages. The setting is read when a process starts, so each round runs
``benchmarks.speed`` once with it and once without it, in a new order, each in a process of its own. The results are the
same to the bit. The record is written to ``benchmarks/results/allocator/``; ``benchmarks/tables/cost.py`` makes the
table.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.provenance import provenance
from benchmarks.records import RESULTS, records, write_json

VARIABLE = "GLIBC_TUNABLES"
TUNED = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184"
SETTINGS = {"default": None, "tuned": TUNED}
OURS = ("simcse", "dclr", "adcse", "consert", "paser", "encode")


def environment(setting: str) -> dict[str, str]:
    """Return the environment of a process with a setting, and without what it had of this kind."""
    value = SETTINGS[setting]
    rest = {name: held for name, held in os.environ.items() if name != VARIABLE and not name.startswith("MALLOC_")}
    return rest if value is None else {**rest, VARIABLE: value}


def timed(setting: str, cases: Sequence[str], options: Sequence[str]) -> dict[str, float]:
    """Run ``benchmarks.speed`` in a process with a setting and return the milliseconds of each case."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "speed.json")
        command = [sys.executable, "-m", "benchmarks.speed", "--no-memory", "--output", output, *options]
        subprocess.run([*command, "--cases", *cases], env=environment(setting), check=True, stdout=subprocess.DEVNULL)
        (record,) = records(".", "speed.json", root=Path(folder))
    return {name: record["cases"][name]["median_ms"] for name in cases}


def compared(rounds: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return for each case the median milliseconds of both settings, and of their ratio over the rounds.

    Args:
        rounds: of each round, by setting and case, milliseconds.
    """
    rows = {}
    for name in rounds[0]["default"]:
        before, after = ([one[setting][name] for one in rounds] for setting in SETTINGS)
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        rows[name] = {
            "default_ms": statistics.median(before),
            "tuned_ms": statistics.median(after),
            "ratio": statistics.median(ratios),
            "ratios": [round(ratio, 4) for ratio in ratios],
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(OURS), help="cases of benchmarks.speed")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each setting (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="measured steps of a process (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="sentences in a batch (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="file of the record")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)  # the record says so
    options = ["--rounds", str(given.steps), "--batch", str(given.batch), "--threads", str(given.threads)]
    order, rounds = random.Random(0), []
    for _ in range(given.rounds):
        found = {setting: timed(setting, given.cases, options) for setting in order.sample(list(SETTINGS), 2)}
        rounds.append(found)
        print({name: f"{found['tuned'][name] / found['default'][name]:.2f} x" for name in given.cases}, flush=True)
    record = {"rounds": given.rounds, "steps": given.steps, "batch": given.batch, "threads": given.threads}
    record |= {"cases": compared(rounds), "setting": f"{VARIABLE}={TUNED}", **provenance()}
    path = given.output or RESULTS / "allocator" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    write_json(path, record)


if __name__ == "__main__":
    main()
