"""What did best here on STS-B dev of two encoders, in one call: DCLR on ConSERT's views, whitening where it helps,
RepAL's sentence term.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer
from torch import nn

from st_extras.evaluation import STSDataset, STSEvaluator, UnlabeledSelectionEvaluator
from st_extras.losses import DCLRLoss
from st_extras.modules import RepALPostProcessor, TuningResult, WhiteningPostProcessor
from st_extras.modules.pipeline import embedding_dimension
from st_extras.runs import TrainingRun, check_output, train_encoder

_Module = TypeVar("_Module", bound=nn.Module)

VIEWS = ("feature_cutoff", "shuffle")
"""ConSERT's views, made on the encoder's input without dropout."""

LAMBDA_1 = 0.3
"""The weight without labelled pairs: between those that STS-B dev chose on two encoders (README.md, Results)."""

DIMENSIONS = 256
"""Of whitened embeddings, where the encoder has more."""

WHITENING_SENTENCES = 20_000
"""At most so many of the training sentences, evenly spaced, are whitened on."""


@dataclass(frozen=True)
class Refined:
    """What ``train_and_refine`` made.

    Attributes:
        model: the trained encoder with RepAL attached; ``RepALPostProcessor.detach`` takes it off.
        run: the training.
        tuning: the search of the sentence term's weight; None without labelled pairs.
        whitened: whether RepAL works on whitened embeddings.
    """

    model: SentenceTransformer
    run: TrainingRun
    tuning: TuningResult | None
    whitened: bool


def train_and_refine(
    model: SentenceTransformer,
    sentences: Sequence[str],
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | None = None,
    augmentations: Sequence[str] = VIEWS,
    whiten: bool | None = None,
    learning_rate: float = 1e-4,
    max_steps: int = 400,
    eval_steps: int = 25,
    overwrite: bool = False,
    **arguments: Any,
) -> Refined:
    """Train with ``DCLRLoss`` on ConSERT's views, then leave out of each embedding what is redundant in it.

    DCLR goes without a complementary encoder, which gained nothing.

    The refinement is RepAL's sentence term (``redundancy="pooled"``), which costs about a plain encode and needs no
    corpus, with or without whitening before it. RepAL's corpus term is left out: it gained on STS-B dev what other text
    did not repay.

    Args:
        model: the SentenceTransformer to train, in place.
        sentences: what to train on.
        output: a new or empty folder. ``output/encoder`` is the trained encoder, a plain SentenceTransformer;
            ``output/refined`` the same with what follows it, for ``st_extras.load``.
        dev: labelled pairs, which choose the weights that are kept, whitening, and the term's weight. None: weights are
            chosen by the sentences alone (``UnlabeledSelectionEvaluator``), the term weighs 0.3.
        augmentations: of DCLRLoss: how the two views are made. ConSERT's need an encoder that takes position ids and
            input embeddings, as BERT does; ("dropout", "dropout") needs neither.
        whiten: whether embeddings are whitened (to 256 dimensions at most, fitted on at most 20,000 of ``sentences``)
            before RepAL. None: where ``dev`` is better for it; without ``dev`` they are not. It lifts an encoder fresh
            from language modelling by points and takes some from one that was tuned contrastively; and it fits one kind
            of text: sentences of another kind can lose far more.
        learning_rate: at the start; decays linearly to 0. A small encoder may ask for more.
        max_steps: optimizer steps.
        eval_steps: steps between evaluations.
        overwrite: replace what lies in ``output``.
        arguments: further ones of :func:`~st_extras.runs.train_encoder`, such as ``batch_size``, ``seed``, ``bf16``.

    Raises:
        ValueError: as ``train_encoder``; a model that RepAL cannot work on, or one to whiten that is whitened already
            (before it is trained).
    """
    check_output(output, overwrite=overwrite)
    wanted = (False, True) if whiten is None and dev is not None else (bool(whiten),)
    # they share the weights that are trained below; attached first, so that what cannot be refined is refused before
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
        step = -(-len(sentences) // WHITENING_SENTENCES)
        _part(refined[True], WhiteningPostProcessor).fit(sentences[::step])
    tunings = {}
    if dev is not None:
        pairs = list(zip(dev.sentences1, dev.sentences2, strict=True))
        for whitened, candidate in refined.items():
            processor = _part(candidate, RepALPostProcessor)
            tunings[whitened] = processor.tune(pairs, dev.scores, lambda_2_grid=[0.0])
    best = max(tunings, key=lambda whitened: tunings[whitened].spearman) if tunings else wanted[0]
    refined[best].save(str(folder / "refined"))
    return Refined(refined[best], run, tunings.get(best), best)


def _refinement(model: SentenceTransformer, whitened: bool) -> SentenceTransformer:
    """The same weights with RepAL's sentence term; whitening before it, if asked for, is yet to be fitted."""
    if whitened:
        dimensions = min(DIMENSIONS, embedding_dimension(list(model)))
        model = WhiteningPostProcessor.attach(model, dimensions=dimensions)
    return RepALPostProcessor.attach(model, lambda_1=LAMBDA_1, lambda_2=0, redundancy="pooled")


def _part(model: SentenceTransformer, kind: type[_Module]) -> _Module:
    return next(module for module in model if isinstance(module, kind))
