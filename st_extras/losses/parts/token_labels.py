"""SLT-FAI's frequency labels of a batch: how they are averaged, how much each counts, and their entropy."""

from __future__ import annotations

import torch
from sentence_transformers.util import get_world_size
from torch import Tensor

from st_extras.encoders.distributed import sum_over_processes


def token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average as eq. 4 does: over the content tokens of a sentence, then over the sentences.

    Args:
        values: (R, L).
        mask: (R, L) bool, the tokens that count.

    Returns:
        (), over the sentences that have a token that counts; 0 if none has.
    """
    lengths = mask.sum(dim=1)  # (R,)
    means = values.masked_fill(~mask, 0.0).sum(dim=1) / lengths.clamp(min=1)
    return means.sum() / (lengths > 0).sum().clamp(min=1)


@torch.no_grad()
def label_shares(
    labels: Tensor, mask: Tensor, *, dtype: torch.dtype = torch.float32, across_processes: bool = False
) -> Tensor:
    """Return how much of a batch has label 0 and label 1, (2,), as eq. 4 weighs tokens; zeros if no token counts.

    Args:
        labels: (R, L) of 0 and 1.
        mask: (R, L) bool, the tokens that count.
        dtype: of the shares.
        across_processes: take the mean over the batches of all processes, each of which must ask.
    """
    shares = torch.stack([token_mean((labels == label).to(dtype), mask) for label in (0, 1)])
    return sum_over_processes(shares) / get_world_size() if across_processes else shares


@torch.no_grad()
def labels_entropy(shares: Tensor) -> Tensor:
    """Return the entropy of the labels in nats.

    It is the lowest cross-entropy that a discriminator can reach which knows the shares of the labels and nothing of
    the tokens: above it, the discriminator is misled; below it, it has learned something.

    Args:
        shares: (2,), as :func:`label_shares` returns them; those of balanced labels are a half each.
    """
    return -torch.xlogy(shares, shares).sum()


@torch.no_grad()
def balancing_weights(labels: Tensor, shares: Tensor) -> Tensor:
    """Return a weight for each token, (R, L), with which each label counts a half: 1 / (2 share of its label).

    Args:
        labels: (R, L) of 0 and 1.
        shares: (2,), of the batch. A label without a token has no share, and the other one still counts a half.
    """
    return torch.where(shares > 0, 0.5 / shares, 0.0)[labels]
