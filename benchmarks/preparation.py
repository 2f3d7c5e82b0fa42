"""Throughput of data preparation: phrase masking, and counting tokens.

    python -m benchmarks.preparation masking --data DATA_FOLDER [--sentences 50000 --rounds 5]
    python -m benchmarks.preparation counting --data DATA_FOLDER [--sentences 20000 --rounds 5]
    python -m benchmarks.preparation masking|counting --smoke

``masking`` compares ``PhraseMasking``, called on lists and as ``.dataset()`` in one and two processes, with a plain
extraction loop of rake-nltk (with its default word tokenizer, and with our word pattern; both with our stop words).

``counting`` compares ``FrequencyTable.count`` of a .txt.gz file with the tokenizer alone on the same lines, already in
memory (its batch call, and the faster Rust call without offsets). It then measures the peak memory of counting that
file and the whole corpus, each in a fresh process.

Every round runs every case once, in a new random order, on the same sentences. It prints sentences per second and the
speed relative to the references (median over the rounds), and writes them to ``benchmarks/results/preparation/``. Both
are given by wall clock and by processor time; a busy machine disturbs the latter less, but it shows no gain from more
processes.
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

from benchmarks.provenance import provenance
from benchmarks.records import RESULTS, write_json
from st_extras.samples import sample_sentences
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import PhraseMasking, RakePhrases, read_sentences
from st_extras.text.frequency import FrequencyTable
from st_extras.text.words import WORD

CORPUS = "wiki_sentences.txt.gz"
BATCH = 1000
Case = Callable[[], Any]


def batches(sentences: Sequence[str]) -> Iterable[Sequence[str]]:
    """Split sentences into lists of ``BATCH``."""
    return (sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH))


def rake_loop(sentences: Sequence[str], **tokenizer: Any) -> Case:
    """Return what a user of rake-nltk would write: a loop over the sentences that extracts phrases, without masking."""
    from rake_nltk import Rake

    rake = Rake(stopwords=set(RakePhrases().stop_words), sentence_tokenizer=lambda text: [text], **tokenizer)

    def loop() -> None:
        for sentence in sentences:
            rake.extract_keywords_from_text(sentence)
            rake.get_ranked_phrases_with_scores()

    return loop


def masking_cases(sentences: list[str]) -> tuple[dict[str, Case], tuple[str, ...]]:
    """Return the cases, and the names of those that are the references."""
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
    """Return the cases, and the names of those that are the references."""
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
    """Count a file, and return texts, seconds and the peak memory of this process (Linux only)."""
    began = time.perf_counter()
    table = FrequencyTable.count(file, load_tokenizer())
    status = Path("/proc/self/status").read_text(encoding="utf8")
    kibibytes = int(status.split("VmHWM:")[1].split()[0])
    return {"texts": table.num_texts, "seconds": time.perf_counter() - began, "peak_MiB": kibibytes / 1024}


def in_fresh_process(function: Callable[[Path], dict[str, float]], file: Path) -> dict[str, float]:
    """Call a function with a file in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, file).result()


def clock() -> tuple[float, float]:
    """Return wall clock and processor time in seconds; the latter includes finished child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime


def measure(cases: dict[str, Case], rounds: int, seed: int = 0) -> dict[str, list[tuple[float, float]]]:
    """Measure each case in each round, as :func:`clock` does; one more round before them is a warm-up."""
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
    """Print and return sentences per second, and speed relative to each reference: median, lowest and highest.

    Args:
        spent: wall clock and processor time of each case in each round.
        references: names of the cases to compare with.
        count: sentences in a round.
    """
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


def counting_record(sentences: list[str], rounds: int, corpus: Path | None) -> dict[str, Any]:
    """Measure counting on the sentences, and peak memory on them and on the whole ``corpus``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentences.txt.gz"
        with gzip.open(file, "wt", encoding="utf8") as packed:
            packed.write("\n".join(sentences))
        cases, references = counting_cases(sentences, file)
        rows = summary(measure(cases, rounds), references, len(sentences))
        memory = [in_fresh_process(count_whole, path) for path in (file, corpus) if path is not None]
    for row in memory:
        print(f"{row['texts']:,} texts counted in {row['seconds']:.0f} s, peak memory {row['peak_MiB']:.0f} MiB")
    return {"cases": rows, "memory": memory}


def read_or_repeat(data: Path | None, count: int) -> list[str]:
    """Read ``count`` sentences of the corpus in a data folder, or repeat the sample sentences without one."""
    if data:
        return read_sentences(data / CORPUS, limit=count)
    sample = sample_sentences()
    return [sample[i % len(sample)] for i in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["masking", "counting"])
    parser.add_argument("--data", type=Path, help=f"folder with {CORPUS} (default: repeat the sample sentences)")
    parser.add_argument("--sentences", type=int, help="in a round (default: 50000 for masking, 20000 for counting)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds after the warm-up (default: %(default)s)")
    parser.add_argument("--smoke", action="store_true", help="one round of 100 sentences, write nothing")
    options = parser.parse_args()
    from datasets import disable_progress_bars

    disable_progress_bars()
    count = options.sentences or (50_000 if options.task == "masking" else 20_000)
    count, rounds = (100, 1) if options.smoke else (count, options.rounds)
    sentences = read_or_repeat(options.data, count)
    record: dict[str, Any] = {"what": options.task, "sentences": len(sentences), "rounds": rounds}
    if options.task == "masking":
        cases, references = masking_cases(sentences)
        record["cases"] = summary(measure(cases, rounds), references, len(sentences))
    else:
        record |= counting_record(sentences, rounds, options.data / CORPUS if options.data else None)
    if not options.smoke:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{options.task}.json"
        write_json(RESULTS / "preparation" / name, record | provenance())


if __name__ == "__main__":
    main()
