"""Views that dropout should have told apart and did not: said once for each loss."""

from __future__ import annotations

import logging
from typing import cast

import torch
from torch import Tensor, nn

from st_extras.encoders.momentum import require_trainable
from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision

logger = logging.getLogger(__name__)


def warn_if_same_views(loss: nn.Module, anchors: Tensor, positives: Tensor) -> None:
    """Log a warning if the two views of every sentence in the first training batch of ``loss`` are the same vector.

    Most encoders of recent years have no dropout. Then the positive is the anchor itself, and pulling it closer
    teaches nothing. The views are those that the loss has encoded already: no further pass, and nothing random.

    Does nothing while gradients are disabled, or the model is in evaluation mode, whose views are meant to be equal.

    Args:
        loss: the loss, with its ``model``; the warning bears its name.
        anchors: (B, D) embeddings of the first views.
        positives: (B, D) embeddings of the second views.

    Raises:
        ValueError: if no parameter of the model is trained.
    """
    model = unwrap(cast(nn.Module, loss.model))
    if not torch.is_grad_enabled() or not model.training or getattr(loss, "_compared_views", False):
        return
    if not anchors.requires_grad:
        require_trainable(model)
    same = are_same_views(anchors, positives)
    if same and any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()):
        return  # a fresh LoRA adapter adds 0, with or without its dropout: look again at the next batch
    loss._compared_views = True  # type: ignore[assignment]
    if same:
        logger.warning(
            "%s got the same vector twice as the two views of each sentence, so its positives teach nothing: the "
            "encoder has no dropout. Load it with st_extras.encoders.load_encoder(..., dropout=0.1) (--dropout 0.1), "
            "give each sentence a positive in a second column, or use a loss with "
            "augmentations=('token_cutoff', 'feature_cutoff') if the encoder takes input embeddings.",
            type(loss).__name__,
        )


@torch.no_grad()
def are_same_views(anchors: Tensor, positives: Tensor) -> bool:
    """Return whether both (B, D) views are equal in every row, but for the rounding of their precision."""
    if anchors.shape != positives.shape:
        return False
    kinds = [anchors.dtype, positives.dtype]
    if torch.is_autocast_enabled(anchors.device.type):
        kinds.append(torch.get_autocast_dtype(anchors.device.type))
    tolerance = max(1e-5, *(torch.finfo(kind).eps for kind in kinds))
    first, second = full_precision(anchors), full_precision(positives)
    return bool(((first - second).norm(dim=1) <= tolerance * first.norm(dim=1)).all())
