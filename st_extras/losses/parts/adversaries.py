"""Learned adversaries: vectors that are negatives of a contrastive loss and climb that loss (AdCSE, eq. 5 and 7).

Source: Li et al., 2022, https://doi.org/10.1007/978-3-031-00129-1_11.
"""

from __future__ import annotations

import torch
from sentence_transformers.util import get_world_size
from torch import Tensor

from st_extras.encoders.distributed import sum_over_processes
from st_extras.functional import cosine_ascent_direction, cosine_scores, full_precision, weighted_info_nce


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
    negatives = cosine_scores(queries, adversaries.to(full_precision(queries).dtype), temperature)
    scores = torch.cat([cosine_scores(queries, keys, temperature), negatives], dim=1)  # (B, K + M)
    weights = None
    if not in_batch_negatives:
        weights = torch.ones_like(scores)
        weights[:, : len(keys)] = 0
        weights.diagonal(offset=offset).fill_(1)
    loss = weighted_info_nce(scores, weights, offset=offset)
    logits = scores.detach() if weights is None else scores.detach() + weights.log()
    return loss, logits.softmax(dim=1)[:, len(keys) :]


@torch.no_grad()
def ascend(
    adversaries: Tensor,
    velocity: Tensor,
    anchors: Tensor,
    shares: Tensor,
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
        anchors: (B, D).
        shares: (B, M), each adversary's share of the softmax at each anchor.
        temperature: tau.
        learning_rate: alpha.
        momentum: mu.
        weight_decay: lambda.
    """
    gradient = cosine_ascent_direction(adversaries, anchors, shares) / (temperature * len(anchors))
    gradient = sum_over_processes(gradient) / get_world_size()
    velocity.mul_(momentum).add_(weight_decay * adversaries - gradient)
    adversaries.sub_(velocity, alpha=learning_rate)
