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
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from benchmarks.building import finished_encoders
from benchmarks.figures.cosine_levels import level_separation, model_levels
from benchmarks.pairs import DEV
from benchmarks.records import run_once
from benchmarks.studies import Options, corpus_sentences, named_study
from st_extras.evaluation import GeometryEvaluator, STSDataset, load_sts

POSITIVE = 4.0  # least gold score of a positive pair
BATCH, BATCHES = 256, 20
HIGH = 0.7  # the cosine that DCLR's figure 1 names
ENCODED = 64


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
