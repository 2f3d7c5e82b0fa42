"""How good embeddings are: by graded pairs, by labelled texts, or without labels against those of the base model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from st_extras.checks import shown
from st_extras.evaluation import LabeledTexts, LabelFreeComparison, STSDataset
from st_extras.evaluation.label_metrics import label_scores
from st_extras.evaluation.sts_data import check_graded
from st_extras.modules.linear import Affine
from st_extras.samples import graded_pairs
from st_extras.spearman import spearman_of_pairs

DEV_SCORE = "score on dev, x 100"
LABEL_FREE_SCORE = "label-free score on held-out texts, no unit"
"""What a gain measures, with a development set and without."""


@dataclass(frozen=True)
class Measure:
    """A score of embeddings, times 100.

    Attributes:
        texts: (N,).
        score: takes their embeddings (N, D).
    """

    texts: list[str]
    score: Callable[[Tensor], float]


class Gain(NamedTuple):
    """How much better a candidate is than the base model.

    Attributes:
        value: points of a score times 100, or the label-free score.
        low: lower end of its 95 % interval; None for a score by labels.
        high: its upper end; None likewise.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """A measure, and the embeddings of its texts by the base model.

    Attributes:
        measure: of N texts.
        embeddings: (N, D), before a Normalize module.
        base: score times 100 of the base model.
    """

    measure: Measure
    embeddings: Tensor
    base: float

    @staticmethod
    def by(measure: Measure, encode: Callable[[list[str]], Tensor]) -> Measured:
        """Encode the texts of a measure and score the base model."""
        embeddings = encode(measure.texts)
        return Measured(measure, embeddings, measure.score(embeddings))

    def after(self, transform: Affine) -> float:
        """Return the score times 100 after a transform."""
        return self.measure.score(transform.apply(self.embeddings))

    def gain(self, transform: Affine) -> Gain:
        """Return the gain in points of the score."""
        return Gain(self.after(transform) - self.base)


@dataclass(frozen=True, eq=False)
class HeldOutTexts:
    """What candidates are compared on without labels.

    Attributes:
        comparison: of J held-out texts with the base model.
        embeddings: (J, D) by the base model, before a Normalize module.
    """

    comparison: LabelFreeComparison
    embeddings: Tensor

    def gain(self, transform: Affine) -> Gain:
        """Return the label-free gain with its interval."""
        found = self.comparison.compare(transform.apply(self.embeddings))
        return Gain(found.gain, found.low, found.high)


def graded(first: Sequence[str], second: Sequence[str], grades: Sequence[float]) -> Measure:
    """Return the measure of graded pairs: Spearman correlation of cosine and grade."""
    return Measure([*first, *second], lambda embeddings: spearman_of_pairs(embeddings, grades))


def general_english() -> Measure:
    """Return the measure of the 300 graded pairs of general English that come with the package."""
    return graded(*graded_pairs())


def check_dev(dev: object) -> None:
    """Check a development set that chooses a candidate for a domain.

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
