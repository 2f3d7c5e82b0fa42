"""Short trainings of a copy of an encoder: what :func:`adapt` tries with ``train``."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_extras.losses import DCLRLoss
from st_extras.training import train_encoder

_BATCH_SIZE = 64
_PASSES = 8
"""What a step costs in forward passes of its texts: two views, forward (1 each) and backward (2 each), and a guide."""
_TIMED_TEXTS = 256


@dataclass(frozen=True)
class ShortTraining:
    """A training with ``DCLRLoss``.

    Attributes:
        name: in the table.
        steps: optimizer steps, of 64 texts each.
        learning_rate: at first; falls to 0.
        masked_share: share of the pairs that the frozen base model takes for false negatives. None: no guide.
        augmentations: how the two views are made.
    """

    name: str
    steps: int
    learning_rate: float
    masked_share: float | None
    augmentations: tuple[str, str] = ("dropout", "dropout")

    def seconds(self, seconds_per_text: float) -> float:
        """Return about how long it takes, where the encoder needs ``seconds_per_text`` to encode a text."""
        return _PASSES * _BATCH_SIZE * self.steps * seconds_per_text

    def trained_copy(
        self, model: SentenceTransformer, texts: Sequence[str], folder: Path, seed: int, show_progress_bar: bool
    ) -> SentenceTransformer:
        """Train a copy of ``model`` on the texts, and save it to ``folder``.

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


def seconds_per_text(model: SentenceTransformer, texts: Sequence[str], batch_size: int) -> float:
    """Return how long the encoder takes for a text, measured on at most 256 of them."""
    timed = list(texts[:_TIMED_TEXTS])
    began = time.perf_counter()
    model.encode(timed, batch_size=batch_size, show_progress_bar=False)
    return (time.perf_counter() - began) / len(timed)
