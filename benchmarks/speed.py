"""Measures a step (forward + backward of a loss, no optimizer) and RepAL's ways to encode.

Each round runs every case once, in a new random order, on the same sentences. Printed and recorded are medians and
quartiles, with the ratios (taken round by round) to the bare passes that a loss cannot do without and to
MultipleNegativesRankingLoss.

Peak memory is what a step needs on top of the memory in use before it. On CPU it is the growth of the resident set of
a fresh process for each case, by Linux's high-water mark, which is reset before the step; on CUDA it is the peak of
torch's allocator.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.memory import forget_peak, resident
from benchmarks.records import append, provenance
from benchmarks.speed_bench import Batch, Bench, Settings, Step
from benchmarks.speed_cases import CASES

WARM_UP = 1  # rounds before the measured ones


def synchronise() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(bench: Bench, steps: dict[str, Step]) -> dict[str, list[float]]:
    """Return the seconds of each step in each round; sentences and order are new in every round."""
    order = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(WARM_UP + bench.settings.rounds):
        batch = bench.batch(number)
        for name in order.sample(list(steps), len(steps)):
            bench.make_ready(steps[name])
            synchronise()
            began = time.perf_counter()
            with bench.autocast():
                steps[name].run(batch)
            synchronise()
            if number >= WARM_UP:
                seconds[name].append(time.perf_counter() - began)
            steps[name].module.zero_grad()
    return seconds


def peak_memory(bench: Bench, step: Step, batch: Batch) -> float:
    """Return the MiB that one step needs at its peak, on top of the memory in use before it."""
    bench.make_ready(step)
    if bench.model.device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with bench.autocast():
            step.run(batch)
        peak = torch.cuda.max_memory_allocated()
    else:
        before = forget_peak()
        with bench.autocast():
            step.run(batch)
        peak = resident("VmHWM")
    step.module.zero_grad()
    return (peak - before) / 2**20


def fresh_peak_memory(settings: Settings, name: str) -> float:
    """Return :func:`peak_memory` of a case on a bench of its own."""
    transformers_logging.set_verbosity_error()
    bench = Bench(dataclasses.replace(settings, rounds=1), warm_up=0)
    step = CASES[name].build(bench)
    bench.make_ready(step)
    with bench.autocast():
        step.run(bench.batch(0, size=2))  # leaves out what libraries allocate once, at the first step
    return peak_memory(bench, step, bench.batch(0))


def try_peak_memory(settings: Settings, name: str) -> float | None:
    """Return the peak MiB of a case, on CPU in a fresh process; None if memory ran out."""
    try:
        if settings.device != "cpu":
            return fresh_peak_memory(settings, name)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.speed_cases"])
        with ProcessPoolExecutor(1, mp_context=context) as process:
            return process.submit(fresh_peak_memory, settings, name).result()
    except (BrokenProcessPool, torch.cuda.OutOfMemoryError):  # the kernel kills a process that takes too much
        return None


def row(name: str, seconds: dict[str, list[float]], peaks: dict[str, float | None]) -> dict[str, Any]:
    """Return what a record says about a case: median and quartiles of its times and ratios, and memory.

    Args:
        name: of the case.
        seconds: of each case in each round.
        peaks: MiB of each case.
    """
    times = seconds[name]
    ratios = {}
    for other in CASES[name].against:
        if other in seconds:
            low, middle, high = quartiles([a / b for a, b in zip(times, seconds[other], strict=True)])
            ratios[other] = {"median": middle, "quartiles": [low, high], "limit": CASES[name].against[other]}
    low, middle, high = quartiles([1000 * value for value in times])
    return {"median_ms": middle, "quartiles_ms": [low, high], "ratios": ratios, "peak_mib": peaks.get(name)}


def quartiles(values: list[float]) -> list[float]:
    """Return lower quartile, median and upper quartile."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def run_cases(settings: Settings, names: Sequence[str], *, memory: Sequence[str]) -> dict[str, Any]:
    """Measure cases, print and return their rows. A case that runs out of memory is not timed.

    Args:
        settings: of the measurement.
        names: the cases to time.
        memory: the cases whose peak memory is measured.
    """
    peaks = {name: try_peak_memory(settings, name) for name in memory}
    bench = Bench(settings, WARM_UP)
    steps = {name: CASES[name].build(bench) for name in names if peaks.get(name, 0.0) is not None}
    seconds = measure(bench, steps)
    rows = {name: row(name, seconds, peaks) for name in steps}
    print(f"\n{'case':28} {'ms':>8} {'quartiles':>17} {'MiB':>7}  ratios")
    for name, found in rows.items():
        low, high = found["quartiles_ms"]
        peak = "" if found["peak_mib"] is None else f"{found['peak_mib']:.0f}"
        print(f"{name:28} {found['median_ms']:8.1f} {low:8.1f}-{high:8.1f} {peak:>7}  {', '.join(ratio_words(found))}")
    return rows


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
    """Measure the cases that the command line asks for, and append their record."""
    transformers_logging.set_verbosity_error()
    names = wanted_cases(options.cases)
    settings = Settings(
        batch=options.batch,
        length=options.length,
        rounds=options.rounds,
        threads=options.threads,
        device=options.device,
        data=options.data,
        encoder=options.encoder,
        bf16=options.bf16,
    )
    torch.set_num_threads(settings.threads)
    cases = run_cases(settings, names, memory=[] if options.no_memory else names)
    if options.no_record:
        return
    record: dict[str, Any] = {name: getattr(settings, name) for name in ("batch", "length", "rounds", "device", "bf16")}
    record |= {"encoder": settings.encoder and Path(settings.encoder).name}
    record |= {"sentences": "sts_unlabeled" if settings.data else "samples"}
    record |= {"full": not (options.cases or options.no_memory), "clock": "wall", "cases": cases}
    append("speed", time.strftime("%Y%m%d-%H%M%S"), record | provenance())
