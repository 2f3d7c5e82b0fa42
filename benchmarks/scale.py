"""What large work costs: memory that stays flat, batches beyond memory, and hybrid search.

``memory`` reads the first sentences of one generated text file in four ways: ``CorpusStatistics.compute``,
``WhiteningPostProcessor.attach``, ``FrequencyTable.count`` and ``EmbeddingTable.compute(folder=)``. Each size of each
is a process of its own; the record says how much resident memory it needed at its peak, above what it held when
encoder and libraries were loaded. The encoder is a table of word vectors: nearly all of the time is the library's own.

``batches`` is ``benchmarks/large_batches.py``, ``search`` is ``benchmarks/scale_search.py``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process is one thread, here and in what it starts
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from benchmarks import large_batches
from benchmarks.memory import forget_peak, in_fresh_process, resident
from benchmarks.provenance import provenance
from benchmarks.records import append
from benchmarks.scale_corpus import quick_encoder, trained_encoder, write_corpus
from benchmarks.scale_search import measure_search
from st_extras.encoders import EmbeddingTable
from st_extras.modules import CorpusStatistics, WhiteningPostProcessor
from st_extras.text import stream_sentences
from st_extras.text.frequency import FrequencyTable

MOST_MIB = 300
"""The limit: MiB above the start, whatever the size of the corpus."""
Work = Callable[[Any], Any]


def statistics_compute(folder: Path) -> Work:
    encoder = quick_encoder()
    return lambda sentences: CorpusStatistics.compute(encoder, sentences, batch_size=256)


def whiten_fit(folder: Path) -> Work:
    encoder = quick_encoder()
    return lambda sentences: WhiteningPostProcessor.attach(encoder, dimensions=256, corpus=sentences, batch_size=256)


def frequencies_count(folder: Path) -> Work:
    tokenizer = trained_encoder().tokenizer
    return lambda sentences: FrequencyTable.count(sentences, tokenizer)


def table_compute(folder: Path) -> Work:
    """The trained encoder only tokenizes; the table of word vectors is the guide."""
    pair = trained_encoder(), quick_encoder()
    options: dict[str, Any] = {"folder": folder / "table", "batch_size": 256, "show_progress_bar": False}
    return lambda sentences: EmbeddingTable.compute(*pair, sentences, **options)


READERS: dict[str, Callable[[Path], Work]] = {
    "statistics compute": statistics_compute,
    "whiten fit": whiten_fit,
    "frequencies count": frequencies_count,
    "EmbeddingTable.compute": table_compute,
}


def measure_memory(name: str, corpus: Path, size: int) -> dict[str, float]:
    """Read the first ``size`` sentences; return seconds, and MiB held at the start and needed above it at the peak."""
    with tempfile.TemporaryDirectory() as folder:
        work = READERS[name](Path(folder))
        before, began = forget_peak(), time.perf_counter()
        work(stream_sentences(corpus, limit=size))
        peak, seconds = resident("VmHWM"), time.perf_counter() - began
    return {"sentences": size, "seconds": seconds, "start_mib": before / 2**20, "above_mib": (peak - before) / 2**20}


def memory_record(sizes: list[int], names: list[str]) -> dict[str, Any]:
    """Measure each way to read a corpus at each size, each in a fresh process, and print a line for each."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "sentences.txt"
        write_corpus(corpus, max(sizes))
        for name in names:
            for size in sizes:
                row = in_fresh_process(measure_memory, name, corpus, size)
                rows[name].append(row)
                missed = " MISSED" if row["above_mib"] > MOST_MIB else ""
                print(
                    f"{name:24} {size:>11,} sentences {size / row['seconds']:>9,.0f}/s {row['above_mib']:>5.0f} MiB "
                    f"above {row['start_mib']:.0f} (limit {MOST_MIB}){missed}",
                    flush=True,
                )
    return {"limit_mib": MOST_MIB, "readers": rows}


def measure(options: argparse.Namespace) -> None:
    """Measure what the command line asks for, and append its record."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    if options.what == "batches":
        large_batches.measure_losses(options)
        return
    if options.what == "memory":
        sizes = [200, 400] if options.smoke else [10**4, 10**5, 10**6]
        record = memory_record(sizes, options.only or list(READERS))
    else:
        record = measure_search(1, 0.01) if options.smoke else measure_search(options.rounds)
    if not options.smoke:
        run = f"{options.what}-{time.strftime('%Y%m%d-%H%M%S')}"
        append("scale", run, {"what": options.what, **provenance(), **record})
