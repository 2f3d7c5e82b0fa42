"""Measures a step (forward + backward of a loss, no optimizer) and RepAL's ways to encode.

Each round runs every case once, in a new random order, on the same sentences. Printed and recorded are medians, with
the ratios (taken round by round) to MultipleNegativesRankingLoss, or to plain encoding.

Peak memory is what a step needs on top of the memory in use before it. On CPU it is the growth of the resident set of
a fresh process for each case, by Linux's high-water mark, which is reset before the step; on CUDA it is the peak of
torch's allocator.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

import torch

from benchmarks.memory import forget_peak, in_fresh_process, resident
from benchmarks.provenance import provenance
from benchmarks.records import append
from benchmarks.speed_bench import LENGTH, Bench, Step
from benchmarks.speed_cases import CASES, ENCODED, TRAINED


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
    step = CASES[name](bench)
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
    """Return what a record says about a case: median time, its ratio to the case that it is compared with, and memory.

    Args:
        name: of the case.
        seconds: of each case in each round.
        peak: MiB.
    """
    found: dict[str, Any] = {"median_ms": 1000 * statistics.median(seconds[name]), "ratios": {}, "peak_mib": peak}
    if (other := compared_with(name)) != name:
        each = [a / b for a, b in zip(seconds[name], seconds[other], strict=True)]
        found["ratios"][other] = {"median": statistics.median(each)}
    return found


def compared_with(name: str) -> str:
    """Return the first case of the same kind."""
    return next(iter(TRAINED if name in TRAINED else ENCODED))


def measure_cases(options: argparse.Namespace) -> None:
    """Measure the cases that the command line asks for, print their rows, and append their record."""
    chosen = options.cases or list(CASES)
    names = [name for name in CASES if name in (*chosen, *map(compared_with, chosen))]
    torch.set_num_threads(1)
    alone = in_fresh_process if options.device == "cpu" else lambda function, *given: function(*given)
    peaks = {name: alone(peak_memory, name, options.batch, options.device) for name in names}
    bench = Bench(options.batch, 1 + options.rounds, options.device)
    seconds = measure(bench, {name: CASES[name](bench) for name in names}, options.rounds)
    rows = {name: row(name, seconds, peaks[name]) for name in names}
    for name, found in rows.items():
        figures = f"{found['median_ms']:8.1f} ms {found['peak_mib']:7.0f} MiB"
        ratios = "".join(f"  {ratio['median']:.3f} x {other}" for other, ratio in found["ratios"].items())
        print(f"{name:28} {figures}{ratios}")
    if not options.no_record:
        settings = {"batch": options.batch, "length": LENGTH, "rounds": options.rounds, "device": options.device}
        record = settings | {"full": not options.cases, "clock": "wall", "cases": rows}
        append("speed", time.strftime("%Y%m%d-%H%M%S"), record | provenance())
