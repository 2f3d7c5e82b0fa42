"""The offline demonstration: DCLR on a raw encoder and sample sentences, scored before and after."""

from __future__ import annotations

import os
from dataclasses import dataclass

from st_extras.evaluation import SEVEN_STS, STSDataset, STSEvaluator, load_sts
from st_extras.losses import DCLRLoss
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.samples.encoder import raw_encoder
from st_extras.training.run import TrainingRun, train_encoder


@dataclass(frozen=True)
class Demonstration:
    """The result of ``demonstrate``: Spearman x 100 of each set before and after training."""

    before: dict[str, float]
    after: dict[str, float]
    run: TrainingRun


def demonstrate(
    output: str | os.PathLike[str],
    *,
    sts: str | os.PathLike[str] | None = None,
    steps: int = 100,
    seed: int = 42,
    overwrite: bool = False,
    show_progress_bar: bool = True,
) -> Demonstration:
    """Train DCLR on the sample sentences; score the graded sample pairs and, if given, STS sets.

    Training uses no labels: the number of steps is fixed beforehand and the last weights are kept. The guide of DCLR
    is a frozen copy of the untrained encoder.

    Args:
        output: folder for the trained model.
        sts: a source of the seven STS sets, see :func:`~st_extras.evaluation.load_sts`. None: the sample pairs alone.
        steps: training steps with batches of 64 sentences.
        seed: random seed for data order, dropout and the loss.
        overwrite: replace an earlier training in ``output``.
        show_progress_bar: show one progress bar, of the training steps.
    """
    first, second, scores = graded_pairs()
    sets = [STSDataset("sample_pairs", first, second, scores, ["sample_pairs"] * len(scores))]
    if sts is not None:
        sets += [load_sts(name, sts) for name in SEVEN_STS]
    evaluators = [STSEvaluator([data], write_csv=False) for data in sets]
    model = raw_encoder()

    def score() -> dict[str, float]:
        return {e.datasets[0].name: 100 * e(model)[str(e.primary_metric)] for e in evaluators}

    before = score()
    run = train_encoder(
        model,
        lambda model: DCLRLoss(model, complementary_model="start"),
        sample_sentences(),
        output,
        max_steps=steps,
        eval_steps=steps,
        seed=seed,
        overwrite=overwrite,
        show_progress_bar=show_progress_bar,
    )
    return Demonstration(before, score(), run)
