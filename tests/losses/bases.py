"""Base losses that SLT-FAI and PaSeR wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, SimCSELoss


class OwnKeysLoss(nn.Module):
    """A base that makes its own keys and so contributes B rows, as AdCSELoss does."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.seen: list[tuple[int, int]] = []

    def views(self, columns: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
        return dict(columns[0]), 1

    def compute_loss_from_embeddings(
        self, embeddings: list[Tensor], labels: Tensor | None, *, sentence_features: list[dict[str, Any]]
    ) -> Tensor:
        self.seen.append((len(embeddings), len(sentence_features)))
        keys = embeddings[0].detach() + 0.1
        return ((embeddings[0] - keys) ** 2).sum(dim=1).mean() + 0 * sentence_features[0]["input_ids"].sum()


BASES: dict[str, tuple[Callable[[SentenceTransformer], nn.Module], int]] = {
    "simcse": (SimCSELoss, 2),
    "consert": (ConSERTLoss, 2),
    "dclr": (DCLRLoss, 2),
    "mnrl": (MultipleNegativesRankingLoss, 2),
    "adcse": (AdCSELoss, 1),
    "own keys": (OwnKeysLoss, 1),
}
"""Each with the number of views that it needs of a sentence."""
