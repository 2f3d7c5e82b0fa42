"""Pairs of the STS sets: which of them the development set holds too, and how much a score hangs on its pairs.

STS-B was drawn from STS12-16, so that choosing weights on STS-B dev chooses by pairs of the test sets. The study
counts the pairs that are in both.

``pair_figures`` is what a record holds beside its scores: those without the pairs of STS-B dev, and the seven-set
average on resampled pairs. Every record resamples the same pairs, so that two records can be compared pair by pair.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr
from sentence_transformers import SentenceTransformer
from torch import Tensor

from benchmarks.records import run_once
from benchmarks.studies import Options
from st_extras.evaluation import SEVEN_STS, STSDataset, STSEvaluator, load_sts

Array = NDArray[np.float64]
DEV = "stsb_dev"
RESAMPLES = 500
WORD = re.compile(r"\w+")


class KeepsCosines(STSEvaluator):
    """The evaluator of the STS sets.

    After a call, ``cosines`` holds the cosine of every pair, (N,) for each set, and ``vectors`` that of every sentence.
    """

    def __init__(self, datasets: Sequence[STSDataset], **options: Any) -> None:
        super().__init__(datasets, **options)
        self.cosines: dict[str, Array] = {}
        self.vectors: dict[str, Array] = {}

    def encode(self, model: SentenceTransformer, sentences: Sequence[str]) -> Tensor:
        """Return the (N, D) embeddings of the sentences, and keep them."""
        found = super().encode(model, sentences)
        self.vectors = dict(zip(sentences, found.double().cpu().numpy(), strict=True))
        return found

    def _correlation(self, data: STSDataset, similarities: NDArray[Any]) -> float:
        self.cosines[data.name] = similarities.astype(np.float64)
        return super()._correlation(data, similarities)


def pair_keys(pairs: STSDataset) -> list[tuple[str, str]]:
    """Return a key for each pair that does not depend on its sentences' order, case and punctuation, (N,)."""
    sides = ([" ".join(WORD.findall(text.lower())) for text in side] for side in (pairs.sentences1, pairs.sentences2))
    return [(min(pair), max(pair)) for pair in zip(*sides, strict=True)]


def shared_pairs(pairs: STSDataset, dev: STSDataset) -> NDArray[np.bool_]:
    """Say for each pair whether ``dev`` holds it too, in either order, (N,)."""
    known = set(pair_keys(dev))
    return np.array([key in known for key in pair_keys(pairs)], dtype=bool)


def overlap_counts(dev: STSDataset, tests: Sequence[STSDataset]) -> dict[str, Any]:
    """Count the pairs that ``dev`` shares with the test sets.

    Returns:
        ``distinct``: different pairs of ``dev``; ``in_tests``: how many of them any test set holds; ``sets``: for each
        test set its ``pairs`` and how many of them are ``shared``.
    """
    own = set(pair_keys(dev))
    elsewhere = {key for pairs in tests for key in pair_keys(pairs)}
    sets = {pairs.name: {"pairs": len(pairs), "shared": int(shared_pairs(pairs, dev).sum())} for pairs in tests}
    return {"distinct": len(own), "in_tests": len(own & elsewhere), "sets": sets}


def correlation(gold: Array, cosines: Array) -> float:
    """Return Spearman's correlation times 100."""
    return 100 * float(spearmanr(gold, cosines).statistic)


def correlations(gold: Array, cosines: Array) -> Array:
    """Return the same for each row of (R, N) scores and cosines, (R,); 0 for a row whose values are all equal."""
    ranks = [rankdata(values, axis=1) for values in (gold, cosines)]
    left, right = (rank - rank.mean(axis=1, keepdims=True) for rank in ranks)
    lengths = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    found: Array = 100 * (left * right).sum(axis=1) / np.maximum(lengths, 1e-12)
    return found


def pair_figures(tests: Sequence[STSDataset], cosines: Mapping[str, Array], dev: STSDataset) -> dict[str, Any]:
    """Score the test sets without the pairs of ``dev``, and on resampled pairs.

    Args:
        tests: the test sets.
        cosines: the cosine of each pair, (N,) for each set.
        dev: the set that chose the weights.

    Returns:
        ``without_dev``: the score of each set that has pairs left, and their ``average``; ``resampled``: the average
        for each of RESAMPLES draws of as many pairs from each set, with replacement, the same in every record.
    """
    without: dict[str, float] = {}
    drawn = np.zeros(RESAMPLES)
    for pairs in tests:
        gold, found = np.asarray(pairs.scores), cosines[pairs.name]
        kept = ~shared_pairs(pairs, dev)
        if kept.sum() > 1:
            without[pairs.name] = correlation(gold[kept], found[kept])
        generator = np.random.default_rng(zlib.crc32(pairs.name.encode()))
        rows = generator.integers(len(gold), size=(RESAMPLES, len(gold)))
        drawn += correlations(gold[rows], found[rows]) / len(tests)
    if without:
        without["average"] = sum(without.values()) / len(without)
    return {"without_dev": without, "resampled": [round(value, 2) for value in drawn.tolist()]}


def run(study: dict[str, Any], options: Options) -> None:
    """Count the pairs that STS-B dev and the test sets share."""
    dev, *tests = [load_sts(name, options.data) for name in (DEV, *SEVEN_STS)]
    run_once(study["name"], DEV, lambda: overlap_counts(dev, tests), root=options.root)
