"""The texts that a label-free choice asks about: sentences that are easily confused, and perturbed forms of them.

Both are made without labels, dictionaries or downloads.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

LARGEST_POOL = 20_000
"""Sentences searched for neighbours."""
_SAME = 0.8  # TF-IDF cosine above which two sentences count as the same
_OVERLAPS = 2_000  # pairs with the most words in common; as many again are drawn from the rest
_DELETED = 0.15  # share of the words deleted
_SWAPPED = 0.15  # adjacent swaps per word
_FEW = 4  # a sentence of fewer words (a script without spaces, a single word) is cut into letters


def choose_confusable(
    sentences: Sequence[str], size: int, generator: random.Random
) -> tuple[list[str], Tensor, Tensor]:
    """Choose at most ``size`` sentences: half at random, and for each the sentence nearest to it in words.

    Args:
        sentences: distinct sentences.
        size: number of sentences to choose.
        generator: source of every draw.

    Returns:
        N sentences, (P, 2) pairs of their indices, and (P,), the TF-IDF cosine of each pair.
    """
    pool = generator.sample(sentences, min(len(sentences), LARGEST_POOL))
    vectors = TfidfVectorizer(analyzer=lambda text: words_or_letters(text.lower())).fit_transform(pool)
    chosen = _seeds_and_neighbours(vectors, min(size, len(pool)))
    pairs, overlap = _overlapping_pairs(vectors[chosen], generator)
    return [pool[index] for index in chosen], pairs, overlap


def _seeds_and_neighbours(vectors: Any, size: int) -> list[int]:
    """Return the first size / 2 rows of the pool (its order is random), and the nearest unused row of each.

    A row with nearly all words in common is skipped: it is the same sentence, not one to tell apart from it.
    """
    total = vectors.shape[0]
    if size == total:
        return list(range(total))
    seeds = list(range(size - size // 2))
    chosen = dict.fromkeys(seeds)
    scores = (vectors[seeds] @ vectors.T).toarray()  # (size / 2, pool)
    scores[scores > _SAME] = -1.0
    for row in seeds[: size // 2]:
        nearest_first = np.argsort(-scores[row], kind="stable").tolist()
        chosen[next(other for other in nearest_first if other not in chosen)] = None
    return list(chosen)


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


def words_or_letters(sentence: str) -> list[str]:
    """Split the sentence at spaces, or into characters if that gives fewer than four words."""
    words = sentence.split()
    return words if len(words) >= _FEW else list(sentence.strip())


def delete_words(units: Sequence[str], generator: random.Random, share: float = _DELETED) -> list[str]:
    """Delete a random ``share`` of the units (rounded; at least one is deleted, at least one is kept)."""
    return [units[index] for index in _kept_positions(len(units), 1 - share, generator)]


def swap_adjacent(units: Sequence[str], generator: random.Random, share: float = _SWAPPED) -> list[str]:
    """Swap randomly drawn neighbours, as often as ``share`` of the number of units (rounded, at least once)."""
    changed = list(units)
    for _ in range(max(1, round(share * len(units))) if len(units) > 1 else 0):
        left = generator.randrange(len(changed) - 1)
        changed[left], changed[left + 1] = changed[left + 1], changed[left]
    return changed


class PerturbedForms:
    """Four perturbed forms of every sentence: "deletion", "swap", "shortening" and "blending".

    Shortening keeps between 10 and 90 % of a sentence's words, with levels spread evenly over the sentences; blending
    keeps as many and fills the other places with words of another sentence. ``kept`` is the share of the information
    that is left, with words weighted by log((1 + N) / (1 + document frequency)) + 1 over the N sentences.

    Args:
        sentences: N >= 2 sentences.
        generator: source of every draw.

    Attributes:
        texts: form -> N texts.
        kept: form -> (N,), for "shortening" (share of the sentence's weight) and "blending" (share of the blend's).
    """

    def __init__(self, sentences: Sequence[str], generator: random.Random) -> None:
        cut = [words_or_letters(sentence) for sentence in sentences]
        frequency = Counter(word for units in cut for word in set(units))
        weights = {word: math.log((1 + len(cut)) / (1 + count)) + 1 for word, count in frequency.items()}
        shares = [0.1 + 0.8 * (place + 0.5) / len(cut) for place in range(len(cut))]
        generator.shuffle(shares)
        order = generator.sample(range(len(cut)), len(cut))
        partner = {order[place]: order[place - 1] for place in range(len(order))}  # one cycle: never itself

        def weight(units: Sequence[str]) -> float:
            return sum(weights[word] for word in units)

        forms: dict[str, list[list[str]]] = {"deletion": [], "swap": [], "shortening": [], "blending": []}
        kept: dict[str, list[float]] = {"shortening": [], "blending": []}
        for index, units in enumerate(cut):
            forms["deletion"].append(delete_words(units, generator))
            forms["swap"].append(swap_adjacent(units, generator))
            shortened = [units[place] for place in _kept_positions(len(units), shares[index], generator)]
            forms["shortening"].append(shortened)
            kept["shortening"].append(weight(shortened) / weight(units))
            own, other = set(_kept_positions(len(units), shares[index], generator)), cut[partner[index]]
            blended = [unit if place in own else other[place % len(other)] for place, unit in enumerate(units)]
            forms["blending"].append(blended)
            kept["blending"].append(weight([units[place] for place in sorted(own)]) / weight(blended))
        joined = [" " if units == sentence.split() else "" for units, sentence in zip(cut, sentences, strict=True)]
        self.texts = {
            form: [glue.join(text) for glue, text in zip(joined, texts, strict=True)] for form, texts in forms.items()
        }
        self.kept: dict[str, Tensor] = {form: torch.tensor(values) for form, values in kept.items()}


def _kept_positions(count: int, share: float, generator: random.Random) -> list[int]:
    """Draw a ``share`` of the positions 0..count-1 (rounded; at least one, not all of them), in order."""
    keep = min(max(1, round(share * count)), max(1, count - 1))
    return sorted(generator.sample(range(count), keep))
