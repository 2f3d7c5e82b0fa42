"""The speed of each work on a corpus: two sizes, one process and two, beside the call that it needs."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sentence_transformers.base.losses.merged_forward import merge_feature_batches

from benchmarks.records import ROOT
from benchmarks.scale_corpus import quick_tokenizer, trained_encoder, write_corpus
from benchmarks.scale_training import BATCH
from st_extras.text import PhraseMasking, RakePhrases, read_sentences
from st_extras.text.frequency import FrequencyTable

Case = Callable[[], Any]
PROCESSES = (1, 2)
LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
SIZES = {
    "training": (640, 2560),
    "encoding": (2_000, 10_000),
    "counting": (50_000, 250_000),
    "masking": (20_000, 100_000),
}
"""Sentences of the small and of the large run of each work."""


class Work(NamedTuple):
    """A work on a corpus.

    Attributes:
        run: does it on sentences, with a number of processes.
        needed: does the one thing that it cannot do without, in this process.
        bound: what that is.
    """

    run: Callable[[list[str], int], Any]
    needed: Callable[[list[str]], Any]
    bound: str


def training() -> Work:
    """Train SimCSE in processes of their own; needed is forward and backward over the pairs of views."""

    def run(sentences: list[str], processes: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "sentences.txt"
            file.write_text("\n".join(sentences), encoding="ascii")
            command = [
                sys.executable,
                *(LAUNCHER if processes > 1 else ()),
                "-m",
                "benchmarks.scale_training",
                str(file),
            ]
            done = subprocess.run(command, check=False, cwd=ROOT.parent, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")

    model = trained_encoder()

    def needed(sentences: list[str]) -> None:
        model.train()
        for start in range(0, len(sentences), BATCH):
            features = model.preprocess(sentences[start : start + BATCH])
            rows: Any = merge_feature_batches([features, features])
            model(rows)["sentence_embedding"].square().mean().backward()
            model.zero_grad()

    return Work(run, needed, "the encoder's passes over two views")


def encoding() -> Work:
    """Encode with ``encode``; needed is tokenizer and forward pass on sentences of similar length."""
    model = trained_encoder()

    def run(sentences: list[str], processes: int) -> None:
        devices: Any = "cpu" if processes == 1 else ["cpu"] * processes
        model.encode(sentences, batch_size=32, device=devices, show_progress_bar=False)

    def needed(sentences: list[str]) -> None:
        model.eval()
        ordered = sorted(sentences, key=len)
        with torch.no_grad():
            for start in range(0, len(ordered), 32):
                model(model.preprocess(ordered[start : start + 32]))

    return Work(run, needed, "tokenizer and encoder")


def counting() -> Work:
    """Count tokens; needed is the tokenizer's batch call without offsets."""
    tokenizer, bare = trained_encoder().tokenizer, quick_tokenizer()
    bare.no_truncation()
    bare.no_padding()

    def run(sentences: list[str], processes: int) -> None:
        FrequencyTable.count(sentences, tokenizer, num_processes=processes)

    def needed(sentences: list[str]) -> None:
        for start in range(0, len(sentences), 1000):
            bare.encode_batch_fast(sentences[start : start + 1000], add_special_tokens=False)

    return Work(run, needed, "the tokenizer's batch call")


def masking() -> Work:
    """Make PaSeR's rows; needed is the extractor of phrases."""
    extract = RakePhrases()

    def run(sentences: list[str], processes: int) -> None:
        PhraseMasking().dataset(sentences, num_proc=None if processes == 1 else processes)

    return Work(run, lambda sentences: [extract(sentence) for sentence in sentences], "the extractor of phrases")


WORKS: dict[str, Callable[[], Work]] = {
    "training": training,
    "encoding": encoding,
    "counting": counting,
    "masking": masking,
}


def cases_of(work: Work, small: list[str], large: list[str]) -> dict[str, Case]:
    """Return the cases of a work: the needed call on the large run, and both runs with each number of processes."""
    cases: dict[str, Case] = {"floor": lambda: work.needed(large)}
    for processes in PROCESSES:
        for name, sentences in (("small", small), ("large", large)):
            cases[f"{name} {processes}"] = lambda sentences=sentences, processes=processes: work.run(
                sentences, processes
            )
    return cases


def seconds_of(cases: dict[str, Case], rounds: int, seed: int = 0) -> dict[str, list[float]]:
    """Return the wall time of each case in each round, in a new random order every round."""
    order = random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name in order.sample(list(cases), len(cases)):
            began = time.perf_counter()
            cases[name]()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def row_of(seconds: dict[str, list[float]], sizes: tuple[int, int]) -> dict[str, Any]:
    """Return sentences per second, of medians over the rounds, by the number of processes and of the needed call.

    "once started" leaves out what a run costs whatever its size: the sentences that the large run has more, by the
    seconds that it takes more. "floor share" is what the needed call takes of that time in one process; NaN where the
    measurement is too short.
    """
    small, large = sizes
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    row: dict[str, Any] = {"sizes": list(sizes), "seconds": seconds, "floor": large / middle["floor"]}
    for processes in PROCESSES:
        more = middle[f"large {processes}"] - middle[f"small {processes}"]
        row[str(processes)] = {
            "small": small / middle[f"small {processes}"],
            "large": large / middle[f"large {processes}"],
            "once started": (large - small) / more if more > 0 else float("nan"),
        }
    row["floor share"] = row["1"]["once started"] / row["floor"]
    return row


def measure_speed(names: Sequence[str], rounds: int, scale: float = 1.0) -> dict[str, Any]:
    """Measure works, print a line for each number of processes, and return the record.

    Args:
        names: of ``WORKS``.
        rounds: how often each case runs.
        scale: factor of the sizes.
    """
    from datasets import disable_progress_bars

    disable_progress_bars()
    rows: dict[str, Any] = {}
    head = f"{'sentences/s':10} {'processes':>9} {'small':>9} {'large':>9} {'once started':>12}"
    print(f"{head}   what bounds it")
    for name in names:
        sizes = zip(SIZES[name], (2 * BATCH, 4 * BATCH), strict=True)  # a step of each process at least
        small, large = (max(int(size * scale), least) for size, least in sizes)
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder) / "sentences.txt", large)
            sentences = read_sentences(Path(folder) / "sentences.txt")
        work = WORKS[name]()
        work.needed(sentences[:BATCH])  # what libraries load at their first call
        row = row_of(seconds_of(cases_of(work, sentences[:small], sentences), rounds), (small, large))
        rows[name] = row | {"bound": work.bound}
        for processes in PROCESSES:
            found = row[str(processes)]
            speeds = f"{found['small']:>9,.0f} {found['large']:>9,.0f} {found['once started']:>12,.0f}"
            bound = f"{100 * row['floor share']:.0f} % is {work.bound}" if processes == 1 else ""
            print(f"{name:10} {processes:>9} {speeds}   {bound}", flush=True)
    return {"rounds": rounds, "works": rows}
