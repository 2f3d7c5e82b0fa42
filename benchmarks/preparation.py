"""Throughput of data preparation: phrase masking, and counting tokens.

    python -m benchmarks.preparation masking --data DATA_FOLDER [--sentences 50000 --rounds 5]
    python -m benchmarks.preparation counting --data DATA_FOLDER [--sentences 20000 --rounds 5]
    python -m benchmarks.preparation masking|counting --smoke

``masking``: ``PhraseMasking`` called on lists and as ``.dataset()`` in one and two processes, beside the plain
rake-nltk extraction loop (with its default word tokenizer, and with our word pattern, both with our stop words).
``counting``: ``FrequencyTable.count`` of a .txt.gz file beside the tokenizer alone on the same lines, already read
(its batch call, and the faster Rust call without offsets), then the peak memory of counting that file and the whole
corpus, each in a fresh process.

Every round runs every case once, in an order drawn anew, on the same sentences. Rates, and the median over the rounds
of each case's speed relative to the references, are printed and written to ``benchmarks/results/preparation/``, by
the clock on the wall and by processor time (which a busy machine disturbs less, and which shows no gain of processes).
"""

from __future__ import annotations

import argparse
import gzip
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, provenance, write_json
from st_extras.demo import packaged_minilm
from st_extras.samples import sample_sentences
from st_extras.text.corpus import read_sentences
from st_extras.text.frequency import FrequencyTable
from st_extras.text.phrases import PhraseMasking, RakePhrases
from st_extras.text.words import WORD

CORPUS = "wiki_sentences.txt.gz"
BATCH = 1000
Case = Callable[[], Any]


def batches(sentences: Sequence[str]) -> Iterable[Sequence[str]]:
    return (sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH))


def rake_loop(sentences: Sequence[str], **tokenizer: Any) -> Case:
    """What a user of rake-nltk writes: its phrases, sentence by sentence, and no masking."""
    from rake_nltk import Rake

    rake = Rake(stopwords=set(RakePhrases().stopwords), sentence_tokenizer=lambda text: [text], **tokenizer)

    def loop() -> None:
        for sentence in sentences:
            rake.extract_keywords_from_text(sentence)
            rake.get_ranked_phrases_with_scores()

    return loop


def masking_cases(sentences: list[str]) -> tuple[dict[str, Case], tuple[str, ...]]:
    """The cases and, among them, the references."""
    called = PhraseMasking()

    def dataset(processes: int | None) -> Case:
        return lambda: PhraseMasking().dataset(sentences, num_proc=processes)

    cases = {
        "rake-nltk, default words": rake_loop(sentences),
        "rake-nltk, our words": rake_loop(sentences, word_tokenizer=WORD.findall),
        "masking, called": lambda: [called(batch) for batch in batches(sentences)],
        "masking, dataset": dataset(None),
        "masking, dataset, 2 processes": dataset(2),
    }
    return cases, tuple(cases)[:2]


def load_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(packaged_minilm())


def counting_cases(sentences: list[str], file: Path) -> tuple[dict[str, Case], tuple[str, ...]]:
    tokenizer, bare = load_tokenizer(), load_tokenizer().backend_tokenizer
    bare.no_truncation()
    bare.no_padding()
    cases: dict[str, Case] = {
        "tokenizer, batch call": lambda: [tokenizer(batch, add_special_tokens=False) for batch in batches(sentences)],
        "tokenizer, Rust call": lambda: [
            bare.encode_batch_fast(batch, add_special_tokens=False) for batch in batches(sentences)
        ],
        "counting the file": lambda: FrequencyTable.count(file, tokenizer),
    }
    return cases, tuple(cases)[:2]


def count_whole(file: Path) -> dict[str, float]:
    """Texts, seconds and peak memory (Linux) of counting a file; for a process of its own."""
    began = time.perf_counter()
    table = FrequencyTable.count(file, load_tokenizer())
    status = Path("/proc/self/status").read_text(encoding="utf8")
    kibibytes = int(status.split("VmHWM:")[1].split()[0])
    return {"texts": table.num_texts, "seconds": time.perf_counter() - began, "peak_MiB": kibibytes / 1024}


def in_fresh_process(function: Callable[[Path], dict[str, float]], file: Path) -> dict[str, float]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, file).result()


def clock() -> tuple[float, float]:
    """Seconds on the wall, and of processor time, finished child processes included."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime


def measure(cases: dict[str, Case], rounds: int, seed: int = 0) -> dict[str, list[tuple[float, float]]]:
    """What :func:`clock` says of each case in each round; the first round warms up and does not count."""
    order = random.Random(seed)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name in order.sample(list(cases), len(cases)):
            began = clock()
            cases[name]()
            wall, processor = (after - before for before, after in zip(began, clock(), strict=True))
            if number:
                spent[name].append((wall, processor))
    return spent


def summary(
    spent: dict[str, list[tuple[float, float]]], references: Sequence[str], count: int
) -> dict[str, dict[str, Any]]:
    """Sentences a second, and speed relative to each reference: the median over the rounds, lowest and highest."""
    rows: dict[str, dict[str, Any]] = {name: {} for name in spent}
    for kind, position in (("wall", 0), ("processor", 1)):
        seconds = {name: [pair[position] for pair in pairs] for name, pairs in spent.items()}
        print(f"{kind} time")
        for name, times in seconds.items():
            row: dict[str, Any] = {"seconds": times, "per_second": count / statistics.median(times)}
            for reference in references:
                ratios = [theirs / ours for theirs, ours in zip(seconds[reference], times, strict=True)]
                row[f"x {reference}"] = [statistics.median(ratios), min(ratios), max(ratios)]
            rows[name][kind] = row
            shown = ", ".join(f"{row[f'x {reference}'][0]:.2f} x {reference}" for reference in references)
            print(f"  {name:30} {row['per_second']:9,.0f} sentences/s   {shown}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["masking", "counting"])
    parser.add_argument("--data", type=Path, help=f"folder of {CORPUS}; without it, the sample sentences, repeated")
    parser.add_argument("--sentences", type=int, help="of a round; default 50000 for masking, 20000 for counting")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="one round of 100 sentences, nothing written")
    options = parser.parse_args()
    from datasets import disable_progress_bars

    disable_progress_bars()
    count = options.sentences or (50_000 if options.what == "masking" else 20_000)
    count, rounds = (100, 1) if options.smoke else (count, options.rounds)
    if options.data:
        sentences = read_sentences(options.data / CORPUS, limit=count)
    else:
        sample = sample_sentences()
        sentences = [sample[i % len(sample)] for i in range(count)]
    record: dict[str, Any] = {"what": options.what, "sentences": len(sentences), "rounds": rounds}
    if options.what == "masking":
        cases, references = masking_cases(sentences)
        record["cases"] = summary(measure(cases, rounds), references, len(sentences))
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "sentences.txt.gz"
            with gzip.open(file, "wt", encoding="utf8") as packed:
                packed.write("\n".join(sentences))
            cases, references = counting_cases(sentences, file)
            record["cases"] = summary(measure(cases, rounds), references, len(sentences))
            files = [file, options.data / CORPUS] if options.data else [file]
            record["memory"] = [in_fresh_process(count_whole, path) for path in files]
        for row in record["memory"]:
            print(f"{row['texts']:,} texts counted in {row['seconds']:.0f} s, peak memory {row['peak_MiB']:.0f} MiB")
    if not options.smoke:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{options.what}.json"
        write_json(ROOT / "results" / "preparation" / name, record | provenance())


if __name__ == "__main__":
    main()
