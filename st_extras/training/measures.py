"""What an adaptation is measured by beside the judge: a development set, and graded pairs of general English."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from st_extras.evaluation import LabeledTexts, STSDataset
from st_extras.evaluation.label_scores import label_scores
from st_extras.evaluation.signals import rank_correlation
from st_extras.samples import graded_pairs

SMALLEST_GENERAL_SCORE = 30.0
"""Of an encoder with less, the graded pairs say nothing."""


class Pairs:
    """Graded pairs: Spearman correlation of cosine and grade, times 100.

    Attributes:
        texts: (2N,), the first texts of all pairs, then the second.
    """

    def __init__(self, first: Sequence[str], second: Sequence[str], grades: Sequence[float]) -> None:
        self.texts = [*first, *second]
        self.grades = torch.tensor(grades)

    @classmethod
    def of_general_english(cls) -> Pairs:
        """Return the 300 that come with the package."""
        return cls(*graded_pairs())

    def score(self, embeddings: Tensor) -> float:
        """Score (2N, D) embeddings of the texts."""
        first, second = embeddings.chunk(2)
        return 100 * rank_correlation(torch.cosine_similarity(first, second), self.grades)


class Labels:
    """Labelled texts: mean of 1-NN accuracy, V-measure and MAP@R, times 100.

    Attributes:
        texts: (N,).
    """

    def __init__(self, labeled: LabeledTexts) -> None:
        self.texts, self.labels = labeled.texts, labeled.labels

    def score(self, embeddings: Tensor) -> float:
        """Score (N, D) embeddings of the texts."""
        return 100 * float(label_scores(embeddings, self.labels)["mean"])


def development(dev: STSDataset | LabeledTexts) -> Pairs | Labels:
    """Return the measure of a development set."""
    if isinstance(dev, LabeledTexts):
        return Labels(dev)
    return Pairs(dev.sentences1, dev.sentences2, dev.scores)
