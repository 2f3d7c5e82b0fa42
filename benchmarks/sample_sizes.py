"""Whether a sample of a large corpus is enough to count tokens and to fit whitening on.

``counts``: the labels of a ``FrequencyTable`` of a random sample, beside those of the whole corpus: the share of equal
ones among the tokens that the corpus holds, and among their occurrences. ``whitening``: STS-B dev after whitening that
is fitted on a random sample; the samples of one size have no sentence in common.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from sentence_transformers.util import pairwise_cos_sim

from benchmarks.domains import encoded, encoder
from benchmarks.records import run_once
from benchmarks.studies import Options
from benchmarks.texts import DEV
from st_extras.evaluation import load_sts
from st_extras.modules import CorpusStatistics
from st_extras.modules.lambda_search import rank_correlation
from st_extras.modules.linear import whitening_transform
from st_extras.text import read_sentences
from st_extras.text.frequency import FrequencyTable


def equal_labels(sample: FrequencyTable, whole: FrequencyTable) -> dict[str, float]:
    """Return the percentage of equal frequency labels, of the tokens in the whole corpus and of their occurrences."""
    equal = sample.labels() == whole.labels()
    occurs = whole.counts > 0
    return {
        "tokens_equal": 100 * int((equal & occurs).sum()) / int(occurs.sum()),
        "occurrences_equal": 100 * int(whole.counts[equal].sum()) / whole.total,
    }


def count(study: dict[str, Any], options: Options, texts: list[str]) -> None:
    """Count the tokens of each sample, and of all texts."""
    tokenizer = encoder(study["encoder"]).tokenizer
    whole = FrequencyTable.count(texts, tokenizer)
    for size in study["counted"]:
        for seed in study["seeds"]:
            table = FrequencyTable.count(random.Random(seed).sample(texts, size), tokenizer)
            record = {"way": "counts", "sentences": size, "all_sentences": len(texts), "seed": seed}
            record |= equal_labels(table, whole)
            run_once(study["name"], f"counts-{size}-seed{seed}", record.copy, root=options.root)


def whiten(study: dict[str, Any], options: Options, texts: list[str]) -> None:
    """Fit whitening on parts of one sample, which is encoded once, and score STS-B dev."""
    model, pairs = encoder(study["encoder"]), load_sts(DEV, options.data)
    first, second = encoded(model, pairs.sentences1), encoded(model, pairs.sentences2)
    rows = encoded(model, random.Random(0).sample(texts, max(study["fitted"])))
    for size in study["fitted"]:
        for seed in study["seeds"][: len(rows) // size]:
            statistics = CorpusStatistics(rows.size(1)).update(rows[seed * size : (seed + 1) * size])
            apply = whitening_transform(statistics).apply
            score = 100 * rank_correlation(pairwise_cos_sim(apply(first), apply(second)), torch.tensor(pairs.scores))
            record = {"way": "whitening", "sentences": size, "seed": seed, "spearman": score}
            run_once(study["name"], f"whitening-{size}-seed{seed}", record.copy, root=options.root)


def run(study: dict[str, Any], options: Options) -> None:
    """Count and whiten; what has a record stays as it is."""
    texts = read_sentences(options.data / study["corpus"])
    count(study, options, texts)
    whiten(study, options, texts)
