"""What of a training batch would teach nothing, or the wrong thing, in silence: said once for each loss."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from st_extras.encoders.momentum import require_trainable
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision

logger = logging.getLogger(__name__)

_PATIENCE = 100
"""Training batches of equal views before a dropout that the encoder has is no longer waited for."""


def tell_no_negatives(loss: nn.Module, count: int) -> None:
    """Log a warning the first time that a training batch of ``loss`` has no negatives: its value is 0.

    Args:
        loss: the loss, whose name the warning bears.
        count: number of negatives of each sentence.
    """
    if count == 0 and torch.is_grad_enabled() and not getattr(loss, "_told_no_negatives", False):
        loss._told_no_negatives = True  # type: ignore[assignment]
        logger.warning(
            "%s got a batch of one sentence, which has no negatives: its loss is 0 and teaches nothing. "
            "Train with a larger batch size; if the text repeats a sentence, batches keep equal ones apart.",
            type(loss).__name__,
        )


def tell_repeated_texts(loss: nn.Module, columns: Sequence[Features]) -> None:
    """Log a warning if a column of the first training batch of 8 or more rows mostly repeats its texts, as labels."""
    ids = columns[0]["input_ids"]
    if ids.ndim != 2 or len(ids) < 8 or getattr(loss, "_counted_texts", False):
        return
    loss._counted_texts = True  # type: ignore[assignment]
    for number, column in enumerate(columns, start=1):
        rows, texts = len(column["input_ids"]), len(column["input_ids"].unique(dim=0))
        if 2 * texts <= rows:
            logger.warning(
                "%s got %d different texts in %d rows of column %d, as of labels: equal texts are negatives of each "
                "other. Give it the column of the sentences, and in a second one their positives.",
                *(type(loss).__name__, texts, rows, number),
            )


def tell_same_views(loss: nn.Module, anchors: Tensor, positives: Tensor, *, others: bool = False) -> None:
    """Log a warning if the two views of every sentence in the first training batch of ``loss`` are the same vector.

    Most encoders of recent years have no dropout. Then the positive is the anchor itself, and pulling it closer
    teaches nothing. The views are those that the loss has encoded already: no further pass, and nothing random. A
    training in one call stops then, see :func:`refuse_same_views`; a loop of one's own goes on.

    Does nothing while gradients are disabled, or the model is in evaluation mode, whose views are meant to be equal.

    Args:
        loss: the loss, with its ``model``; the message bears its name.
        anchors: (B, D) embeddings of the first views.
        positives: (B, D) embeddings of the second views.
        others: whether something else teaches: adversaries, noise, a guide.

    Raises:
        ValueError: if no parameter of the model is trained.
    """
    model = unwrap(cast(nn.Module, loss.model))
    if not torch.is_grad_enabled() or not model.training or getattr(loss, "_compared_views", False):
        return
    if not anchors.requires_grad:
        require_trainable(model)
    same, seen = are_same_views(anchors, positives), getattr(loss, "_same_batches", 0)
    drops = (isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())
    if same and seen < _PATIENCE and any(drops):  # a fresh LoRA adapter adds 0, with or without its dropout: look again
        loss._same_batches = seen + 1  # type: ignore[assignment]
        return
    loss._compared_views = True  # type: ignore[assignment]
    if same:
        loss._only_same_views = not others  # type: ignore[assignment]
        logger.warning("%s", _same_views(loss))


def _same_views(loss: nn.Module) -> str:
    return (
        f"{type(loss).__name__} got the same vector twice as the two views of each sentence, so its positives teach "
        "nothing: the encoder has no dropout. Load it with st_extras.encoders.load_encoder(..., dropout=0.1) "
        "(--dropout 0.1), give each sentence a positive in a second column, or use a loss with "
        "augmentations=('token_cutoff', 'feature_cutoff') if the encoder takes input embeddings."
    )


def refuse_same_views(loss: nn.Module) -> None:
    """Refuse to go on with a loss, or one inside MatryoshkaLoss or AdaptiveLayerLoss, that equal views alone teach.

    Raises:
        ValueError: if :func:`tell_same_views` found them equal and nothing else in the loss teaches.
    """
    while isinstance(inner := getattr(loss, "loss", None), nn.Module):
        loss = inner
    if getattr(loss, "_only_same_views", False):
        raise ValueError(_same_views(loss))


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
