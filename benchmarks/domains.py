"""What adapting an encoder to a domain does: floors, post-processing, training and ``adapt``, judged by labels.

    python -m benchmarks.domains --data DATA_FOLDER [--encoders minilm --domains banking77 --rows adapt --seeds 0 1]

For each encoder, domain, row and seed it fits on the train texts of ``DATA_FOLDER/domains``, without their labels, and
scores the test texts: 1-NN accuracy, V-measure of k-means, MAP@R, and their mean. STS-B test beside it shows what was
forgotten. Each result is a file in ``benchmarks/results/domains/``; what is there is not run again. The labels
only judge: nothing here chooses by them. ``benchmarks/tables/domains.py`` makes the tables.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from benchmarks.provenance import provenance
from benchmarks.records import RESULTS, write_json
from st_extras.encoders import load_encoder
from st_extras.evaluation import label_scores, load_labeled_texts, sts_evaluator
from st_extras.losses import ConSERTLoss, DCLRLoss, SimCSELoss
from st_extras.modules import AllButTheTopPostProcessor, RepALPostProcessor, WhiteningPostProcessor
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples.encoder import packaged_minilm
from st_extras.text.lexical import character_tfidf
from st_extras.training import train_encoder
from st_extras.training.adaptation import CANDIDATES, Candidate, adapt, with_step

DOMAINS = ("banking77", "clinc150", "stackoverflow")
OWN_ENCODER = "runs/own_encoder/encoder"
FITTED = 10_000  # train texts that a post-processing is fitted on
MEASURES = ("knn_accuracy", "v_measure", "map_at_r", "mean")
_Texts = Sequence[str]


def encoder(name: str) -> SentenceTransformer:
    """Load "minilm" (tuned for similarity), "layers3" (its first 3 layers, raw), "own" (pre-trained, raw) or a path."""
    if name == "layers3":
        return load_encoder(packaged_minilm(), layers=3, pooling="mean", max_seq_length=32)
    if name == "own":
        return load_encoder(OWN_ENCODER, pooling="mean", max_seq_length=32)
    return load_encoder(packaged_minilm() if name == "minilm" else name, max_seq_length=64)


def attached(attach: Callable[..., SentenceTransformer], **options: Any) -> Any:
    """A row: the encoder with post-processing, fitted on the train texts if it takes a corpus."""

    def run(model: SentenceTransformer, texts: _Texts, seed: int, facts: dict[str, Any]) -> SentenceTransformer:
        corpus = random.Random(seed).sample(list(texts), min(FITTED, len(texts)))
        return attach(model, corpus=corpus, **options)

    return run


def sentence_term(model: SentenceTransformer, *_: Any) -> SentenceTransformer:
    return RepALPostProcessor.attach(model, lambda_1=0.3, lambda_2=0, redundancy="pooled")


def neighbours(
    candidate: Candidate, model: SentenceTransformer, texts: _Texts, seed: int, facts: dict[str, Any]
) -> SentenceTransformer:
    """A row: one candidate of ``adapt``, whatever the judge says."""
    from st_extras.modules import pipeline
    from st_extras.modules.encoding import part_of_model

    modules, normalize = pipeline.split_before_normalize(model)
    fitted = random.Random(seed).sample(sorted(set(texts)), min(FITTED, len(set(texts))))
    with part_of_model(model, modules) as part:
        embeddings = part.encode(fitted, batch_size=64, convert_to_tensor=True, show_progress_bar=False)
    step = candidate.affine(neighbor_directions(embeddings, words=character_tfidf(fitted), seed=seed))
    return with_step(model, modules, normalize, *step)


def adapted(
    max_general_loss: float | None, model: SentenceTransformer, texts: _Texts, seed: int, facts: dict[str, Any]
) -> SentenceTransformer:
    """A row: what ``adapt`` picks."""
    options = {"seed": seed, "minutes": 60, "max_general_loss": max_general_loss, "show_progress_bar": False}
    with tempfile.TemporaryDirectory() as folder:
        found = adapt(model, list(texts), Path(folder) / "adapted", **options)
    facts |= {"chosen": found.chosen, "candidates": [vars(row) for row in found.rows], "facts": found.facts}
    return found.model


def trained(
    loss: Any, steps: int, rate: float, model: SentenceTransformer, texts: _Texts, seed: int, facts: dict[str, Any]
) -> SentenceTransformer:
    """A row: the encoder after some steps of training at batch 64."""
    options = {"max_steps": steps, "learning_rate": rate, "seed": seed, "show_progress_bar": False}
    with tempfile.TemporaryDirectory() as folder:
        train_encoder(model, loss, list(texts), Path(folder) / "trained", **options)
    return model


_START = partial(DCLRLoss, complementary_model="start")
_CONSERT_VIEWS = ("feature_cutoff", "shuffle")
ROWS: dict[str, Any] = {
    "start": lambda model, *_: model,
    "centred": attached(AllButTheTopPostProcessor.attach, components=0),
    "all-but-the-top 1": attached(AllButTheTopPostProcessor.attach, components=1),
    "all-but-the-top 3": attached(AllButTheTopPostProcessor.attach, components=3),
    "whitened": attached(WhiteningPostProcessor.attach),
    "whitened to 256": attached(WhiteningPostProcessor.attach, dimensions=256),
    "whitened softly 1": attached(WhiteningPostProcessor.attach, epsilon=1.0),
    "RepAL sentence term 0.3": sentence_term,
    **{one.name: partial(neighbours, one) for one in CANDIDATES},
    "adapt": partial(adapted, 1.0),
    "adapt, general use given up": partial(adapted, None),
    "SimCSE 2e-5, 25 steps": partial(trained, SimCSELoss, 25, 2e-5),
    "ConSERT 2e-5, 25 steps": partial(trained, ConSERTLoss, 25, 2e-5),
    "DCLR start 0.05, 2e-5, 25 steps": partial(trained, partial(_START, masked_share=0.05), 25, 2e-5),
    "DCLR start 0.14, 2e-5, 25 steps": partial(trained, partial(_START, masked_share=0.14), 25, 2e-5),
    "DCLR start 0.14, 2e-5, 50 steps": partial(trained, partial(_START, masked_share=0.14), 50, 2e-5),
    "DCLR start 0.25, 2e-5, 25 steps": partial(trained, partial(_START, masked_share=0.25), 25, 2e-5),
    "DCLR start 0.14 on ConSERT's views, 2e-5, 25 steps": partial(
        trained, partial(_START, masked_share=0.14, augmentations=_CONSERT_VIEWS), 25, 2e-5
    ),
}
SEEDLESS = {"start", "RepAL sentence term 0.3"}
FLOORS = {
    "TF-IDF of words": {"analyzer": "word", "sublinear_tf": True},
    "TF-IDF of characters 3-5": {"analyzer": "char_wb", "ngram_range": (3, 5), "sublinear_tf": True},
}


def floor_scores(options: dict[str, Any], train: _Texts, test: _Texts, labels: Sequence[str]) -> dict[str, float]:
    """Score TF-IDF fitted on the train texts; rows of many columns are rotated to as many columns as there are rows."""
    rows = TfidfVectorizer(**options, dtype=np.float32).fit(train).transform(test)
    gram = torch.from_numpy((rows @ rows.T).toarray()).double()  # same cosines as the rows'
    values, vectors = torch.linalg.eigh(gram)
    return scores(vectors * values.clamp_min(0).sqrt() + 1e-9, labels)


def scores(embeddings: Tensor, labels: Sequence[str]) -> dict[str, float]:
    """Return each measure times 100."""
    found = label_scores(embeddings.float(), labels)
    return {name: 100 * found[name] for name in MEASURES}


def run_cell(name: str, domain: str, row: str, seed: int, data: Path) -> dict[str, Any]:
    """Run a row and return its record."""
    torch.manual_seed(seed)
    train, test = (load_labeled_texts(data / "domains" / f"{domain}_{part}.tsv.gz") for part in ("train", "test"))
    facts: dict[str, Any] = {}
    began = time.perf_counter()
    if row in FLOORS:
        found = floor_scores(FLOORS[row], train.texts, test.texts, test.labels)
    else:
        model = ROWS[row](encoder(name), train.texts, seed, facts)
        spent = time.perf_counter() - began
        options = {"batch_size": 64, "convert_to_tensor": True, "show_progress_bar": False}
        found = scores(model.encode(list(test.texts), **options), test.labels)
        found["stsb_test"] = 100 * sts_evaluator("stsb_test", data)(model)["stsb_test_spearman_cosine"]
        facts["seconds"] = round(spent, 1)
    return {"encoder": name, "domain": domain, "row": row, "seed": seed, "scores": found, **facts, **provenance()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with domains/ and the STS sets")
    parser.add_argument("--encoders", nargs="+", default=["minilm", "layers3", "own"], help="default: all three")
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, default=list(DOMAINS))
    parser.add_argument("--rows", nargs="+", choices=[*FLOORS, *ROWS], default=[*FLOORS, *ROWS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for row in options.rows:
        for name in [""] if row in FLOORS else options.encoders:
            for domain in options.domains:
                for seed in options.seeds[:1] if row in FLOORS or row in SEEDLESS else options.seeds:
                    parts = "-".join((name or "text", domain, row, f"seed{seed}"))
                    path = RESULTS / "domains" / (parts.replace(" ", "_").replace(",", "").replace("'", "") + ".json")
                    if not path.exists():
                        record = run_cell(name, domain, row, seed, options.data)
                        write_json(path, record)
                        print(f"{parts}: {record['scores']['mean']:.2f}", flush=True)


if __name__ == "__main__":
    main()
