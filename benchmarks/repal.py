"""RepAL and whitening after finished encoders: what each term gains.

Every distinct text goes through the encoder once for v and v*, and once more for the pooled v*; the variants are
arithmetic on these vectors. The weights of a variant are tuned on the dev set alone (for Chinese, on its own), then the
test sets are scored, as Spearman times 100 over all rows of a set together.

Each variant has two fits: "target" takes mean and whitening from the sentences of the evaluated set (as in the paper),
"general" from those of ``general_corpus``: Wikipedia, or for example the training text.

The encoders are those of ``encoders``, by name and options of ``load_encoder``, and those that the runs in ``trained``
(as STUDY/METHOD-SEED) left in the work folder. Trainings score variants too (``run_after``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from benchmarks.records import run_once
from benchmarks.studies import Options, chosen
from benchmarks.texts import spaced, thinned
from st_extras.encoders import load_encoder
from st_extras.evaluation import SEVEN_STS, STSDataset, load_sts
from st_extras.modules import CorpusStatistics, RepALPostProcessor, search_lambdas
from st_extras.modules.lambda_search import LAMBDA_1_GRID, LAMBDA_2_GRID, spearman_surface
from st_extras.modules.linear import whitening_transform
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import read_sentences

Array = NDArray[np.float64]
Vectors = tuple[Array, Array, Array]  # v, v* of the encoder's own pass, v* pooled: each (N, D)
LookUp = Callable[[list[str]], Vectors]
CHINESE = ("zh_stsb_test", "zh_lcqmc")
BATCH = 32
FIT_ON = 20_000  # sentences of the training text that whitening is fitted on


@dataclass(frozen=True)
class Variant:
    """A post-processing to score.

    Args:
        whiten: number of dimensions to whiten to; 0: all; None: no whitening.
        redundant: which v*: 1 the encoder's own, 2 the pooled one.
        lambda_1: weights of the sentence term to choose from.
        lambda_2: weights of the corpus term to choose from.
        on_text: fit mean and whitening on the training text that ``run_after`` is given.
        epsilon: of the whitening; larger is softer.
    """

    whiten: int | None = None
    redundant: int = 1
    lambda_1: tuple[float, ...] = (0.0,)
    lambda_2: tuple[float, ...] = (0.0,)
    on_text: bool = False
    epsilon: float = 0.0


BOTH: dict[str, Any] = {"lambda_1": LAMBDA_1_GRID, "lambda_2": LAMBDA_2_GRID}
VARIANTS = {
    "plain": Variant(),
    "centred": Variant(lambda_2=(1.0,)),
    "corpus term": Variant(lambda_2=LAMBDA_2_GRID),
    "sentence term": Variant(lambda_1=LAMBDA_1_GRID),
    "RepAL": Variant(**BOTH),
    "RepAL pooled": Variant(redundant=2, **BOTH),
    "sentence term pooled": Variant(redundant=2, lambda_1=LAMBDA_1_GRID),
    "whitened 256": Variant(whiten=256),
    "whitened 256 + sentence term pooled": Variant(whiten=256, redundant=2, lambda_1=LAMBDA_1_GRID),
    "whitened 256 + RepAL": Variant(whiten=256, **BOTH),
    "whitened": Variant(whiten=0),
    "whitened + RepAL": Variant(whiten=0, **BOTH),
    "whitened softly on the text": Variant(whiten=0, on_text=True, epsilon=0.1),
}


def read_pairs(data: Path, name: str) -> STSDataset:
    """Read a set from the data folder. Only the English sets have names that ``load_sts`` knows."""
    file = data / f"{name}.tsv.gz"
    return load_sts(name, file if file.is_file() else data)


def texts_of(sets: Sequence[STSDataset]) -> list[str]:
    """Return the texts of the sets: of each, the first sentences and then the second ones."""
    return [text for pairs in sets for text in (*pairs.sentences1, *pairs.sentences2)]


def encode(
    model: SentenceTransformer, texts: list[str], batch_size: int, variants: list[str], *, bf16: bool = False
) -> LookUp:
    """Encode texts, and return a function that looks up the three vectors of any of them.

    A v* that no variant needs is not computed; v stands in its place.

    Args:
        model: the encoder.
        texts: the texts, duplicates allowed.
        batch_size: texts per batch.
        variants: names of the variants to score.
        bf16: encode under bfloat16 autocast.
    """
    distinct = list(dict.fromkeys(texts))
    row = {text: i for i, text in enumerate(distinct)}
    chosen = [VARIANTS[name] for name in variants]
    used = {variant.redundant for variant in chosen if max(variant.lambda_1) > 0}
    modes = [mode for number, mode in ((1, "encoder"), (2, "pooled")) if number in used]
    found = {}
    for mode in modes or ["pooled"]:
        attached = RepALPostProcessor.attach(model, lambda_1=1, lambda_2=0, redundancy=mode, on_missing_mask="delete")
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


def looked_up(known: Mapping[str, Array]) -> LookUp:
    """Return a function that looks up vectors, which also stand in the place of both v*."""

    def look_up(wanted: list[str]) -> Vectors:
        found = np.stack([known[text] for text in wanted])
        return found, found, found

    return look_up


def corpus_vectors(model: SentenceTransformer, sentences: Sequence[str], batch_size: int) -> Array:
    """Encode a corpus to fit on, (N, D), without the model's ``Normalize``."""
    modules = [module for module in model if type(module).__name__ != "Normalize"]
    plain = SentenceTransformer(modules=modules, device=str(model.device))
    return plain.encode(list(sentences), batch_size=batch_size).astype(np.float64)


def fit_whitening(corpus: Array, dimensions: int, epsilon: float) -> Callable[[Array], Array]:
    """Fit mu and W as the package does, and return the whitening as a function of vectors."""
    statistics = CorpusStatistics(corpus.shape[1]).update(corpus)
    kernel, offset = (part.numpy() for part in whitening_transform(statistics, epsilon, dimensions or None))
    return lambda vectors: vectors @ kernel + offset


def prepare(vectors: Vectors, corpus: Array, whiten: int | None, epsilon: float = 0.0) -> tuple[Vectors, Array]:
    """Return the vectors that RepAL works on, and their mean over the corpus, (D,)."""
    if whiten is None:
        return vectors, corpus.mean(axis=0)
    whitened = fit_whitening(corpus, whiten, epsilon)
    return (whitened(vectors[0]), whitened(vectors[1]), whitened(vectors[2])), whitened(corpus).mean(axis=0)


def halves(vectors: Vectors, which: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Split (first sentences, second sentences) into (v, v*) of the first ones and of the second ones."""
    n = len(vectors[0]) // 2
    return (vectors[0][:n], vectors[which][:n]), (vectors[0][n:], vectors[which][n:])


def run_variant(
    dev: STSDataset, tests: list[STSDataset], look_up: LookUp, general: Array | None, variant: Variant
) -> dict[str, Any]:
    """Tune a variant on ``dev`` and score the test sets.

    Args:
        dev: the set to tune on.
        tests: the sets to score.
        look_up: the vectors of all texts.
        general: vectors of the corpus to fit on, (N, D); None: those of each set.
        variant: the variant.
    """
    which = variant.redundant

    def refined(pairs: STSDataset) -> tuple[Vectors, Array]:
        vectors = look_up(texts_of([pairs]))
        whiten = 0 if variant.whiten and variant.whiten > vectors[0].shape[1] else variant.whiten
        return prepare(vectors, vectors[0] if general is None else general, whiten, variant.epsilon)

    prepared_dev = refined(dev)
    weights, at_edge = (variant.lambda_1[0], variant.lambda_2[0]), False
    if len(variant.lambda_1) * len(variant.lambda_2) > 1:
        vectors, mean = prepared_dev
        grids = variant.lambda_1, variant.lambda_2
        found = search_lambdas(*halves(vectors, which), mean, dev.scores, *grids)
        weights, at_edge = (found.lambda_1, found.lambda_2), found.at_edge

    def score(prepared: tuple[Vectors, Array], gold: list[float]) -> float:
        vectors, mean = prepared
        surface = spearman_surface(*halves(vectors, which), mean, gold, [weights[0]], [weights[1]])
        return round(100 * float(surface[0, 0]), 2)

    result: dict[str, Any] = {"lambda_1": weights[0], "lambda_2": weights[1], "at_edge": at_edge}
    result[dev.name] = score(prepared_dev, dev.scores)
    result |= {pairs.name: score(refined(pairs), pairs.scores) for pairs in tests}
    result["average"] = round(statistics.mean(result[pairs.name] for pairs in tests), 2)
    return result


def run_after(
    model: SentenceTransformer,
    data: Path,
    variants: list[str],
    text: Sequence[str] = (),
    *,
    batch_size: int = 64,
    bf16: bool = False,
    pairs: Mapping[str, int] | None = None,
    known: Mapping[str, Array] | None = None,
) -> dict[str, dict[str, Any]]:
    """Score variants behind an encoder on the seven sets, tuned on STS-B dev.

    Args:
        model: the encoder.
        data: folder with the STS sets.
        variants: names of the variants.
        text: the training text, for the variants that are fitted on it, on FIT_ON of its sentences; the others have
            the target fit.
        batch_size: texts per batch.
        bf16: encode the sets under bfloat16 autocast.
        pairs: how many pairs of each set, as ``thinned`` takes it; None: all.
        known: the vectors of all texts; None: they are encoded, as they are if a variant needs another v*.

    Returns:
        Weights and scores of each variant by its name.
    """
    whole = [read_pairs(data, name) for name in ("stsb_dev", *SEVEN_STS)]
    dev, *tests = [thinned(one, pairs or {}) for one in whole]
    if known and not any(max(VARIANTS[name].lambda_1) for name in variants):
        look_up = looked_up(known)
    else:
        look_up = encode(model, texts_of([dev, *tests]), batch_size, variants, bf16=bf16)
    fitted_on: Array | None = None
    if any(VARIANTS[name].on_text for name in variants):
        with torch.autocast(model.device.type, torch.bfloat16, enabled=bool(known) and bf16):
            fitted_on = corpus_vectors(model, spaced(text, FIT_ON), batch_size)
    return {
        name: run_variant(dev, tests, look_up, fitted_on if VARIANTS[name].on_text else None, VARIANTS[name])
        for name in variants
    }


def score(settings: dict[str, Any], study: dict[str, Any], data: Path) -> dict[str, Any]:
    """Score all variants after one encoder, and return the scores by fit and variant.

    Args:
        settings: options of ``load_encoder``; without ``path``, of the packaged MiniLM.
        study: with ``variants``, ``general_corpus``, ``general_sentences``, ``chinese`` and ``bf16``.
        data: the data folder.
    """
    model = load_encoder(**({"path": packaged_minilm()} | settings))
    english = [read_pairs(data, test) for test in SEVEN_STS]
    dev = read_pairs(data, "stsb_dev")
    chinese = [read_pairs(data, test) for test in ("zh_stsb_dev", *CHINESE)] if study.get("chinese") else []
    count = study["general_sentences"]
    corpus = read_sentences(data / study["general_corpus"], limit=count) if count else []
    variants = study["variants"]
    start = time.perf_counter()
    look_up = encode(model, texts_of([dev, *english, *chinese]), BATCH, variants, bf16=study["bf16"])
    general = corpus_vectors(model, corpus, BATCH)
    result: dict[str, Any] = {"settings": settings, "encode_seconds": round(time.perf_counter() - start, 1)}
    fits: list[tuple[str, list[STSDataset], Array | None]] = [("english, target fit", [dev, *english], None)]
    if corpus:
        fits.append(("english, general fit", [dev, *english], general))
    if chinese:
        fits.append(("chinese, target fit", chinese, None))
    for title, (tuned_on, *tests), fitted_on in fits:
        result[title] = {name: run_variant(tuned_on, tests, look_up, fitted_on, VARIANTS[name]) for name in variants}
    return result | {name: study.get(name) for name in ("bf16", "general_corpus", "general_sentences")}


def run(study: dict[str, Any], options: Options) -> None:
    """Score each encoder that has no record."""
    encoders: dict[str, dict[str, Any]] = dict(study.get("encoders", {}))
    encoders |= {name: {"path": str(options.work / name)} for name in study.get("trained", ())}
    for name in chosen(options.encoders, list(encoders), "--encoders"):
        head: dict[str, Any] = {"name": name}
        if "/" in name:
            trained_in, _, cell = name.partition("/")
            method, _, seed = cell.rpartition("-")
            head |= {"trained_in": trained_in, "method": method, "seed": int(seed)}
        make = partial(lambda head, settings: head | score(settings, study, options.data), head, encoders[name])
        if run_once(study["name"], name, make, root=options.root) is not None:
            print(f"{name}: done", flush=True)
