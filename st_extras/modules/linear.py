"""What the linear members of the post-processing family share: v' = (v - mu) W, with mu and W from statistics."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_extras.modules import pipeline
from st_extras.modules.corpus_statistics import CorpusStatistics
from st_extras.modules.post_processor import PostProcessor

MIN_RELATIVE_VARIANCE = 1e-10
"""Directions with less variance, relative to the largest, are rounding noise."""


class LinearPostProcessor(PostProcessor):
    """A fitted linear step on pooled embeddings. Abstract: a member says how W follows from statistics.

    Args:
        embedding_dimension: D, size of the embeddings that come in.
        size_out: size of the embeddings that go out (k).
        corpus_size: number of sentences that mu and W were computed from; 0 if not fitted.
    """

    kernel: Tensor

    def __init__(self, embedding_dimension: int, size_out: int, corpus_size: int) -> None:
        super().__init__(embedding_dimension, corpus_size)
        self.register_buffer("kernel", torch.zeros(embedding_dimension, size_out))

    @abstractmethod
    def kernel_of(self, statistics: Any) -> Tensor:
        """Return W, (D, k) in float64.

        Raises:
            ValueError: if the statistics do not determine it.
        """

    def take(self, statistics: Any) -> None:
        """Set mu and W."""
        self.kernel.copy_(self.kernel_of(statistics))
        self.corpus_mean.copy_(statistics.mean)

    def to_dense(self) -> Module:
        """Export the fitted step as a stock ``Dense`` module, which loads without this package."""
        pipeline.check_fitted(self, "to_dense")
        kernel = self.kernel.float().cpu()
        return pipeline.as_dense(kernel.T, -self.corpus_mean.float().cpu() @ kernel)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Transform ``sentence_embedding``: (B, D) -> (B, k)."""
        pipeline.check_fitted(self, "encoding")
        embedding = features["sentence_embedding"]  # (B, D)
        features["sentence_embedding"] = (embedding - self.corpus_mean.to(embedding)) @ self.kernel.to(embedding)
        return features

    def get_embedding_dimension(self) -> int:
        """Return k, the size of the embeddings that go out."""
        return int(self.kernel.shape[1])


def principal_directions(statistics: CorpusStatistics) -> tuple[Tensor, Tensor]:
    """Return the variances (D,) of the embeddings along their principal directions, the columns of (D, D).

    The largest come first, in float64.

    Raises:
        ValueError: if there are no two different embeddings.
    """
    if not statistics.varies:
        raise ValueError(
            "sentences must have at least two different embeddings to fit on, got "
            f"{statistics.count} sentences without."
        )
    variances, directions = torch.linalg.eigh(statistics.scatter / (statistics.count - 1))
    return variances.flip(0), directions.flip(1)
