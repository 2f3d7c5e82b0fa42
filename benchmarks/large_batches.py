"""Measures what a batch far beyond memory costs with ``mini_batch_size=``: time per sentence, and peak memory.

The encoder is the first three layers of MiniLM. A round takes ``batch`` sentences and runs each loss twice on them,
in a new random order: without gradient caching, in batches of ``mini_batch`` sentences, and with it, in one batch.
A step is forward + backward of the loss, without an optimizer. The ratio of both times is taken round by round; two
forward passes and one backward pass, against one of each, give 4/3 where a backward pass takes twice a forward pass.

Peak memory is that of a fresh process for each case, above what it had before the encoder was loaded: weights,
gradients, batch and activations. On CPU it is the high-water mark of the resident set (Linux only), on CUDA that of
torch's allocator.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import nn

from benchmarks.memory import resident
from benchmarks.provenance import provenance
from benchmarks.records import append
from st_extras.encoders.rows import Features
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


@dataclass(frozen=True)
class Settings:
    """Settings of a measurement.

    Args:
        batch: sentences of a cached step, and of a round.
        mini_batch: sentences that the encoder sees at a time, and of an uncached step.
        rounds: number of rounds.
        threads: threads of torch.
        device: "cpu" or "cuda".
    """

    batch: int = 4096
    mini_batch: int = 64
    rounds: int = 3
    threads: int = 1
    device: str = "cpu"


def batches(model: SentenceTransformer, count: int, size: int, number: int) -> list[Features]:
    """Return the sentences of a round, tokenized, in batches of ``size``."""
    texts = list(islice(cycle(sample_sentences()), count))
    random.Random(number).shuffle(texts)
    parts = [texts[start : start + size] for start in range(0, count, size)]
    return [batch_to_device(model.preprocess(part), model.device) for part in parts]


def run(loss: nn.Module, columns: Sequence[Features]) -> float:
    """Return the seconds of a step on each of the batches, of which the gradients add up."""
    _synchronise()
    began = time.perf_counter()
    for column in columns:
        loss([column]).backward()
    _synchronise()
    return time.perf_counter() - began


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def make(name: str, settings: Settings, *, cached: bool) -> tuple[SentenceTransformer, nn.Module]:
    """Return an encoder in training mode, and a loss on it with or without mini-batches."""
    torch.set_num_threads(settings.threads)
    torch.manual_seed(0)
    model = raw_encoder(settings.device).train()
    loss = LOSSES[name](model, mini_batch_size=settings.mini_batch if cached else None)
    return model, loss.to(settings.device).train()


def measure(names: Sequence[str], settings: Settings) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each loss in each round, "uncached" and "cached"; a small step of each comes before."""
    cases = {(name, cached): make(name, settings, cached=cached) for name in names for cached in (False, True)}
    seconds: dict[str, dict[str, list[float]]] = {name: {"uncached": [], "cached": []} for name in names}
    for model, loss in cases.values():
        run(loss, batches(model, 2 * settings.mini_batch, 2 * settings.mini_batch, 0))
    order = random.Random(0)
    for number in range(settings.rounds):
        for name, cached in order.sample(list(cases), len(cases)):
            model, loss = cases[name, cached]
            columns = batches(model, settings.batch, settings.batch if cached else settings.mini_batch, number)
            loss.zero_grad()
            seconds[name]["cached" if cached else "uncached"].append(run(loss, columns))
    return seconds


def peak_memory(name: str, settings: Settings, cached: bool) -> float:
    """Return the MiB that the encoder, the loss and steps need at their peak, in a process that did nothing yet.

    The steps are those of a round: one with caching, the first eight without it.
    """
    on_cuda = settings.device == "cuda"
    before = 0 if on_cuda else resident("VmRSS")
    model, loss = make(name, settings, cached=cached)
    size = settings.batch if cached else settings.mini_batch
    columns = batches(model, settings.batch, size, 0)[:8]
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak of loading
    run(loss, columns)
    return (torch.cuda.max_memory_allocated() if on_cuda else resident("VmHWM") - before) / 2**20


def peaks(name: str, settings: Settings) -> dict[str, float]:
    """Return :func:`peak_memory` of a loss without and with caching, each in a fresh process."""
    found = {}
    for kind, cached in (("uncached", False), ("cached", True)):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            found[kind] = pool.submit(peak_memory, name, settings, cached).result()
    return found


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
    names = options.only or list(LOSSES)
    memory = {name: None if options.smoke else peaks(name, settings) for name in names}
    seconds = measure(names, settings)
    rows = {name: row(seconds[name], memory[name], settings.batch) for name in names}
    for name, found in rows.items():
        line = f"{name:8} {found['ms_per_sentence']['cached']:6.2f} ms a sentence, "
        line += f"{found['time_ratio']['median']:.2f} x the time of batches of {settings.mini_batch}"
        print(line + ("" if options.smoke else f", {found['memory_ratio']:.2f} x the memory"))
    if not options.smoke:
        record = {"settings": vars(settings), "losses": rows} | provenance()
        append("large_batches", time.strftime("%Y%m%d-%H%M%S"), record)
