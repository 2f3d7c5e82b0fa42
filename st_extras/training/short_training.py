"""The trainings that ``adapt`` may try: short ones, of a copy of the encoder."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_extras.losses import DCLRLoss
from st_extras.training.run import train_encoder

_BATCH_SIZE = 64
_PASSES = 8
"""What a step costs in forward passes of its texts: two views, forward (1 each) and backward (2 each), and a guide."""


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
        guided: dict[str, Any] = {"complementary_model": "start", "masked_share": self.masked_share}
        train_encoder(
            student,
            lambda model: DCLRLoss(
                model, augmentations=self.augmentations, **({} if self.masked_share is None else guided)
            ),
            list(texts),
            folder,
            batch_size=_BATCH_SIZE,
            learning_rate=self.learning_rate,
            max_steps=self.steps,
            seed=seed,
            overwrite=True,
            show_progress_bar=show_progress_bar,
        )
        return student


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
"""The first is for good encoders, the second, that of ``train_and_refine``, for raw ones."""
