"""The spaces of trained encoders, as the papers describe theirs: alignment, uniformity, and cosines.

Of the base model of each study in ``trained``, and of the encoders that the study left in the work folder, one for each
method and seed:

* ``alignment`` and ``uniformity`` (AdCSE, figure 3; PaSeR, figure 6): on STS-B dev, pairs with a score of 4 or more
  against all of its sentences, as SimCSE does it.
* ``levels`` (PaSeR, table 10): mean and variance of the cosines of the pairs of STS-B dev, by level of the gold score;
  ``separation`` is the share of their variance that lies between the levels.
* ``in_batch`` (DCLR, figure 1): cosines of a sentence with the other 255 of its batch, over BATCHES batches of the
  study's training text, no sentence twice: their mean, and how many are above 0.7.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim

from benchmarks.building import finished_encoders
from benchmarks.records import run_once
from benchmarks.studies import Options, named_study
from benchmarks.texts import DEV, corpus_sentences
from st_extras.evaluation import GeometryEvaluator, STSDataset, load_sts

POSITIVE = 4.0  # least gold score of a positive pair
BATCH, BATCHES = 256, 20
HIGH = 0.7  # the cosine that DCLR's figure 1 names
ENCODED = 64
LEVELS = 5
"""Gold scores are 0 to 5: level 0 is [0, 1), and the last one includes 5."""


@dataclass(frozen=True)
class LevelCosines:
    """Cosines of the pairs of a level.

    Attributes:
        name: lowest and highest score, as "0-1".
        count: number of pairs.
        mean: mean cosine; NaN if the level is empty.
        variance: population variance of the cosines; NaN if the level is empty.
    """

    name: str
    count: int
    mean: float
    variance: float


def level_of(scores: ArrayLike) -> NDArray[np.int64]:
    """Return the level of each gold score, (N,)."""
    return np.minimum(np.asarray(scores, dtype=float).astype(int), LEVELS - 1)


def cosine_by_level(cosines: ArrayLike, scores: ArrayLike) -> list[LevelCosines]:
    """Return mean and variance of the cosines in each level of the gold score (PaSeR, table 10).

    Args:
        cosines: (N,), the model's cosine of each pair.
        scores: (N,), the gold score of each pair, 0 to 5.
    """
    found, levels = np.asarray(cosines, dtype=float), level_of(scores)
    result = []
    for level in range(LEVELS):
        inside = found[levels == level]
        mean, variance = (float(inside.mean()), float(inside.var())) if len(inside) else (np.nan, np.nan)
        result.append(LevelCosines(f"{level}-{level + 1}", len(inside), mean, variance))
    return result


def level_separation(levels: Sequence[LevelCosines]) -> float:
    """Share of the cosines' variance that lies between the levels (eta squared): 0 to 1, higher is better.

    It combines PaSeR's two criteria, distant means and little variance within a level. 0 if all cosines are equal.
    """
    filled = [level for level in levels if level.count]
    count = sum(level.count for level in filled)
    mean = sum(level.count * level.mean for level in filled) / count
    between = sum(level.count * (level.mean - mean) ** 2 for level in filled) / count
    within = sum(level.count * level.variance for level in filled) / count
    return between / (between + within) if between + within > 0 else 0.0


def model_levels(
    model: SentenceTransformer, sentences1: Sequence[str], sentences2: Sequence[str], scores: Sequence[float]
) -> list[LevelCosines]:
    """Return the same of a model on N graded pairs."""
    first, second = (model.encode(list(side), convert_to_tensor=True) for side in (sentences1, sentences2))
    return cosine_by_level(pairwise_cos_sim(first, second).cpu(), scores)


def described(model: SentenceTransformer, dev: STSDataset, batches: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return what the module lists of an encoder."""
    pairs = list(zip(dev.sentences1, dev.sentences2, strict=True))
    positives = [pair for pair, score in zip(pairs, dev.scores, strict=True) if score >= POSITIVE]
    texts = [text for pair in pairs for text in pair]
    geometry = GeometryEvaluator(texts, positives, batch_size=ENCODED, write_csv=False)(model)
    levels = model_levels(model, dev.sentences1, dev.sentences2, dev.scores)
    return {
        "alignment": geometry["alignment"],
        "uniformity": geometry["uniformity"],
        "separation": level_separation(levels),
        "levels": {f"{name}_{one.name}": getattr(one, name) for one in levels for name in ("mean", "variance")},
        "in_batch": in_batch(model, batches),
    }


def in_batch(model: SentenceTransformer, batches: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return mean and share above HIGH, in %, of the cosines of two different sentences of a batch."""
    found = []
    for batch in batches:
        units = model.encode(
            list(batch), batch_size=ENCODED, convert_to_tensor=True, normalize_embeddings=True
        ).double()
        first, second = torch.triu_indices(len(batch), len(batch), offset=1)
        found.append((units @ units.T)[first, second])
    cosines = torch.cat(found)
    return {"mean": float(cosines.mean()), "above": 100 * float((cosines > HIGH).double().mean())}


def drawn_batches(sentences: Sequence[str], batches: int = BATCHES, size: int = BATCH) -> list[list[str]]:
    """Draw batches from the distinct sentences, none of them twice; fewer batches if the text has fewer sentences."""
    distinct = sorted(set(sentences))
    drawn = random.Random(0).sample(distinct, min(batches * size, len(distinct) // size * size))
    return [drawn[start : start + size] for start in range(0, len(drawn), size)]


def run(study: dict[str, Any], options: Options) -> None:
    """Describe the base model of each study of ``trained``, and the encoders that it left in the work folder."""
    dev = load_sts(DEV, options.data)
    for of in map(named_study, study["trained"]):
        batches = drawn_batches(corpus_sentences(of["training"], options.data))
        for method, seed, load in finished_encoders(of, options.work):
            fields = {"trained_in": of["name"], "method": method, "seed": seed}
            make = partial(_described, fields, load, dev, batches)
            record = run_once(study["name"], f"{of['name']}-{method}-{seed}", make, root=options.root)
            if record is not None:
                print(f"{method}-{seed}: alignment {record['alignment']:.3f}", flush=True)


def _described(
    fields: dict[str, Any], load: Callable[[], SentenceTransformer], dev: STSDataset, batches: list[list[str]]
) -> dict[str, Any]:
    return fields | described(load(), dev, batches)
