"""RepAL and whitening after finished encoders: what each term gains.

It scores the variants of ``benchmarks/variants.py``, each with two fits: "target" takes mean and whitening from the
sentences of the evaluated set (as in the paper), "general" from those of ``general_corpus``: Wikipedia, or for example
the training text. Weights are tuned on STS-B dev alone; for Chinese, on its dev set.

The encoders are those of ``encoders``, by name and options of ``load_encoder``, and those that the runs in ``trained``
(as STUDY/METHOD-SEED) left in the work folder.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.records import run_once
from benchmarks.studies import Options, chosen
from benchmarks.variants import VARIANTS, Array, corpus_vectors, encode, read_pairs, run_variant, texts_of
from st_extras.encoders import load_encoder
from st_extras.evaluation import SEVEN_STS, STSDataset
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import read_sentences

CHINESE = ("zh_stsb_test", "zh_lcqmc")
BATCH = 32


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
