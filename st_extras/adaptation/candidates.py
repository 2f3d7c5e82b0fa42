"""What ``adapt`` tries: linear steps after the encoder, and short trainings of a copy of it."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.adaptation.encode import Encoded, EncodeTexts
from st_extras.encoders.dropout import dropout_acts
from st_extras.losses import DCLRLoss
from st_extras.modules import LocalityPreservingPostProcessor, pipeline
from st_extras.modules.neighbor_directions import NeighborDirections, neighbor_directions
from st_extras.text.term_weights import character_tfidf
from st_extras.training import train_encoder

_BATCH_SIZE = 64
_PASSES = 8
"""What a step costs in forward passes of its texts: two views, forward (1 each) and backward (2 each), and a guide."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to change an encoder: another one, a linear step after it, or both.

    Attributes:
        name: in the table.
        model: the encoder.
        judged: (J, D) its embeddings of the judged texts.
        step: the matrix X (D, D) and the offset b (D,) of v' = v X + b after it; None: nothing follows.
        seconds: what it took to make beyond the encoding of the start.
        for_raw: whether it suits raw encoders alone.
    """

    name: str
    model: SentenceTransformer = field(repr=False)
    judged: Tensor = field(repr=False)
    step: tuple[Tensor, Tensor] | None = field(default=None, repr=False)
    seconds: float = 0.0
    for_raw: bool = False

    @property
    def method(self) -> tuple[str, str]:
        """Name and citation of the step, for the model card."""
        return "Locality Preserving Projections", LocalityPreservingPostProcessor(1).citation

    def as_encoder(self) -> Candidate:
        """Return this with a model of its own where it has none yet."""
        return self

    def after(self, embeddings: Tensor) -> Tensor:
        """Return (N, D) embeddings of the encoder after the step."""
        return embeddings if self.step is None else embeddings @ self.step[0] + self.step[1]


@dataclass(frozen=True)
class NotTried:
    """A candidate that could not be made, and why."""

    why: str


def one_line(error: Exception) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split())


@dataclass(frozen=True)
class LinearTransform:
    """A way to refine: v' = (v - mu) ((1 - t) I + t W) + kept_mean mu, W the kernel of :class:`NeighborDirections`.

    Attributes:
        name: in the table.
        recolor: how far W gives directions their variance back: 1 all of it, 0 leaves them white.
        strength: t, with any amount of text; N texts have N / (N + 1000) of it, as few say little.
        kept_mean: share of the mean embedding mu that is kept. 1 forgets least.
        for_raw: whether it is only tried on encoders that are raw, unless a development set chooses.
    """

    name: str
    recolor: float
    strength: float
    kept_mean: float
    for_raw: bool = False

    def affine(self, found: NeighborDirections) -> tuple[Tensor, Tensor]:
        """Return the matrix (D, D) and the offset (D,) of v' = v X + b, in float64."""
        kernel = found.kernel(power=1.0, recolor=self.recolor)
        covariance = (found.axes * found.variances) @ found.axes.T
        kernel *= (covariance.trace() / (kernel.T @ covariance @ kernel).trace()).sqrt()  # of the start's variance
        share = self.strength * found.count / (found.count + 1000)
        matrix = (1 - share) * torch.eye(len(kernel), dtype=kernel.dtype) + share * kernel
        return matrix, self.kept_mean * found.mean - found.mean @ matrix


CANDIDATES = (
    LinearTransform("neighbours, slight", recolor=1.0, strength=0.25, kept_mean=1.0),
    LinearTransform("neighbours, gentle", recolor=1.0, strength=0.5, kept_mean=1.0),
    LinearTransform("neighbours, medium", recolor=0.5, strength=0.75, kept_mean=0.5),
    LinearTransform("neighbours, white", recolor=0.0, strength=1.0, kept_mean=0.0, for_raw=True),
)


@dataclass(frozen=True)
class ShortTraining:
    """A training with ``DCLRLoss``.

    Attributes:
        name: in the table.
        steps: optimizer steps, of 64 texts each.
        learning_rate: at the start; falls to 0.
        masked_share: share of the pairs that the frozen start takes for false negatives. None: no guide.
        augmentations: how the two views are made.
    """

    name: str
    steps: int
    learning_rate: float
    masked_share: float | None
    augmentations: tuple[str, str] = ("dropout", "dropout")

    def seconds(self, seconds_per_text: float) -> float:
        """Return about how long it takes."""
        return _PASSES * _BATCH_SIZE * self.steps * seconds_per_text

    def trained_copy(
        self, model: SentenceTransformer, texts: Sequence[str], folder: Path, seed: int, show_progress_bar: bool
    ) -> SentenceTransformer:
        """Train a copy of ``model``, and save it to ``folder``.

        Raises:
            ValueError: if the encoder cannot be trained in this way, or the training diverges.
        """
        student = copy.deepcopy(model)
        options: dict[str, Any] = {"augmentations": self.augmentations}
        if self.masked_share is not None:
            options |= {"complementary_model": "start", "masked_share": self.masked_share}
        train_encoder(
            student,
            lambda model: DCLRLoss(model, **options),
            list(texts),
            folder,
            batch_size=_BATCH_SIZE,
            learning_rate=self.learning_rate,
            max_steps=self.steps,
            seed=seed,
            overwrite=True,
            show_progress_bar=show_progress_bar,
        )
        return student.eval()


TRAININGS = (
    ShortTraining("guided training", steps=50, learning_rate=2e-5, masked_share=0.14),
    ShortTraining(
        "training on ConSERT's views",
        steps=100,
        learning_rate=1e-4,
        masked_share=None,
        augmentations=("feature_cutoff", "shuffle"),
    ),
)
"""The first is for good encoders, the second, that of the page on choosing a method, for raw ones."""


@dataclass(frozen=True)
class TrainingTime:
    """How much time there is for trainings.

    Attributes:
        seconds_per_text: what the encoder takes for a text.
        end: the time of ``time.perf_counter`` at which all must be done.
    """

    seconds_per_text: float
    end: float


def propose(
    model: SentenceTransformer,
    encoded: Encoded,
    encode_texts: EncodeTexts,
    seed: int,
    trainings: TrainingTime | None = None,
    folder: Path = Path(),
    show_progress_bar: bool = False,
) -> Iterator[Candidate | NotTried]:
    """Yield candidates that are made from the fitted texts, each when it is asked for: gentle and cheap ones first.

    Args:
        model: the start.
        encoded: the texts and what the start makes of them.
        encode_texts: encodes them with trained copies.
        seed: of what is drawn.
        trainings: the time for trainings; None: none is tried.
        folder: for what trainings save.
        show_progress_bar: of the trainings.
    """
    words = character_tfidf(encoded.fitted)

    def refined(model: SentenceTransformer, encoded: Encoded, name: str, seconds: float) -> list[Candidate]:
        began = time.perf_counter()
        found = neighbor_directions(encoded.of_fitted, words=words, seed=seed)
        seconds += time.perf_counter() - began
        return [
            Candidate(f"{name}{one.name}", model, encoded.of_judged, one.affine(found), seconds, one.for_raw)
            for one in CANDIDATES
        ]

    try:
        yield from refined(model, encoded, "", 0.0)
    except ValueError as error:  # too few embeddings that differ
        yield NotTried(str(error))
        return
    if trainings is None:
        return
    if not dropout_acts(model):
        yield NotTried("training, which needs an encoder whose dropout acts")
        return
    texts = [*encoded.judged, *encoded.fitted]
    for training in TRAININGS:
        began = time.perf_counter()
        seconds = training.seconds(trainings.seconds_per_text) + len(texts) * trainings.seconds_per_text
        if began + seconds > trainings.end:
            yield NotTried(f"{training.name}, which would take {seconds / 60:.1f} minutes more")
            continue
        try:
            trained = training.trained_copy(model, encoded.fitted, folder, seed, show_progress_bar)
            embeddings = encode_texts(trained, texts, label=training.name)
            pipeline.check_finite(embeddings, texts)
        except (ValueError, RuntimeError) as error:  # cannot be trained so (it is frozen), diverges, or lacks memory
            yield NotTried(f"{training.name}: {one_line(error)}")
            continue
        of_copy = replace(encoded, embeddings=embeddings)
        seconds = time.perf_counter() - began
        yield Candidate(training.name, trained, of_copy.of_judged, seconds=seconds)
        try:
            yield from refined(trained, of_copy, f"{training.name}, then ", seconds)
        except (ValueError, RuntimeError) as error:
            yield NotTried(f"steps after {training.name}: {one_line(error)}")
