"""Learned adversaries: vectors that are negatives of a contrastive loss and climb that loss (AdCSE, eq. 5 and 7).

Source: Li et al., 2022, https://doi.org/10.1007/978-3-031-00129-1_11.
"""

from __future__ import annotations

import torch
from sentence_transformers.util import get_world_size
from torch import Tensor

from st_extras.encoders.distributed import sum_over_processes
from st_extras.functional import anchor_pull, cosine_ascent_direction, cosine_scores, full_precision, weighted_info_nce


def check_shapes(queries: Tensor, keys: Tensor, adversaries: Tensor) -> None:
    """Refuse (B, D) queries and keys that do not fit each other or the (M, D) adversaries.

    Raises:
        ValueError: if the dimensions or the numbers of rows differ.
    """
    sizes = {queries.size(-1), keys.size(-1), adversaries.size(-1)}
    if len(sizes) > 1 or len(queries) != len(keys):
        raise ValueError(
            f"AdCSELoss was made for embeddings of {adversaries.size(-1)} dimensions, got queries "
            f"{tuple(queries.shape)} and keys {tuple(keys.shape)}: make the loss after the model is complete."
        )


def adversarial_info_nce(
    queries: Tensor,
    keys: Tensor,
    adversaries: Tensor,
    *,
    temperature: float,
    in_batch_negatives: bool = True,
    offset: int = 0,
) -> tuple[Tensor, Tensor]:
    """Compute eq. 5: InfoNCE with learned vectors as further negatives.

    Args:
        queries: (B, D).
        keys: (K, D); the positive of query i is key ``i + offset``.
        adversaries: (M, D).
        temperature: tau.
        in_batch_negatives: use the other keys as negatives too.
        offset: index of row 0's key (keys gathered across processes).

    Returns:
        The loss, (), and the share of the softmax that each adversary takes at each query, (B, M), detached.
    """
    negatives = adversary_scores(queries, adversaries, temperature)
    return contrast_with(cosine_scores(queries, keys, temperature), negatives, in_batch_negatives, offset)


def adversary_scores(queries: Tensor, adversaries: Tensor, temperature: float = 1.0) -> Tensor:
    """Return cosines of queries, (B, D), and adversaries, (M, D), divided by the temperature: (B, M)."""
    return cosine_scores(queries, adversaries.to(full_precision(queries).dtype), temperature)


def contrast_with(
    key_scores: Tensor, negatives: Tensor, in_batch_negatives: bool, offset: int
) -> tuple[Tensor, Tensor]:
    """Return what :func:`adversarial_info_nce` does, of the scores of keys, (B, K), and of adversaries, (B, M)."""
    scores, keys = torch.cat([key_scores, negatives], dim=1), key_scores.size(1)
    weights = None
    if not in_batch_negatives:
        weights = torch.ones_like(scores)
        weights[:, :keys] = 0
        weights.diagonal(offset=offset).fill_(1)
    loss = weighted_info_nce(scores, weights, offset=offset)
    logits = scores.detach() if weights is None else scores.detach() + weights.log()
    return loss, logits.softmax(dim=1)[:, keys:]


@torch.no_grad()
def mean_similarity(anchors: Tensor, adversaries: Tensor) -> Tensor:
    """Return the mean cosine, (), of B anchors and M adversaries: are they hard negatives?"""
    return adversary_scores(anchors, adversaries).mean()


class Climb:
    """What a step of the adversaries takes from a batch, mini-batch after mini-batch.

    Attributes:
        count: number of anchors.
        pull: (M, D), see :func:`~st_extras.functional.anchor_pull`.
        share: mean share of the softmax that the adversaries take, ().
        similarity: mean cosine of anchors and adversaries, ().
    """

    def __init__(self, adversaries: Tensor) -> None:
        self._adversaries = adversaries
        self.count = 0
        self.pull = self.share = self.similarity = adversaries.new_zeros(())

    @torch.no_grad()
    def add(self, anchors: Tensor, shares: Tensor) -> None:
        """Add anchors, (b, D), with each adversary's share of the softmax at each of them, (b, M)."""
        pull, share = anchor_pull(anchors, shares), shares.sum(dim=1).mean()
        similarity, part = mean_similarity(anchors, self._adversaries), len(anchors) / (self.count + len(anchors))
        self.pull = self.pull + pull if self.count else pull
        self.share = torch.lerp(self.share, share, part) if self.count else share
        self.similarity = torch.lerp(self.similarity, similarity, part) if self.count else similarity
        self.count += len(anchors)


@torch.no_grad()
def ascend(
    adversaries: Tensor,
    velocity: Tensor,
    pull: Tensor,
    count: int,
    *,
    temperature: float,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Move the adversaries, in place, one step of SGD with momentum and weight decay UP the loss (eq. 7).

    The gradient is in closed form, and averaged over the processes of a multi-process run.

    Args:
        adversaries: (M, D).
        velocity: (M, D), the momentum of earlier steps.
        pull: (M, D), see :func:`~st_extras.functional.anchor_pull`, of each adversary's share of the softmax at each
            anchor.
        count: B, number of anchors.
        temperature: tau.
        learning_rate: alpha.
        momentum: mu.
        weight_decay: lambda.
    """
    gradient = cosine_ascent_direction(adversaries, pull) / (temperature * count)
    gradient = sum_over_processes(gradient) / get_world_size()
    velocity.mul_(momentum).add_(weight_decay * adversaries - gradient)
    adversaries.sub_(velocity, alpha=learning_rate)
