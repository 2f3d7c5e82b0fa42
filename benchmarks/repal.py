"""RepAL and whitening behind finished encoders: what each term gains, and what it costs.

    python -m benchmarks.repal grid --data DATA_FOLDER --output benchmarks/results/repal.json \
        [--encoders minilm-3-mean minilm-5-cls minilm] [--add simcse=/path/to/model:cls]
    python -m benchmarks.repal cost --data DATA_FOLDER --output benchmarks/results/repal_cost.json

``grid`` scores the variants of ``benchmarks/variants.py``, each with two fits: "target" takes mean and whitening from
the sentences of the evaluated set (as in the paper), "general" from those of ``--corpus``: Wikipedia, or for example
the training text. Weights are tuned on STS-B dev alone; for Chinese, on its dev set.

``cost`` measures how many sentences per second each way of encoding takes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance
from benchmarks.records import write_json
from benchmarks.variants import VARIANTS, Array, corpus_vectors, encode, read_pairs, run_variant, texts_of
from st_extras.encoders import load_encoder
from st_extras.evaluation import SEVEN_STS, STSDataset
from st_extras.modules import RepALPostProcessor
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import JiebaKeywords, read_sentences

BUILT = {
    "minilm-3-mean": {"layers": 3, "pooling": "mean", "max_seq_length": 32},
    "minilm-5-cls": {"layers": 5, "pooling": "cls", "max_seq_length": 32},
    "minilm": {},
}
CHINESE = ("zh_stsb_test", "zh_lcqmc")
GENERAL = "wiki_sentences.txt.gz"


def run_encoder(name: str, settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Score all variants behind one encoder, and return the scores by fit and variant.

    Args:
        name: of the encoder, to print.
        settings: options of ``load_encoder``; without ``path``, of the packaged MiniLM.
        options: the command line of ``grid``.
    """
    model = load_encoder(
        settings.get("path") or packaged_minilm(), **{k: v for k, v in settings.items() if k != "path"}
    )
    english = [read_pairs(options.data, test) for test in SEVEN_STS]
    dev = read_pairs(options.data, "stsb_dev")
    chinese = [] if options.no_chinese else [read_pairs(options.data, test) for test in ("zh_stsb_dev", *CHINESE)]
    corpus = read_sentences(options.data / options.corpus, limit=options.general) if options.general else []
    start = time.perf_counter()
    look_up = encode(
        model, texts_of([dev, *english, *chinese]), options.batch_size, options.variants, bf16=options.bf16
    )
    general = corpus_vectors(model, corpus, options.batch_size)
    result: dict[str, Any] = {"encode_seconds": round(time.perf_counter() - start, 1)}
    fits: list[tuple[str, list[STSDataset], Array | None]] = [("english, target fit", [dev, *english], None)]
    if corpus:
        fits.append(("english, general fit", [dev, *english], general))
    if chinese:
        fits.append(("chinese, target fit", chinese, None))
    for title, (tuned_on, *tests), fitted_on in fits:
        result[title] = {}
        for variant in options.variants:
            row = result[title][variant] = run_variant(tuned_on, tests, look_up, fitted_on, VARIANTS[variant])
            print(f"{name:14} {title:22} {variant:22} {row}", flush=True)
    return result


def grid(options: argparse.Namespace) -> None:
    """Score all variants behind each encoder; the record is written after every encoder."""
    encoders: dict[str, dict[str, Any]] = {name: dict(BUILT[name]) for name in options.encoders}
    for item in options.add:
        name, _, where = item.partition("=")
        path, _, pooling = where.partition(":")
        encoders[name] = {"path": path, **({"pooling": pooling} if pooling else {})}
    record: dict[str, Any] = {"study": "repal grid", "bf16": options.bf16}
    record |= {"general_corpus": options.corpus, "general_sentences": options.general, **provenance()}
    record["encoders"] = {}
    for name, settings in encoders.items():
        record["encoders"][name] = {"settings": settings, **run_encoder(name, settings, options)}
        write_json(options.output, record)


def cost(options: argparse.Namespace) -> None:
    """Measure sentences per second of each way to encode: medians over interleaved rounds."""
    texts = read_sentences(options.data / GENERAL, limit=options.sentences)
    extract = JiebaKeywords()
    found = {text: extract(text) for text in texts}
    plain = load_encoder(packaged_minilm(), **BUILT["minilm-3-mean"])
    shared = {"lambda_1": 0.6, "lambda_2": 1.6, "corpus": texts[:100]}
    models = {
        "plain": plain,
        "exact, keywords given": RepALPostProcessor.attach(plain, keywords=found.__getitem__, **shared),
        "exact, jieba": RepALPostProcessor.attach(plain, keywords="jieba", **shared),
        "pooled, keywords given": RepALPostProcessor.attach(
            plain, keywords=found.__getitem__, redundancy="pooled", **shared
        ),
        "pooled, jieba": RepALPostProcessor.attach(plain, keywords="jieba", redundancy="pooled", **shared),
    }
    speeds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(options.rounds + 1):
        for name, model in models.items():
            start = time.perf_counter()
            model.encode(texts, batch_size=options.batch_size)
            if turn:  # the first round is a warm-up
                speeds[name].append(len(texts) / (time.perf_counter() - start))
    record: dict[str, Any] = {"study": "repal cost", "sentences": len(texts), "rounds": options.rounds, **provenance()}
    for name, values in speeds.items():
        ratios = [value / base for value, base in zip(values, speeds["plain"], strict=True)]
        record[name] = {
            "sentences_per_second": round(statistics.median(values), 1),
            "ratio_to_plain": round(statistics.median(ratios), 3),
        }
        print(f"{name:24} {record[name]}")
    write_json(options.output, record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("grid", grid), ("cost", cost)):
        command = commands.add_parser(name)
        command.set_defaults(run=function)
        command.add_argument("--data", type=Path, required=True, help="folder with the STS sets and the corpora")
        command.add_argument("--output", type=Path, required=True, help="file of the record")
        command.add_argument("--batch-size", type=int, default=32)
        if name == "grid":
            command.add_argument("--encoders", nargs="*", default=list(BUILT), choices=list(BUILT))
            command.add_argument("--add", nargs="*", default=[], metavar="NAME=PATH[:POOLING]", help="further encoders")
            command.add_argument(
                "--general", type=int, default=20_000, help="sentences of the corpus to fit on; 0: no general fit"
            )
            command.add_argument("--corpus", default=GENERAL, help="file in the data folder (default: %(default)s)")
            names = [name for name, variant in VARIANTS.items() if not variant.on_text]  # those are --corpus here
            command.add_argument("--variants", nargs="*", default=names, choices=names)
            command.add_argument("--no-chinese", action="store_true", help="leave out the Chinese sets")
            command.add_argument("--bf16", action="store_true", help="encode the sets under bfloat16 autocast")
        else:
            command.add_argument("--sentences", type=int, default=2000, help="number of sentences to encode")
            command.add_argument("--rounds", type=int, default=5, help="rounds after the warm-up")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
