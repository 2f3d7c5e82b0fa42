"""Training and refinement in one call: DCLR on ConSERT's views, optional whitening, RepAL's sentence term."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from torch import nn

from st_extras.encoders.structure import embedding_dimension
from st_extras.evaluation import STSDataset, STSEvaluator, UnlabeledSelectionEvaluator
from st_extras.losses import DCLRLoss
from st_extras.modules import RepALPostProcessor, TuningResult, WhiteningPostProcessor
from st_extras.text.corpus import iterate_sentences, reservoir_sample
from st_extras.training.run import TrainingRun, train_encoder
from st_extras.training.run_folder import check_output, save_model

_Module = TypeVar("_Module", bound=nn.Module)

CONSERT_AUGMENTATIONS = ("feature_cutoff", "shuffle")
"""ConSERT's views: changes to the encoder's input, without dropout."""

UNTUNED_LAMBDA_1 = 0.3
"""Weight of RepAL's sentence term if there are no labelled pairs to tune it on."""

MAX_WHITENED_DIMENSIONS = 256
"""Whitened embeddings have this many dimensions, or the encoder's if it has fewer."""

MAX_WHITENING_SENTENCES = 20_000
"""Whitening is fitted on at most this many of the training sentences: evenly spaced, or a random sample of a stream."""


@dataclass(frozen=True)
class Refined:
    """The result of ``train_and_refine``.

    Attributes:
        model: the trained encoder with RepAL attached; ``RepALPostProcessor.detach`` removes it.
        run: the training.
        tuning: the search for the sentence term's weight; None without labelled pairs.
        whitened: whether RepAL works on whitened embeddings.
    """

    model: SentenceTransformer
    run: TrainingRun
    tuning: TuningResult | None
    whitened: bool


def train_and_refine(
    model: SentenceTransformer,
    sentences: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | None = None,
    augmentations: Sequence[str] = CONSERT_AUGMENTATIONS,
    whiten: bool | None = None,
    learning_rate: float = 1e-4,
    max_steps: int = 400,
    eval_steps: int = 25,
    overwrite: bool = False,
    **arguments: Any,
) -> Refined:
    """Train with ``DCLRLoss`` on ConSERT's views, then remove redundancy from each embedding.

    DCLR runs without a complementary encoder. The refinement is RepAL's sentence term (``redundancy="pooled"``), on
    whitened or plain embeddings: the term adds almost no cost to encoding and needs no corpus; whitening is fitted on
    ``sentences``. RepAL's corpus term is not used. See benchmarks/RESULTS.md for what each part gained on which text.

    Args:
        model: the SentenceTransformer to train, in place.
        sentences: what to train on: a list, a Dataset, or an IterableDataset, which is read once for each use: the
            choice of weights without ``dev``, training, and whitening.
        output: a new or empty folder. ``output/encoder`` gets the trained encoder, a plain SentenceTransformer, and
            ``output/refined`` the same encoder with its refinement, for ``st_extras.load``.
        dev: labelled pairs that choose the weights to keep, whether to whiten, and the sentence term's weight. None:
            the sentences alone choose the weights (``UnlabeledSelectionEvaluator``), and the term's weight is 0.3.
        augmentations: how DCLRLoss makes the two views. ConSERT's need an encoder that takes position ids and input
            embeddings, as BERT does; ("dropout", "dropout") works with every encoder.
        whiten: whether to whiten the embeddings before RepAL, to at most 256 dimensions, fitted on at most 20,000 of
            ``sentences``. None: only if ``dev`` scores better with it; without ``dev``, not. Whitening helps encoders
            that had only language-model pre-training, on text similar to ``sentences``; it can harm contrastively tuned
            encoders and other text.
        learning_rate: initial learning rate; decays linearly to 0. Small encoders may need a higher one.
        max_steps: number of optimizer steps.
        eval_steps: steps between evaluations.
        overwrite: replace what ``output`` holds.
        arguments: further arguments of :func:`~st_extras.training.train_encoder`, such as ``batch_size``, ``seed``,
            ``bf16`` and ``lora``; not ``resume`` or ``evaluator``.

    Raises:
        ValueError: for the same reasons as ``train_encoder``; also, before training starts, if RepAL or whitening
            cannot be attached to ``model``.
    """
    check_output(output, overwrite=overwrite)
    check_output(Path(output) / "refined", overwrite=overwrite)
    wanted = (False, True) if whiten is None and dev is not None else (bool(whiten),)
    # made before training, so that a model that cannot be refined is refused at once; they share the trained weights
    refined = {whitened: _refinement(model, whitened) for whitened in wanted}
    folder = Path(output)
    evaluator = UnlabeledSelectionEvaluator(sentences) if dev is None else STSEvaluator([dev])
    run = train_encoder(
        model,
        partial(DCLRLoss, augmentations=augmentations),
        sentences,
        folder / "encoder",
        evaluator=evaluator,
        learning_rate=learning_rate,
        max_steps=max_steps,
        eval_steps=eval_steps,
        overwrite=overwrite,
        **arguments,
    )
    if True in refined:
        _find(refined[True], WhiteningPostProcessor).fit(_whitening_sample(sentences))
    tunings = {}
    if dev is not None:
        pairs = list(zip(dev.sentences1, dev.sentences2, strict=True))
        for whitened, candidate in refined.items():
            processor = _find(candidate, RepALPostProcessor)
            tunings[whitened] = processor.tune(pairs, dev.scores, lambda_2_grid=[0.0])
    best = max(tunings, key=lambda whitened: tunings[whitened].spearman) if tunings else wanted[0]
    save_model(refined[best], folder / "refined")
    return Refined(refined[best], run, tunings.get(best), best)


def _whitening_sample(sentences: Sequence[str] | Dataset | IterableDataset) -> Iterable[str]:
    stream = iterate_sentences(sentences)
    if isinstance(sentences, IterableDataset):  # of unknown length
        return reservoir_sample(stream, MAX_WHITENING_SENTENCES)
    return islice(stream, None, None, math.ceil(len(sentences) / MAX_WHITENING_SENTENCES))


def _refinement(model: SentenceTransformer, whitened: bool) -> SentenceTransformer:
    """Attach RepAL's sentence term to the same weights; if ``whitened``, after a whitening that is fitted later."""
    if whitened:
        dimensions = min(MAX_WHITENED_DIMENSIONS, embedding_dimension(model))
        model = WhiteningPostProcessor.attach(model, dimensions=dimensions)
    return RepALPostProcessor.attach(model, lambda_1=UNTUNED_LAMBDA_1, lambda_2=0, redundancy="pooled")


def _find(model: SentenceTransformer, kind: type[_Module]) -> _Module:
    return next(module for module in model if isinstance(module, kind))
