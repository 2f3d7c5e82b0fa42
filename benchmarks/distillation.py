"""DCLR's third variation (table 2 of the paper): SimCSE's encoder as a teacher, no weighted or noise negatives."""

from __future__ import annotations

from collections.abc import Iterable

import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.encoders import EmbeddingTable
from st_extras.encoders.rows import Features
from st_extras.losses import SimCSELoss


class DistillationLoss(nn.Module):
    """SimCSE plus the squared distance between the first view's normalised embedding and the teacher's.

    The paper names the variation but does not say how it distils. Here the teacher is frozen, as a table.

    Args:
        model: the SentenceTransformer to train.
        complementary_table: the teacher's embeddings of the training sentences, with the dimension of the model's.
        weight: factor of the distance.
    """

    def __init__(self, model: SentenceTransformer, *, complementary_table: EmbeddingTable, weight: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.simcse = SimCSELoss(model)
        self.teacher = complementary_table
        self.weight = weight

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the two terms of a batch; ``labels`` are not used."""
        columns = list(sentence_features)
        views = self.simcse.step.two_views.encode(self.model, columns)
        distance = F.normalize(views[0].float(), dim=-1) - self.teacher(columns[0])  # (B, D)
        return {
            "contrastive": self.simcse.compute_loss_from_embeddings(views),
            "distillation": self.weight * distance.square().sum(dim=1).mean(),
        }
