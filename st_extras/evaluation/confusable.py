"""Choosing sentences that are easy to confuse: half of them at random, the other half their neighbours in words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from st_extras.evaluation.perturbations import words_or_letters

LARGEST_POOL = 20_000
"""Sentences searched for neighbours."""
_SAME = 0.8  # TF-IDF cosine above which two sentences count as the same
_OVERLAPS = 2_000  # pairs with the most words in common; as many again are drawn from the rest


class ConfusableSentences(NamedTuple):
    """Chosen sentences, and how many words pairs of them share.

    Attributes:
        sentences: N sentences.
        pairs: (P, 2) indices into the sentences.
        overlap: (P,) TF-IDF cosine of each pair.
    """

    sentences: list[str]
    pairs: Tensor
    overlap: Tensor


def choose_confusable(sentences: Sequence[str], size: int, generator: random.Random) -> ConfusableSentences:
    """Choose at most ``size`` sentences: half at random, and for each the sentence nearest to it in words.

    Args:
        sentences: distinct sentences.
        size: number of sentences to choose.
        generator: source of every draw.
    """
    pool = generator.sample(sentences, min(len(sentences), LARGEST_POOL))
    vectors = TfidfVectorizer(analyzer=lambda text: words_or_letters(text.lower())).fit_transform(pool)
    chosen = _seeds_and_neighbours(vectors, min(size, len(pool)))
    pairs, overlap = _overlapping_pairs(vectors[chosen], generator)
    return ConfusableSentences([pool[index] for index in chosen], pairs, overlap)


def _seeds_and_neighbours(vectors: Any, size: int) -> list[int]:
    """Return the first size / 2 rows of the pool (its order is random), and the nearest unused row of each.

    A row with nearly all words in common is skipped: it is the same sentence, not one to tell apart from it.
    """
    total = vectors.shape[0]
    if size == total:
        return list(range(total))
    seeds = list(range(size - size // 2))
    used = set(seeds)
    chosen = list(seeds)
    scores = (vectors[seeds] @ vectors.T).toarray()  # (size / 2, pool)
    scores[scores > _SAME] = -1.0
    for row in seeds[: size // 2]:
        for neighbour in np.argsort(-scores[row], kind="stable"):
            if int(neighbour) not in used:
                used.add(int(neighbour))
                chosen.append(int(neighbour))
                break
    return chosen


def _overlapping_pairs(vectors: Any, generator: random.Random) -> tuple[Tensor, Tensor]:
    """Return (P, 2) pairs of rows, those with most words in common and as many others, and their TF-IDF cosines."""
    scores = torch.from_numpy((vectors @ vectors.T).toarray())
    pairs = torch.triu_indices(len(scores), len(scores), offset=1).T
    overlap = scores[pairs[:, 0], pairs[:, 1]]
    order = overlap.argsort(descending=True, stable=True)
    near, rest = order[:_OVERLAPS], order[_OVERLAPS:]
    drawn = generator.sample(range(len(rest)), min(len(rest), _OVERLAPS))
    kept = torch.cat([near, rest[drawn]])
    return pairs[kept], overlap[kept]
