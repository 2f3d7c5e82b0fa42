"""The spaces of trained encoders, as the papers describe theirs: alignment, uniformity, and cosines.

    python -m benchmarks.trained_spaces --data DATA_FOLDER --studies own_encoder_better [--work runs]

Scores the encoder that each study starts from, and those that it left in ``--work``, one folder for each method and
seed:

* ``alignment`` and ``uniformity`` (AdCSE, figure 3; PaSeR, figure 6): on STS-B dev, pairs with a score of 4 or more
  against all of its sentences, as SimCSE does it.
* ``levels`` (PaSeR, table 10): mean and variance of the cosines of the pairs of STS-B dev, by level of the gold score;
  ``separation`` is the share of their variance that lies between the levels.
* ``in_batch`` (DCLR, figure 1): cosines of a sentence with the other 255 of its batch, over BATCHES batches of the
  study's training text, no sentence twice: their mean, and how many are above 0.7.

Each is a file in ``benchmarks/results/trained_spaces/``; what is there is not run again.
``benchmarks/tables/trained_spaces.py`` makes the tables.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from benchmarks.building import starting_encoder
from benchmarks.figures.cosine_levels import CosineLevelEvaluator
from benchmarks.pairs import DEV
from benchmarks.provenance import provenance
from benchmarks.records import RESULTS, write_json
from benchmarks.studies import corpus_sentences, left_encoders, named_study
from st_extras.encoders import load_encoder
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
    levels = CosineLevelEvaluator(
        dev.sentences1, dev.sentences2, dev.scores, batch_size=ENCODED, write_csv=False
    )(model)  # fmt: skip
    return {
        "alignment": geometry["alignment"],
        "uniformity": geometry["uniformity"],
        "separation": levels.pop("separation"),
        "levels": levels,
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


def encoders(study: dict[str, Any], work: Path) -> Iterator[tuple[str, int, Path | None]]:
    """Yield method, seed and folder of each encoder of a study; its start has no folder."""
    yield "start", 0, None
    yield from left_encoders(study["name"], work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("ST_EXTRAS_DATA"), help="folder with text and STS-B"
    )
    parser.add_argument("--studies", nargs="+", required=True, help="studies whose encoders are in --work")
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder for weights (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for records (default: %(default)s)")
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data FOLDER (or ST_EXTRAS_DATA) must name the folder with STS-B dev and the training text.")
    data = Path(options.data)
    dev = load_sts(DEV, data)
    for study in map(named_study, options.studies):
        batches = drawn_batches(corpus_sentences(study["training"], data))
        for method, seed, folder in encoders(study, options.work):
            path = options.results / "trained_spaces" / f"{study['name']}-{method}-{seed}.json"
            if path.exists():
                continue
            model = starting_encoder(study["encoder"]) if folder is None else load_encoder(folder)
            found = described(model, dev, batches)
            fields = {"study": "trained_spaces", "trained_in": study["name"], "method": method, "seed": seed}
            write_json(path, {**fields, **found, **provenance()})
            print(f"{path.stem}: alignment {found['alignment']:.3f}, uniformity {found['uniformity']:.3f}", flush=True)


if __name__ == "__main__":
    main()
