"""RepAL and whitening on finished encoders: what each term gives, and what it costs.

    python -m benchmarks.repal grid --data DATA_FOLDER --output benchmarks/results/repal.json \
        [--encoders minilm-3-mean minilm-5-cls minilm] [--add simcse=/path/to/model:cls]
    python -m benchmarks.repal cost --data DATA_FOLDER --output benchmarks/results/repal_cost.json

Every distinct text goes through an encoder once for v and v* (and once more for the pooled v*); all variants are then
arithmetic on those vectors. Weights are tuned on STS-B dev alone (Chinese: on its dev set; "by genre": on the mean of
Spearman within each of its subsets), each kind of fit with its own mean there: "target" takes mean and whitening over
the evaluated set's own sentences (the paper's way), "general" over those of ``--corpus``, Wikipedia's or, say, the
training text. Spearman times 100, all rows of a set together.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from benchmarks.common import provenance, write_json
from st_extras.demo import packaged_minilm
from st_extras.evaluation import SEVEN_STS, STSDataset, load_sts
from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor, search_lambdas
from st_extras.modules.loading import load_encoder
from st_extras.modules.tuning import LAMBDA_1_GRID, LAMBDA_2_GRID, spearman_surface
from st_extras.text.corpus import read_sentences
from st_extras.text.keywords import JiebaKeywords

Array = NDArray[np.float64]
Vectors = tuple[Array, Array, Array]  # v, v* of the encoder's own pass, v* pooled: each (N, D)
BUILT = {
    "minilm-3-mean": {"layers": 3, "pooling": "mean", "max_seq_length": 32},
    "minilm-5-cls": {"layers": 5, "pooling": "cls", "max_seq_length": 32},
    "minilm": {},
}
CHINESE = ("zh_stsb_test", "zh_lcqmc")
GENERAL = "wiki_sentences.txt.gz"


@dataclass(frozen=True)
class Variant:
    """A row of the tables."""

    whiten: int | None = None  # to so many dimensions; 0: all; None: not
    redundant: int = 1  # which v*: 1 the encoder's own, 2 the pooled one
    lambda_1: tuple[float, ...] = (0.0,)
    lambda_2: tuple[float, ...] = (0.0,)
    by_genre: bool = False
    on_text: bool = False  # mean and whitening over the training text, where run_after is given it


BOTH: dict[str, Any] = {"lambda_1": LAMBDA_1_GRID, "lambda_2": LAMBDA_2_GRID}
VARIANTS = {
    "plain": Variant(),
    "centred": Variant(lambda_2=(1.0,)),
    "corpus term": Variant(lambda_2=LAMBDA_2_GRID),
    "sentence term": Variant(lambda_1=LAMBDA_1_GRID),
    "RepAL": Variant(**BOTH),
    "RepAL pooled": Variant(redundant=2, **BOTH),
    "RepAL pooled, by genre": Variant(redundant=2, by_genre=True, **BOTH),
    "sentence term pooled": Variant(redundant=2, lambda_1=LAMBDA_1_GRID),
    "whitened 256": Variant(whiten=256),
    "whitened 256 + sentence term pooled": Variant(whiten=256, redundant=2, lambda_1=LAMBDA_1_GRID),
    "whitened 256 + RepAL": Variant(whiten=256, **BOTH),
    "whitened": Variant(whiten=0),
    "whitened + RepAL": Variant(whiten=0, **BOTH),
}
FITTED = {  # what a variant is called where it is fitted on the training text
    "whitened 256": "whitened on the text",
    "whitened 256 + sentence term pooled": "whitened on the text, sentence term pooled",
}
VARIANTS |= {label: replace(VARIANTS[name], on_text=True) for name, label in FITTED.items()}


def read_pairs(data: Path, name: str) -> STSDataset:
    file = data / f"{name}.tsv.gz"  # the Chinese sets are known by their file alone
    return load_sts(name, file if file.is_file() else data)


def texts_of(sets: Sequence[STSDataset]) -> list[str]:
    return [text for pairs in sets for text in (*pairs.sentences1, *pairs.sentences2)]


def encode(
    model: SentenceTransformer, texts: list[str], batch_size: int, variants: list[str], *, bf16: bool = False
) -> Callable[[list[str]], Vectors]:
    """Look-up of the three vectors of any of ``texts``. A v* that no variant asks for is not made (it is v)."""
    distinct = list(dict.fromkeys(texts))
    row = {text: i for i, text in enumerate(distinct)}
    chosen = [VARIANTS[name] for name in variants]
    used = {variant.redundant for variant in chosen if max(variant.lambda_1) > 0}  # where a v* weighs anything
    modes = [mode for number, mode in ((1, "encoder"), (2, "pooled")) if number in used]
    found = {}
    for mode in modes or ["pooled"]:
        attached = RepALPostProcessor.attach(model, lambda_1=1, lambda_2=0, redundancy=mode)
        processor = next(module for module in attached if isinstance(module, RepALPostProcessor))
        with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            found[mode] = processor.parts(distinct, batch_size=batch_size)
    v = next(iter(found.values()))[0]
    vectors = [v.numpy(), *(found[mode][1].numpy() if mode in found else v.numpy() for mode in ("encoder", "pooled"))]

    def look_up(wanted: list[str]) -> Vectors:
        rows = [row[text] for text in wanted]
        first, second, third = (part[rows].astype(np.float64) for part in vectors)
        return first, second, third

    return look_up


def fit_whitening(corpus: Array, dimensions: int) -> Callable[[Array], Array]:
    """Mu and W by the package's own module, as a function of vectors."""
    processor = WhiteningPostProcessor(corpus.shape[1], dimensions or None)
    values = torch.from_numpy(corpus)
    mean = values.mean(dim=0)
    processor._set(mean, (values - mean).T @ (values - mean), len(values))
    mu, kernel = processor.corpus_mean.double().numpy(), processor.kernel.double().numpy()
    return lambda vectors: (vectors - mu) @ kernel


def prepare(vectors: Vectors, corpus: Array, whiten: int | None) -> tuple[Vectors, Array]:
    """The vectors that RepAL works on, and their mean over the corpus."""
    if whiten is None:
        return vectors, corpus.mean(axis=0)
    step = fit_whitening(corpus, whiten)
    return (step(vectors[0]), step(vectors[1]), step(vectors[2])), step(corpus).mean(axis=0)


def halves(vectors: Vectors, which: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    n = len(vectors[0]) // 2
    return (vectors[0][:n], vectors[which][:n]), (vectors[0][n:], vectors[which][n:])


def run_variant(
    dev: STSDataset,
    tests: list[STSDataset],
    look_up: Callable[[list[str]], Vectors],
    general: Array | None,
    variant: Variant,
) -> dict[str, Any]:
    """Tune on dev, score the test sets. ``general``: vectors of the corpus to fit on; None: each set's own."""
    which = variant.redundant

    def refined(pairs: STSDataset) -> tuple[Vectors, Array]:
        vectors = look_up(texts_of([pairs]))
        whiten = 0 if variant.whiten and variant.whiten > vectors[0].shape[1] else variant.whiten
        return prepare(vectors, vectors[0] if general is None else general, whiten)

    prepared_dev = refined(dev)
    weights, at_edge = (variant.lambda_1[0], variant.lambda_2[0]), False
    if len(variant.lambda_1) * len(variant.lambda_2) > 1:
        vectors, mean = prepared_dev
        groups = dev.subsets if variant.by_genre else None
        grids = variant.lambda_1, variant.lambda_2
        found = search_lambdas(*halves(vectors, which), mean, dev.scores, *grids, groups)
        weights, at_edge = (found.lambda_1, found.lambda_2), found.at_edge

    def score(prepared: tuple[Vectors, Array], pairs: STSDataset, groups: list[str] | None = None) -> float:
        vectors, mean = prepared
        surface = spearman_surface(*halves(vectors, which), mean, pairs.scores, [weights[0]], [weights[1]], groups)
        return round(100 * float(surface[0, 0]), 2)

    result: dict[str, Any] = {"lambda_1": weights[0], "lambda_2": weights[1], "at_edge": at_edge}
    result[dev.name] = score(prepared_dev, dev)
    result |= {pairs.name: score(refined(pairs), pairs) for pairs in tests}
    result["average"] = round(statistics.mean(result[pairs.name] for pairs in tests), 2)
    if len(set(dev.subsets)) > 1:
        result["dev_by_genre"] = score(prepared_dev, dev, dev.subsets)
    return result


def run_after(
    model: SentenceTransformer,
    data: Path,
    variants: list[str],
    text: Sequence[str] = (),
    *,
    batch_size: int = 64,
    bf16: bool = False,
) -> dict[str, dict[str, Any]]:
    """Each variant after an encoder, by name: target fit, or fitted on ``text``, tuned on STS-B dev, scores of the
    seven sets.
    """
    dev, *tests = [read_pairs(data, name) for name in ("stsb_dev", *SEVEN_STS)]
    look_up = encode(model, texts_of([dev, *tests]), batch_size, variants, bf16=bf16)
    fits: dict[bool, Array | None] = {False: None}
    if any(VARIANTS[name].on_text for name in variants):
        fits[True] = corpus_vectors(model, text, batch_size)
    return {name: run_variant(dev, tests, look_up, fits[VARIANTS[name].on_text], VARIANTS[name]) for name in variants}


def run_encoder(name: str, settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
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
    tables: list[tuple[str, list[STSDataset], Array | None]] = [("english, target fit", [dev, *english], None)]
    if corpus:
        tables.append(("english, general fit", [dev, *english], general))
    if chinese:
        tables.append(("chinese, target fit", chinese, None))
    for title, (of, *tests), fitted_on in tables:
        result[title] = {}
        for variant in options.variants:
            row = result[title][variant] = run_variant(of, tests, look_up, fitted_on, VARIANTS[variant])
            print(f"{name:14} {title:22} {variant:22} {row}", flush=True)
    return result


def corpus_vectors(model: SentenceTransformer, sentences: Sequence[str], batch_size: int) -> Array:
    """Embeddings to fit on, (N, D), before any ``Normalize``."""
    modules = [module for module in model if type(module).__name__ != "Normalize"]
    plain = SentenceTransformer(modules=modules, device=str(model.device))
    return plain.encode(list(sentences), batch_size=batch_size).astype(np.float64)


def grid(options: argparse.Namespace) -> None:
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
    """Sentences a second of each mode, interleaved: medians over the rounds."""
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
            if turn:  # the first is a warm-up
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
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--output", type=Path, required=True)
        command.add_argument("--batch-size", type=int, default=32)
        if name == "grid":
            command.add_argument("--encoders", nargs="*", default=list(BUILT), choices=list(BUILT))
            command.add_argument("--add", nargs="*", default=[], metavar="NAME=PATH[:POOLING]")
            command.add_argument("--general", type=int, default=20_000, help="sentences of it to fit on; 0: none")
            command.add_argument("--corpus", default=GENERAL, help="file of the data folder (default: %(default)s)")
            names = [name for name, variant in VARIANTS.items() if not variant.on_text]  # that is --corpus here
            command.add_argument("--variants", nargs="*", default=names, choices=names)
            command.add_argument("--no-chinese", action="store_true")
            command.add_argument("--bf16", action="store_true", help="encode the sets under bfloat16 autocast")
        else:
            command.add_argument("--sentences", type=int, default=2000)
            command.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
