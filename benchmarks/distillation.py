"""DCLR's third variation (its table 2): no weighted or noise negatives, but SimCSE's encoder as a teacher."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.complementary import EmbeddingTable
from st_extras.encoders import encode_pair
from st_extras.losses import SimCSELoss
from st_extras.rows import Features


class DistillationLoss(nn.Module):
    """SimCSE, and the squared distance between the first view's normalised embedding and the teacher's.

    The paper names the variation and does not say how it distils; the teacher is frozen and in a table.

    Args:
        model: the SentenceTransformer to train.
        complementary_table: the teacher's embeddings of the training sentences, as long as the model's.
        weight: of the distance.
    """

    def __init__(self, model: SentenceTransformer, *, complementary_table: EmbeddingTable, weight: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.simcse = SimCSELoss(model)
        self.teacher = complementary_table
        self.weight = weight

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> dict[str, Tensor]:
        columns: list[dict[str, Any]] = list(sentence_features)
        views = encode_pair(self.model, columns, self.simcse.augmentations)
        distance = F.normalize(views[0].float(), dim=-1) - self.teacher(columns[0])  # (B, D)
        return {
            "contrastive": self.simcse.compute_loss_from_embeddings(views),
            "distillation": self.weight * distance.square().sum(dim=1).mean(),
        }
