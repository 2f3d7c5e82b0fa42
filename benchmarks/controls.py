"""Losses that a study only compares with: each is a method with one part replaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_count
from st_extras.encoders import EmbeddingTable, MomentumEncoder
from st_extras.encoders.rows import Features
from st_extras.functional import unit_rows
from st_extras.losses import AdCSELoss, SimCSELoss


class RedrawnAdversariesLoss(nn.Module):
    """AdCSE whose adversaries are keys of earlier batches; every so many steps, the oldest give way to the batch's.

    With ``every=1`` this is the queue of MoCo: more negatives, which nothing has learned.

    Args:
        model: the SentenceTransformer to train.
        every: steps from one draw to the next.
        options: those of AdCSELoss; not ``tied`` or ``shared_head``.
    """

    def __init__(self, model: SentenceTransformer, *, every: int = 1, **options: Any) -> None:
        super().__init__()
        self.model = model
        self.every = check_count("every", every, at_least=1)
        self.adcse = AdCSELoss(model, adversary_start="features", adversary_learning_rate=0.0, **options)
        self.steps = self.oldest = 0

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        columns = list(sentence_features)
        value: Tensor = self.adcse(columns)
        if torch.is_grad_enabled():
            self.steps += 1
            if self.steps % self.every == 0:
                self._replace_oldest(columns[-1])
        return value

    @torch.no_grad()
    def _replace_oldest(self, features: Features) -> None:
        keys = unit_rows(cast(MomentumEncoder, self.adcse.momentum_encoder)(features))  # (B, D)
        adversaries = self.adcse.adversaries
        rows = (self.oldest + torch.arange(len(keys), device=keys.device)) % len(adversaries)
        adversaries.vectors[rows] = adversaries.origins[rows] = keys
        self.oldest = (self.oldest + len(keys)) % len(adversaries)


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
