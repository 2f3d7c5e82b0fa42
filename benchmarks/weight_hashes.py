"""Hashes the weights of short trainings and some embeddings, to show that a refactoring changed no number.

    python -m benchmarks hashes --output before.json
    python -m benchmarks hashes --compare before.json [--steps 50]

Each loss trains the first three layers of MiniLM for 50 steps of 64 sample sentences with seed 42, and RepAL and
whitening refine embeddings of the sample sentences. Printed are the sha256 of each model.safetensors and of each array
of embeddings. Equal hashes mean equal bits.

Hashes can be compared only between runs on the same processor, with the same versions of torch, transformers and
Sentence Transformers. This program uses one thread and the CPU, because the order of a sum depends on both. 50 steps of
all cases take about ten minutes of one core.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from benchmarks.records import weights_hash
from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, PaSeRLoss, SimCSELoss, SLTFAILoss
from st_extras.modules import RepALPostProcessor, whitening
from st_extras.samples import sample_sentences
from st_extras.samples.encoder import raw_encoder
from st_extras.text import PhraseMasking
from st_extras.text.frequency import FrequencyTable
from st_extras.training import train_encoder

Make = Callable[[SentenceTransformer], nn.Module]


def slt_fai(base: Make | None = None) -> Make:
    """Return a function that makes SLT-FAI with token counts of the sample sentences."""

    def make(model: SentenceTransformer) -> nn.Module:
        table = FrequencyTable.count(sample_sentences(), model.tokenizer)
        base_loss = base(model) if base else None
        return SLTFAILoss(model, frequency_table=table, base_loss=base_loss, warmup_steps=5)

    return make


def dclr_with_all_options(model: SentenceTransformer) -> DCLRLoss:
    """Make DCLR with "self" as guide, a head, unit noise, and views as ConSERT makes them."""
    return DCLRLoss(
        model,
        complementary_model="self",
        threshold=0.6,
        projection=True,
        noise_norm="unit",
        augmentations=["feature_cutoff", "shuffle"],
    )


LOSSES: dict[str, Make] = {
    "simcse": SimCSELoss,
    "dclr": DCLRLoss,
    "adcse": AdCSELoss,
    "consert": ConSERTLoss,
    "slt-fai-simcse": slt_fai(),
    "slt-fai-consert": slt_fai(ConSERTLoss),
    "paser": lambda model: PaSeRLoss(model, num_decoder_layers=1),
    "dclr-self-head": dclr_with_all_options,
}


def training_hash(name: str, steps: int) -> str:
    """Train with a loss of ``LOSSES``, and return the sha256 of the weights file."""
    model, sentences = raw_encoder("cpu"), sample_sentences()
    masked = name == "paser"
    data: Any = PhraseMasking(mask_token=model.tokenizer.mask_token).dataset(sentences) if masked else sentences
    with tempfile.TemporaryDirectory() as folder:
        train_encoder(
            model,
            LOSSES[name],
            data,
            folder,
            seed=42,
            batch_size=64,
            max_steps=steps,
            eval_steps=steps,
            no_duplicates=not masked,
            show_progress_bar=False,
        )
        return weights_hash(Path(folder))


def embedding_hashes() -> Iterator[tuple[str, str]]:
    """Yield the name and hash of embeddings that RepAL and whitening refine."""
    model, corpus = raw_encoder("cpu"), sample_sentences()[:1000]
    repal: dict[str, dict[str, Any]] = {
        "repal-exact": {},
        "repal-pooled": {"redundancy": "pooled", "keywords": "tfidf"},
        "repal-rake": {"keywords": "rake"},
    }
    for name, options in repal.items():
        refined = RepALPostProcessor.attach(model, lambda_1=0.5, lambda_2=1.0, corpus=corpus, **options)
        yield name, encoding_hash(refined)
    whitened = whitening(model, corpus, dimensions=128)
    yield "whitening", encoding_hash(whitened)
    both = RepALPostProcessor.attach(whitened, lambda_1=0.3, lambda_2=0, redundancy="pooled")
    yield "whitening+repal", encoding_hash(both)


def encoding_hash(model: SentenceTransformer) -> str:
    """Return the sha256 of the embeddings of 256 sample sentences."""
    return hashlib.sha256(model.encode(sample_sentences()[:256], batch_size=32).tobytes()).hexdigest()


def hashes(steps: int) -> Iterator[tuple[str, str]]:
    """Yield the name and hash of each case."""
    yield from embedding_hashes()
    for name in LOSSES:
        yield name, training_hash(name, steps)


def compare(steps: int, output: Path | None, with_file: Path | None) -> None:
    """Print each hash; write them to a file, or compare them with one and exit with an error if any differs.

    Args:
        steps: of each training.
        output: file for the hashes, written after every case.
        with_file: file of an earlier run.
    """
    expected = json.loads(with_file.read_text(encoding="utf8")) if with_file else {}
    torch.set_num_threads(1)
    found: dict[str, str] = {}
    for name, value in hashes(steps):
        found[name] = value
        verdict = ("  same" if expected.get(name) == value else "  DIFFERENT") if with_file else ""
        print(f"{name:16} {value}{verdict}", flush=True)
        if output:
            output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")
    wrong = [name for name in found.keys() | expected.keys() if expected.get(name) != found.get(name)]
    if with_file and wrong:
        sys.exit(f"Not the same as in {with_file}: {', '.join(sorted(wrong))}.")
