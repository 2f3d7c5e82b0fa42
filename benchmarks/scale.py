"""What hybrid search and ``adapt`` cost: time and memory of a query, seconds of the jobs.

``latency`` searches random embeddings, four passages a document, with one query at a time, as a server does: of
1,000, 100,000 and 1,000,000 passages, and with one passage a document. It prints elapsed milliseconds a query (median
and 95th percentile), and MiB: held, and above that while searching. About 15 minutes on one quiet core, 6 GB::

    python -m benchmarks scale latency

``jobs`` takes the elapsed seconds of ``adapt`` and of building a hybrid search, of 10,000 texts, on a processor or GPU,
beside the one call of ``encode`` that both need; they take turns in each round.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process is one thread, here and in what it starts
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from benchmarks.memory import forget_peak, in_fresh_process, resident
from benchmarks.records import append, provenance
from benchmarks.speed_bench import sentences
from st_extras.adaptation import AdaptationOptions, adapt
from st_extras.encoders import load_encoder
from st_extras.encoders.passages import Passages
from st_extras.ranking import EmbeddingBlocks
from st_extras.samples.encoder import packaged_minilm
from st_extras.search import HybridSearch
from st_extras.text import read_sentences
from st_extras.text.documents import Document
from st_extras.text.term_weights import WordCounts

MOST_MIB = 300
"""The limit of what a search needs above what is held, in MiB."""
_LENGTHS = range(5, 26)  # words of a sentence
_DIMENSIONS = 384
DOCUMENTS, MANY = 100_000, 1_000_000
JOB_TEXTS = 10_000
PASSAGES, LATENCY_QUERIES = 4, 100
"""Of a document, and of each size."""
WEIGHT = 0.02  # finding it would be work that the bare parts do not have


def write_corpus(path: Path, count: int, seed: int = 0) -> None:
    """Write ``count`` sentences of 5 to 25 words each, one per line; words are as frequent as Zipf's law has them."""
    generator = random.Random(seed)
    vocabulary = sorted(quick_tokenizer().get_vocab().items(), key=lambda item: item[1])
    words = [word for word, _ in vocabulary if word.isascii() and word.isalpha() and len(word) > 1]
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    with path.open("w", encoding="ascii") as file:
        for _ in range(count):
            drawn = generator.choices(words, cum_weights=weights, k=generator.choice(_LENGTHS))
            file.write(" ".join(drawn) + "\n")


def quick_tokenizer() -> Tokenizer:
    """Return the tokenizer of the packaged MiniLM, as the tokenizers library has it."""
    return Tokenizer.from_file(f"{packaged_minilm()}/tokenizer.json")


def quick_encoder() -> SentenceTransformer:
    """Return an encoder that does next to nothing for a sentence: the mean of random vectors of its tokens."""
    generator = torch.Generator().manual_seed(0)
    tokenizer = quick_tokenizer()
    tokenizer.no_padding()
    vectors = torch.randn((tokenizer.get_vocab_size(), _DIMENSIONS), generator=generator)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors.numpy())], device="cpu")


def build(model: Any, documents: list[str]) -> HybridSearch:
    return HybridSearch(model, documents, bm25_weight=WEIGHT)


def random_search(documents: list[str], each: int) -> HybridSearch:
    """Return a search of N documents with ``each`` passages, whose embeddings are random."""
    model, generator = quick_encoder(), np.random.default_rng(0)
    count = len(documents) * each
    search = HybridSearch(model, documents[:1], bm25_weight=WEIGHT)
    rows = generator.standard_normal((count, _DIMENSIONS), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    search._state = replace(
        search._state,
        documents=[Document(number, "", text) for number, text in enumerate(documents)],
        passages=Passages(np.arange(0, count + 1, each), np.zeros((count, 2), dtype=np.int32)),
        embeddings=EmbeddingBlocks.of(rows),
        words=WordCounts.of(documents),
    )
    return search


def latency_of(corpus: Path, passages: int, each: int) -> dict[str, float]:
    """Search in this process: milliseconds of a query, MiB that are held, and above these while searching."""
    documents = read_sentences(corpus, limit=passages // each)
    started = forget_peak()
    built = random_search(documents, each)
    queries = documents[:LATENCY_QUERIES]
    built.search(queries[:1])  # what is made at the first call
    before = forget_peak()
    seconds = []
    for query in queries:
        began = time.perf_counter()
        built.search(query)
        seconds.append(time.perf_counter() - began)
    median, late = np.quantile(seconds, (0.5, 0.95)) * 1000
    above = resident("VmHWM") - before
    return {"median": median, "late": late, "held": (before - started) / 2**20, "searching": above / 2**20}


def measure_latency(scale: float = 1.0) -> dict[str, Any]:
    """Measure a query of searches of several sizes, print it, and return the record."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "sentences.txt"
        write_corpus(corpus, int(MANY * scale))
        for size, each in product((1000, DOCUMENTS, MANY), (1, PASSAGES)):
            count = max(each, int(size * scale))
            row = found[f"{count}, {each} a document"] = in_fresh_process(latency_of, corpus, count, each)
            print(
                f"{count:>9,} passages, {each} a document: {row['median']:.1f} ms a query (95 %: {row['late']:.1f}), "
                f"held {row['held']:,.0f} MiB, searching {row['searching']:,.0f} above (limit {MOST_MIB})",
                flush=True,
            )
    return {"queries": LATENCY_QUERIES, "rows": found}


def measure_jobs(options: argparse.Namespace, scale: float = 1.0) -> dict[str, Any]:
    """Measure ``adapt`` and building a search beside the passes that they need, print it, and return the record."""
    found = sentences(options.data)[: max(500, int(JOB_TEXTS * scale))]
    run = AdaptationOptions(limit=len(found), show_progress_bar=False)
    model = load_encoder(options.encoder or packaged_minilm(), device=options.device, dtype="float32")
    seconds: dict[str, list[float]] = {}

    def adapted() -> None:
        with tempfile.TemporaryDirectory() as folder:
            adapt(model, found, Path(folder) / "adapted", options=run)

    jobs: dict[str, Callable[[], Any]] = {
        "encode": lambda: model.encode(found, batch_size=64, show_progress_bar=False),
        "adapt": adapted,
        "search": lambda: build(model, found),
    }
    for job in jobs.values():
        job()  # what libraries load at their first call
    for number in range(options.rounds):
        for name, job in sorted(jobs.items(), reverse=bool(number % 2)):
            began = time.perf_counter()
            job()
            seconds.setdefault(name, []).append(time.perf_counter() - began)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    for name, value in middle.items():
        print(f"{name:6} {value:8.2f} s of {len(found):,} texts: {value / middle['encode']:.2f} x encode", flush=True)
    return {"texts": len(found), "rounds": options.rounds, "device": options.device, "seconds": seconds}


def measure(options: argparse.Namespace) -> None:
    """Measure what the command line asks for, and append its record."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    scale = 0.01 if options.smoke else 1.0
    record = {
        "latency": lambda: measure_latency(scale),
        "jobs": lambda: measure_jobs(options, scale),
    }[options.what]()
    if not options.smoke:
        name = f"{options.what}-{time.strftime('%Y%m%d-%H%M%S')}"
        append("scale", name, {"what": options.what, **provenance(), **record})
