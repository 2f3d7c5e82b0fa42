"""RepAL and whitening after finished encoders: what each term gains.

Every distinct text goes through the encoder once, for v and the pooled v*, and once more where a variant takes v* from
a masked copy, as in the paper; the variants are arithmetic on these vectors. The weights of a variant are tuned on the
development set alone, then the sets are scored, as Spearman times 100 over all rows of a set together.

A "target" fit takes mean and whitening from the sentences of the evaluated set (as in the paper), a "general" one from
those of ``general_corpus``, such as the training text.

The encoders are those of ``encoders``, by name and options of ``load_encoder``, and those that the runs in ``trained``
(as STUDY/METHOD-SEED) left in the work folder. Trainings score variants too (``run_after``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from benchmarks.records import run_once
from benchmarks.studies import Options, chosen
from benchmarks.texts import DEV
from st_extras.encoders import load_encoder
from st_extras.evaluation import SEVEN_STS, STSDataset, load_sts
from st_extras.modules import CorpusStatistics, RepALPostProcessor, search_lambdas
from st_extras.modules.lambda_search import LAMBDA_1_GRID, LAMBDA_2_GRID, spearman_surface
from st_extras.modules.linear import whitening_transform
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import read_sentences

Array = NDArray[np.float64]
Vectors = tuple[Array, Array]  # v and the pooled v*: each (N, D)
LookUp = Callable[[list[str]], Vectors]
BATCH = 32


@dataclass(frozen=True)
class Variant:
    """A post-processing to score.

    Args:
        whiten: number of dimensions to whiten to, all if there are fewer; None: no whitening.
        lambda_1: weights of the sentence term to choose from.
        lambda_2: weights of the corpus term to choose from.
        redundancy: how v* is made, see :class:`~st_extras.modules.RepALPostProcessor`.
    """

    whiten: int | None = None
    lambda_1: tuple[float, ...] = (0.0,)
    lambda_2: tuple[float, ...] = (0.0,)
    redundancy: Literal["encoder", "pooled"] = "pooled"


VARIANTS = {
    "plain": Variant(),
    "RepAL": Variant(lambda_1=LAMBDA_1_GRID, lambda_2=LAMBDA_2_GRID, redundancy="encoder"),
    "RepAL pooled": Variant(lambda_1=LAMBDA_1_GRID, lambda_2=LAMBDA_2_GRID),
    "sentence term pooled": Variant(lambda_1=LAMBDA_1_GRID),
    "sentence term pooled, weight 0.3": Variant(lambda_1=(0.3,)),
    "whitened 256": Variant(whiten=256),
    "whitened 256 + sentence term pooled": Variant(whiten=256, lambda_1=LAMBDA_1_GRID),
}


def texts_of(sets: Sequence[STSDataset]) -> list[str]:
    """Return the texts of the sets: of each, the first sentences and then the second ones."""
    return [text for pairs in sets for text in (*pairs.sentences1, *pairs.sentences2)]


def encode(
    model: SentenceTransformer,
    texts: list[str],
    batch_size: int,
    *,
    bf16: bool = False,
    redundancy: Literal["encoder", "pooled"] = "pooled",
) -> LookUp:
    """Encode texts, and return a function that looks up both vectors of any of them.

    Args:
        model: the encoder.
        texts: the texts, duplicates allowed.
        batch_size: texts per batch.
        bf16: encode under bfloat16 autocast.
        redundancy: how v* is made.
    """
    distinct = list(dict.fromkeys(texts))
    row = {text: i for i, text in enumerate(distinct)}
    attached = RepALPostProcessor.attach(model, lambda_1=1, lambda_2=0, redundancy=redundancy)
    processor = next(module for module in attached if isinstance(module, RepALPostProcessor))
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        vectors = [part.numpy() for part in processor.parts(distinct, batch_size=batch_size)]

    def look_up(wanted: list[str]) -> Vectors:
        rows = [row[text] for text in wanted]
        plain, pooled = (part[rows].astype(np.float64) for part in vectors)
        return plain, pooled

    return look_up


def corpus_vectors(model: SentenceTransformer, sentences: Sequence[str], batch_size: int) -> Array:
    """Encode a corpus to fit on, (N, D), without the model's ``Normalize``."""
    modules = [module for module in model if type(module).__name__ != "Normalize"]
    plain = SentenceTransformer(modules=modules, device=str(model.device))
    return plain.encode(list(sentences), batch_size=batch_size).astype(np.float64)


def prepare(vectors: Vectors, corpus: Array, whiten: int | None) -> tuple[Vectors, Array]:
    """Return the vectors that RepAL works on, whitened as the package does, and their mean over the corpus, (D,)."""
    if whiten is None:
        return vectors, corpus.mean(axis=0)
    statistics = CorpusStatistics(corpus.shape[1]).update(corpus)
    kernel, offset = (part.numpy() for part in whitening_transform(statistics, 0.0, min(whiten, corpus.shape[1])))
    return (vectors[0] @ kernel + offset, vectors[1] @ kernel + offset), (corpus @ kernel + offset).mean(axis=0)


def halves(vectors: Vectors) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Split (first sentences, second sentences) into (v, v*) of the first ones and of the second ones."""
    n = len(vectors[0]) // 2
    return (vectors[0][:n], vectors[1][:n]), (vectors[0][n:], vectors[1][n:])


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

    def refined(pairs: STSDataset) -> tuple[Vectors, Array]:
        vectors = look_up(texts_of([pairs]))
        return prepare(vectors, vectors[0] if general is None else general, variant.whiten)

    prepared_dev = refined(dev)
    weights, at_edge = (variant.lambda_1[0], variant.lambda_2[0]), False
    if len(variant.lambda_1) * len(variant.lambda_2) > 1:
        vectors, mean = prepared_dev
        found = search_lambdas(*halves(vectors), mean, dev.scores, variant.lambda_1, variant.lambda_2)
        weights, at_edge = (found.lambda_1, found.lambda_2), found.at_edge

    def score(prepared: tuple[Vectors, Array], gold: list[float]) -> float:
        vectors, mean = prepared
        surface = spearman_surface(*halves(vectors), mean, gold, [weights[0]], [weights[1]])
        return round(100 * float(surface[0, 0]), 2)

    def weighted(prepared: tuple[Vectors, Array], pairs: STSDataset) -> float:
        """The mean of the scores of the subsets, by their sizes; NaN where the grades of one are all the same."""
        subsets = [np.flatnonzero(np.asarray(pairs.subsets) == name) for name in dict.fromkeys(pairs.subsets)]
        grades = [[pairs.scores[row] for row in rows] for rows in subsets]
        if any(len(set(of_subset)) < 2 for of_subset in grades):
            return float("nan")
        (v, redundant), mean = prepared
        sides = [np.concatenate([rows, rows + len(pairs)]) for rows in subsets]
        parts = [
            score(((v[side], redundant[side]), mean), of_subset) for side, of_subset in zip(sides, grades, strict=True)
        ]
        return float(np.average(parts, weights=[len(rows) for rows in subsets]))

    result: dict[str, Any] = {"lambda_1": weights[0], "lambda_2": weights[1], "at_edge": at_edge}
    result[dev.name] = score(prepared_dev, dev.scores)
    by_subsets = []
    for pairs in tests:
        prepared = refined(pairs)
        result[pairs.name] = score(prepared, pairs.scores)
        by_subsets.append(weighted(prepared, pairs))
    result["average"] = round(statistics.mean(result[pairs.name] for pairs in tests), 2)
    if np.isfinite(by_subsets).all():
        result["average_wmean"] = round(statistics.mean(by_subsets), 2)
    return result


def run_after(
    model: SentenceTransformer,
    dev: STSDataset,
    tests: list[STSDataset],
    variants: Sequence[str],
    *,
    batch_size: int = 64,
    bf16: bool = False,
) -> dict[str, dict[str, Any]]:
    """Score variants after an encoder, with the target fit.

    Args:
        model: the encoder.
        dev: the set that the weights are tuned on.
        tests: the sets to score.
        variants: names of the variants.
        batch_size: texts per batch.
        bf16: encode under bfloat16 autocast.

    Returns:
        Weights and scores of each variant by its name.
    """
    texts = texts_of([dev, *tests])
    look_ups = {
        way: encode(model, texts, batch_size, bf16=bf16, redundancy=way)
        for way in dict.fromkeys(VARIANTS[name].redundancy for name in variants)
    }
    return {
        name: run_variant(dev, tests, look_ups[VARIANTS[name].redundancy], None, VARIANTS[name]) for name in variants
    }


def score(settings: dict[str, Any], study: dict[str, Any], data: Path) -> dict[str, Any]:
    """Score all variants after one encoder, and return the scores by fit and variant.

    Args:
        settings: options of ``load_encoder``; without ``path``, of the packaged MiniLM.
        study: with ``variants``, ``general_corpus``, ``general_sentences`` and ``bf16``.
        data: the data folder.
    """
    model = load_encoder(**({"path": packaged_minilm()} | settings))
    dev, *tests = [load_sts(name, data) for name in (DEV, *SEVEN_STS)]
    count = study["general_sentences"]
    corpus = read_sentences(data / study["general_corpus"], limit=count) if count else []
    start = time.perf_counter()
    look_up = encode(model, texts_of([dev, *tests]), BATCH, bf16=study["bf16"])
    fits: dict[str, Array | None] = {"english, target fit": None}
    if corpus:
        fits["english, general fit"] = corpus_vectors(model, corpus, BATCH)
    result: dict[str, Any] = {"settings": settings, "encode_seconds": round(time.perf_counter() - start, 1)}
    for title, fitted_on in fits.items():
        result[title] = {
            name: run_variant(dev, tests, look_up, fitted_on, VARIANTS[name]) for name in study["variants"]
        }
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
