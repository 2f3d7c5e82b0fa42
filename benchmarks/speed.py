"""Measures a step (forward + backward of a loss, no optimizer) and RepAL's ways to encode.

Each round runs every case once, in a new random order, on the same sentences. Printed and recorded are medians, with
the ratios (taken round by round) to the bare passes that a loss cannot do without and to
MultipleNegativesRankingLoss.

Peak memory is what a step needs on top of the memory in use before it. On CPU it is the growth of the resident set of
a fresh process for each case, by Linux's high-water mark, which is reset before the step; on CUDA it is the peak of
torch's allocator.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.memory import forget_peak, in_fresh_process, resident
from benchmarks.provenance import provenance
from benchmarks.records import append
from benchmarks.speed_bench import LENGTH, Bench, Step
from benchmarks.speed_cases import CASES


def synchronise() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(bench: Bench, steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each step in each round but a first one; sentences and order are new in every round."""
    order = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(1 + rounds):
        batch = bench.batch(number)
        for name in order.sample(list(steps), len(steps)):
            bench.make_ready(steps[name])
            synchronise()
            began = time.perf_counter()
            steps[name].run(batch)
            synchronise()
            seconds[name].append(time.perf_counter() - began)
            steps[name].module.zero_grad()
    return {name: times[1:] for name, times in seconds.items()}


def peak_memory(name: str, size: int, device: str) -> float:
    """Return the MiB that one step of a case needs at its peak, on top of the memory in use before it."""
    torch.set_num_threads(1)
    bench = Bench(size, 1, device)
    step = CASES[name].build(bench)
    bench.make_ready(step)
    step.run(bench.batch(0, size=2))  # leaves out what libraries allocate once, at the first step
    bench.make_ready(step)
    batch = bench.batch(0)
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step.run(batch)
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    before = forget_peak()
    step.run(batch)
    return (resident("VmHWM") - before) / 2**20


def row(name: str, seconds: dict[str, list[float]], peak: float) -> dict[str, Any]:
    """Return what a record says about a case: median time, ratios and memory.

    Args:
        name: of the case.
        seconds: of each case in each round.
        peak: MiB.
    """
    ratios = {}
    for other, limit in CASES[name].against.items():
        each = [a / b for a, b in zip(seconds[name], seconds[other], strict=True)]
        ratios[other] = {"median": statistics.median(each), "limit": limit}
    return {"median_ms": 1000 * statistics.median(seconds[name]), "ratios": ratios, "peak_mib": peak}


def ratio_words(found: dict[str, Any]) -> list[str]:
    """Describe each ratio of a row, with its limit and whether that was missed."""
    words = []
    for other, ratio in found["ratios"].items():
        limit = "" if ratio["limit"] is None else f" (limit {ratio['limit']:.2f})"
        missed = " MISSED" if limit and ratio["median"] > ratio["limit"] else ""
        words.append(f"{ratio['median']:.3f} x {other}{limit}{missed}")
    return words


def wanted_cases(chosen: Sequence[str] | None) -> list[str]:
    """Return the chosen cases and those that they are compared with, in the order of ``CASES``; all for None."""
    wanted = {name for case in chosen or CASES for name in (case, *CASES[case].against)}
    return [name for name in CASES if name in wanted]


def measure_cases(options: argparse.Namespace) -> None:
    """Measure the cases that the command line asks for, print their rows, and append their record."""
    names = wanted_cases(options.cases)
    torch.set_num_threads(1)
    alone = in_fresh_process if options.device == "cpu" else lambda function, *given: function(*given)
    peaks = {name: alone(peak_memory, name, options.batch, options.device) for name in names}
    bench = Bench(options.batch, 1 + options.rounds, options.device)
    seconds = measure(bench, {name: CASES[name].build(bench) for name in names}, options.rounds)
    rows = {name: row(name, seconds, peaks[name]) for name in names}
    for name, found in rows.items():
        figures = f"{found['median_ms']:8.1f} ms {found['peak_mib']:7.0f} MiB"
        print(f"{name:28} {figures}  {', '.join(ratio_words(found))}")
    if not options.no_record:
        settings = {"batch": options.batch, "length": LENGTH, "rounds": options.rounds, "device": options.device}
        record = settings | {"full": not options.cases, "clock": "wall", "cases": rows}
        append("speed", time.strftime("%Y%m%d-%H%M%S"), record | provenance())
