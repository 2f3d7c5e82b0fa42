"""A batch of one sentence, which has no negatives: said once for each loss."""

from __future__ import annotations

import logging

import torch
from torch import nn

logger = logging.getLogger(__name__)


def warn_without_negatives(loss: nn.Module, count: int) -> None:
    """Log a warning the first time that a training batch of ``loss`` has no negatives: its value is 0.

    Args:
        loss: the loss, whose name the warning bears.
        count: number of negatives of each sentence.
    """
    if count == 0 and torch.is_grad_enabled() and not getattr(loss, "_warned_without_negatives", False):
        loss._warned_without_negatives = True  # type: ignore[assignment]
        logger.warning(
            "%s got a batch of one sentence, which has no negatives: its loss is 0 and teaches nothing. "
            "Train with a larger batch size; if the text repeats a sentence, batches keep equal ones apart.",
            type(loss).__name__,
        )
