"""Equations of the losses in plain torch, written apart from the code they are compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def adversarial_info_nce(
    queries: Tensor,
    keys: Tensor,
    adversaries: Tensor,
    *,
    temperature: float,
    in_batch_negatives: bool = True,
    offset: int = 0,
) -> tuple[Tensor, Tensor]:
    """AdCSE's eq. 5 and its logits: the positive of query i is key i + offset, the adversaries are negatives."""
    scores = F.normalize(queries, dim=1) @ F.normalize(torch.cat([keys, adversaries.to(keys)]), dim=1).T / temperature
    own = torch.arange(len(queries)) + offset
    if not in_batch_negatives:
        others = torch.ones_like(scores, dtype=torch.bool)
        others[:, len(keys) :] = False
        others[torch.arange(len(queries)), own] = False
        scores = scores.masked_fill(others, -torch.inf)
    return F.cross_entropy(scores, own), scores.detach()
