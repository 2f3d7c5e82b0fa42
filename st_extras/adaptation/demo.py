"""The offline demonstration: an encoder trained, refined and adapted on sample sentences, scored before and after."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from st_extras.adaptation.domain import adapt
from st_extras.encoders import load_encoder
from st_extras.evaluation import LabeledTextEvaluator
from st_extras.losses import ConSERTLoss
from st_extras.modules import RepALPostProcessor
from st_extras.samples import graded_spearman, labeled_sentences, sample_sentences
from st_extras.samples.encoder import packaged_minilm, raw_encoder
from st_extras.training.run import train_encoder


def demonstrate(
    output: str | os.PathLike[str],
    *,
    steps: int = 50,
    seed: int = 42,
    overwrite: bool = False,
    show_progress_bar: bool = True,
) -> Iterator[tuple[str, float, float]]:
    """Train and refine a raw encoder, and adapt a good one; yield what was done, and the scores before and after it.

    Scores are Spearman x 100 with the graded sample pairs, and MAP@R x 100 of the labelled sample sentences, which are
    kept out of the text to adapt to. Nothing else uses labels: the number of steps is fixed beforehand and the last
    weights are kept.

    Args:
        output: folder for the trained encoder.
        steps: training steps with batches of 64 sentences.
        seed: random seed for data order, dropout and the loss.
        overwrite: replace an earlier training in ``output``.
        show_progress_bar: show one progress bar, of the training steps.
    """
    topics = LabeledTextEvaluator(*labeled_sentences(), metrics=["map_at_r"], write_csv=False)
    model, good, sentences = raw_encoder(), load_encoder(packaged_minilm()), sample_sentences()
    raw = graded_spearman(model)
    options: dict[str, Any] = {"seed": seed, "overwrite": overwrite, "show_progress_bar": show_progress_bar}
    train_encoder(
        model, ConSERTLoss, sentences, output, learning_rate=1e-4, max_steps=steps, eval_steps=steps, **options
    )
    trained = graded_spearman(model)
    yield "Spearman with graded pairs, raw encoder trained by ConSERT", raw, trained
    refined = RepALPostProcessor.attach(model, lambda_1=0.5, lambda_2=0, redundancy="pooled")
    yield "the same, then refined by RepAL", trained, graded_spearman(refined)
    with TemporaryDirectory() as folder:
        others = [text for text in sentences if text not in topics.texts]
        adapted = adapt(good, others, Path(folder, "adapted"), seed=seed, show_progress_bar=False)
    before, after = (100 * topics(model)["map_at_r"] for model in (good, adapted.model))
    yield "MAP@R of texts by topic, good encoder adapted", before, after
