"""How good embeddings are: by graded pairs, by labelled texts, or without labels against those of the base model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from st_extras.checks import shown
from st_extras.evaluation import LabeledTexts, STSDataset
from st_extras.evaluation.label_scores import label_scores
from st_extras.evaluation.sts_data import check_graded
from st_extras.modules.lambda_search import rank_correlation
from st_extras.samples import graded_pairs

DEV_SCORE = "score on dev, x 100"
"""What a gain measures with a development set."""


@dataclass(frozen=True)
class Measure:
    """A score of embeddings, times 100.

    Attributes:
        texts: (N,).
        score: takes their embeddings (N, D).
    """

    texts: list[str]
    score: Callable[[Tensor], float]


def graded(first: Sequence[str], second: Sequence[str], grades: Sequence[float]) -> Measure:
    """Return the measure of graded pairs: Spearman correlation of cosine and grade."""

    def score(embeddings: Tensor) -> float:
        left, right = embeddings.chunk(2)
        cosines = torch.cosine_similarity(left, right)
        return 100 * rank_correlation(cosines, torch.tensor(grades))

    return Measure([*first, *second], score)


def general_english() -> Measure:
    """Return the measure of the 300 graded pairs of general English that come with the package."""
    return graded(*graded_pairs())


def check_dev(dev: object) -> None:
    """Check a development set that chooses a candidate for a domain or a language model.

    Raises:
        ValueError: unless it is None, an STSDataset with different scores, or LabeledTexts of which two share a label.
    """
    if dev is not None and not isinstance(dev, STSDataset | LabeledTexts):
        raise ValueError(f"dev must be an STSDataset, LabeledTexts or None, got {shown(dev)}.")
    if isinstance(dev, STSDataset):
        check_graded(dev, "dev")
    if isinstance(dev, LabeledTexts) and len(set(dev.labels)) == len(dev.labels):
        raise ValueError(f"dev must have a label that two texts share, got {len(dev.labels)} different ones.")


def development(dev: STSDataset | LabeledTexts) -> Measure:
    """Return the measure of a development set; of labelled texts: the mean of 1-NN accuracy, V-measure and MAP@R."""
    if isinstance(dev, STSDataset):
        return graded(dev.sentences1, dev.sentences2, dev.scores)
    return Measure(list(dev.texts), lambda embeddings: 100 * float(label_scores(embeddings, dev.labels)["mean"]))
