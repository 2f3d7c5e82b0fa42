"""What did best here on STS-B dev of two encoders: DCLR on ConSERT's views, then RepAL's sentence term, in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_extras.evaluation import STSDataset, STSEvaluator, UnlabeledSelectionEvaluator
from st_extras.losses import DCLRLoss
from st_extras.modules import RepALPostProcessor, TuningResult
from st_extras.runs import TrainingRun, check_output, train_encoder

VIEWS = ("feature_cutoff", "shuffle")
"""ConSERT's views, made on the encoder's input without dropout."""

LAMBDA_1 = 0.3
"""The weight without labelled pairs: between those that STS-B dev chose on two encoders (README.md, Results)."""


@dataclass(frozen=True)
class Refined:
    """What ``train_and_refine`` made.

    Attributes:
        model: the trained encoder with RepAL attached; ``RepALPostProcessor.detach`` takes it off.
        run: the training.
        tuning: the search of the sentence term's weight; None without labelled pairs.
    """

    model: SentenceTransformer
    run: TrainingRun
    tuning: TuningResult | None


def train_and_refine(
    model: SentenceTransformer,
    sentences: Sequence[str],
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | None = None,
    augmentations: Sequence[str] = VIEWS,
    learning_rate: float = 1e-4,
    max_steps: int = 400,
    eval_steps: int = 25,
    overwrite: bool = False,
    **arguments: Any,
) -> Refined:
    """Train with ``DCLRLoss`` on ConSERT's views, then leave out of each embedding what is redundant in it.

    DCLR goes without a complementary encoder, which gained nothing.

    The refinement is RepAL's sentence term (``redundancy="pooled"``), which costs about a plain encode and needs no
    corpus. The corpus term is left out: it gained on STS-B dev what other text did not repay.

    Args:
        model: the SentenceTransformer to train, in place.
        sentences: what to train on.
        output: a new or empty folder. ``output/encoder`` is the trained encoder, a plain SentenceTransformer;
            ``output/refined`` the same with RepAL, for ``st_extras.load``.
        dev: labelled pairs, which choose the weights that are kept and the term's weight. None: weights are chosen by
            the sentences alone (``UnlabeledSelectionEvaluator``), the term weighs 0.3.
        augmentations: of DCLRLoss: how the two views are made. ConSERT's need an encoder that takes position ids and
            input embeddings, as BERT does; ("dropout", "dropout") needs neither.
        learning_rate: at the start; decays linearly to 0. A small encoder may ask for more.
        max_steps: optimizer steps.
        eval_steps: steps between evaluations.
        overwrite: replace what lies in ``output``.
        arguments: further ones of :func:`~st_extras.runs.train_encoder`, such as ``batch_size``, ``seed``, ``bf16``.

    Raises:
        ValueError: as ``train_encoder``; a model that RepAL cannot work on (before it is trained).
    """
    check_output(output, overwrite=overwrite)
    # shares the weights that are trained below; attached first, so that what RepAL cannot refine is refused before
    refined = RepALPostProcessor.attach(model, lambda_1=LAMBDA_1, lambda_2=0, redundancy="pooled")
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
    tuning = None
    if dev is not None:
        processor = next(module for module in refined if isinstance(module, RepALPostProcessor))
        pairs = list(zip(dev.sentences1, dev.sentences2, strict=True))
        tuning = processor.tune(pairs, dev.scores, lambda_2_grid=[0.0])
    refined.save(str(folder / "refined"))
    return Refined(refined, run, tuning)
