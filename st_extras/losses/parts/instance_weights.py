"""Which pairs of a batch are negatives: those that a guide finds less similar than a threshold (DCLR, eq. 5).

Source: Zhou et al., 2022, https://aclanthology.org/2022.acl-long.423.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.functional import unit_rows, unit_scores
from st_extras.losses.parts.guide import make_similarities, similarities_of_rows
from st_extras.losses.parts.similarity_threshold import SimilarityThreshold


class InstanceWeights(nn.Module):
    """alpha: 0 for a pair at or above the threshold phi, else 1; of all pairs of a batch, or of some rows at a time.

    Args:
        model: the trained model.
        complementary_model: the guide, see :func:`~st_extras.losses.parts.guide.make_similarities`.
        complementary_table: a table of its embeddings.
        threshold: phi, see :class:`~st_extras.losses.parts.similarity_threshold.SimilarityThreshold`.
        masked_share: the share of the pairs at or above phi, in its place.
        gather_across_devices: compare with the sentences of all processes.

    Attributes:
        similarities: the guide's; None: there is none, nor are there weights.
        masked_negatives: share of the in-batch negatives with weight 0 in the last training step; NaN before (0-dim).
        anchors_without_negatives: number of anchors that had no negative of another weight there either (0-dim).

    Raises:
        ValueError: if the guide or the threshold is not what it must be, or ``masked_share`` is given without a guide.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        complementary_model: SentenceTransformer | str | PathLike[str] | None,
        complementary_table: EmbeddingTable | None,
        *,
        threshold: float | None,
        masked_share: float | None,
        gather_across_devices: bool,
    ) -> None:
        super().__init__()
        options = {"gather_across_devices": gather_across_devices}
        self.threshold = SimilarityThreshold(threshold, masked_share, device=unwrap(model).device, **options)
        if masked_share is not None and complementary_model is None and complementary_table is None:
            raise ValueError(
                f"masked_share needs a guide, got masked_share={masked_share} without one: set complementary_model, "
                'to "start" if you have no better encoder, or complementary_table.'
            )
        self.similarities = make_similarities(model, complementary_model, complementary_table, **options)
        self.masked_negatives = torch.tensor(torch.nan)
        self.anchors_without_negatives = torch.tensor(0)

    def of_batch(self, cosines: Tensor, columns: Sequence[Features] | None, *, first: bool = True) -> Tensor | None:
        """Return the weights, (B, world * B); None without a guide.

        Args:
            cosines: the trained model's, (B, world * B), without gradients.
            columns: the untouched columns.
            first: whether the loss has not run on this batch before.
        """
        if self.similarities is None:
            return None
        found = self.similarities(columns, cosines)
        threshold: float | Tensor = self.threshold(found, first=first)
        return (found < threshold).to(cosines.dtype)

    def of_rows(
        self,
        anchors: Tensor,
        candidates: Tensor,
        columns: Sequence[Features] | None,
        mini_batch_size: int,
        *,
        first: bool = True,
    ) -> Callable[[Tensor, int], Tensor] | None:
        """Return what gives the weights of some rows, (b, world * B), from their cosines and the first row's index.

        Args:
            anchors: the trained model's, (B, D).
            candidates: its candidates, of length 1, (world * B, D).
            columns: the untouched columns.
            mini_batch_size: number of sentences that the guide sees at a time.
            first: whether the loss has not run on this batch before.
        """
        if self.similarities is None:
            return None
        similar = similarities_of_rows(self.similarities, columns, mini_batch_size)
        threshold: float | Tensor | None = self.threshold.given
        if threshold is None:
            some = unit_rows(anchors[: self.threshold.most_rows(len(candidates))].detach())
            threshold = self.threshold(similar(unit_scores(some, candidates.detach()), 0), first=first)
        return lambda cosines, begin: (similar(cosines, begin) < threshold).to(cosines.dtype)

    def measure(self, negatives: Tensor, candidates: int, *, others: bool) -> None:
        """Remember what a training step has left of the ``candidates - 1`` negatives of each anchor.

        Args:
            negatives: (B,), see ``count_negatives``.
            candidates: number of candidates, world * B.
            others: whether the denominator has other terms than these negatives.
        """
        self.masked_negatives = 1 - negatives.mean() / (candidates - 1 or torch.nan)
        if not others:
            self.anchors_without_negatives = (negatives == 0).sum()


def count_negatives(weights: Tensor, offset: int) -> Tensor:
    """Return how many in-batch negatives each anchor has, (b,), of the weights (b, K) of candidates."""
    return weights.sum(dim=1) - weights.diagonal(offset=offset)
