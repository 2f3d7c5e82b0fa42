"""Measures what a batch far beyond memory costs with ``mini_batch_size=``: time per sentence, and peak memory.

The encoder is the first three layers of MiniLM. A round takes ``batch`` sentences and runs each loss twice on them,
in a new random order: without gradient caching, in batches of ``mini_batch`` sentences, and with it, in one batch.
A step is forward + backward of the loss, without an optimizer. The ratio of both times is taken round by round; two
forward passes and one backward pass, against one of each, give 4/3 where a backward pass takes twice a forward pass.

Peak memory is the high-water mark of a fresh process for each case, above what it had before the encoder was loaded:
weights, gradients, batch and activations.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from benchmarks.memory import forget_peak, in_fresh_process, resident
from benchmarks.records import append, provenance
from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, SimCSELoss
from st_extras.samples import sample_sentences
from st_extras.samples.encoder import raw_encoder

LOSSES: dict[str, Callable[..., nn.Module]] = {
    "simcse": SimCSELoss,
    "dclr": lambda model, **options: DCLRLoss(model, complementary_model="self", **options),
    "consert": ConSERTLoss,
    "adcse": AdCSELoss,
}
TIME_LIMIT, MEMORY_LIMIT = 1.45, 1.3
Case = tuple[SentenceTransformer, nn.Module, int]
"""An encoder in training mode, a loss on it, and the sentences of a step."""


@dataclass(frozen=True)
class Settings:
    """Settings of a measurement.

    Args:
        batch: sentences of a cached step, and of a round.
        mini_batch: sentences that the encoder sees at a time, and of an uncached step.
        rounds: number of rounds.
    """

    batch: int = 4096
    mini_batch: int = 64
    rounds: int = 3


def make(name: str, settings: Settings, cached: bool) -> Case:
    """Return a case of a loss, with or without gradient caching."""
    torch.manual_seed(0)
    model = raw_encoder("cpu").train()
    loss = LOSSES[name](model, mini_batch_size=settings.mini_batch if cached else None)
    return model, loss.train(), settings.batch if cached else settings.mini_batch


def seconds_of(case: Case, count: int, number: int, steps: int | None = None) -> float:
    """Run the steps of a round, or its first ones, of which the gradients add up; return their seconds.

    Args:
        case: what is run.
        count: sentences of the round.
        number: of the round, which decides the order of the sentences.
        steps: how many; None: all.
    """
    model, loss, size = case
    texts = list(islice(cycle(sample_sentences()), count))
    random.Random(number).shuffle(texts)
    columns = [model.preprocess(texts[start : start + size]) for start in range(0, count, size)][:steps]
    loss.zero_grad()
    began = time.perf_counter()
    for column in columns:
        loss([column]).backward()
    return time.perf_counter() - began


def measure(names: list[str], settings: Settings) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each loss in each round, "uncached" and "cached"; a small step of each comes before."""
    kinds = {"uncached": False, "cached": True}
    cases = {(name, kind): make(name, settings, cached) for name in names for kind, cached in kinds.items()}
    seconds: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in kinds} for name in names}
    for case in cases.values():
        seconds_of(case, 2 * settings.mini_batch, 0)
    order = random.Random(0)
    for number in range(settings.rounds):
        for name, kind in order.sample(list(cases), len(cases)):
            seconds[name][kind].append(seconds_of(cases[name, kind], settings.batch, number))
    return seconds


def peak_memory(name: str, settings: Settings, cached: bool) -> float:
    """Return the MiB that the encoder, the loss and steps need at their peak, in a process that did nothing yet.

    The steps are those of a round: one with caching, the first eight without it.
    """
    torch.set_num_threads(1)
    before = resident("VmRSS")
    case = make(name, settings, cached)
    forget_peak()  # that of loading
    seconds_of(case, settings.batch, 0, steps=8)
    return (resident("VmHWM") - before) / 2**20


def row(seconds: dict[str, list[float]], mib: dict[str, float] | None, batch: int) -> dict[str, Any]:
    """Return what the record says about a loss: milliseconds a sentence, and both ratios with their limits."""
    ratios = [a / b for a, b in zip(seconds["cached"], seconds["uncached"], strict=True)]
    found: dict[str, Any] = {
        "ms_per_sentence": {kind: 1000 * statistics.median(times) / batch for kind, times in seconds.items()},
        "seconds": seconds,
        "time_ratio": {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)},
        "time_limit": TIME_LIMIT,
    }
    if mib is not None:
        found |= {"peak_mib": mib, "memory_ratio": mib["cached"] / mib["uncached"], "memory_limit": MEMORY_LIMIT}
    return found


def measure_losses(options: argparse.Namespace) -> None:
    """Measure the losses that the command line asks for, and append their record."""
    settings = Settings(16, 4, 1) if options.smoke else Settings(rounds=options.rounds)
    torch.set_num_threads(1)
    names = options.only or list(LOSSES)
    peaks: dict[str, dict[str, float]] = {}
    for name in () if options.smoke else names:
        of_cases = {"uncached": False, "cached": True}.items()
        peaks[name] = {kind: in_fresh_process(peak_memory, name, settings, cached) for kind, cached in of_cases}
    seconds = measure(names, settings)
    rows = {name: row(seconds[name], peaks.get(name), settings.batch) for name in names}
    for name, found in rows.items():
        line = f"{name:8} {found['ms_per_sentence']['cached']:6.2f} ms a sentence, "
        line += f"{found['time_ratio']['median']:.2f} x the time of batches of {settings.mini_batch}"
        print(line + ("" if options.smoke else f", {found['memory_ratio']:.2f} x the memory"))
    if not options.smoke:
        record = {"settings": asdict(settings), "losses": rows} | provenance()
        append("large_batches", time.strftime("%Y%m%d-%H%M%S"), record)
