"""Warnings about training batches that teach a pair loss nothing, or the wrong thing."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision

logger = logging.getLogger(__name__)

_PATIENCE = 100
"""Training batches with equal views after which the dropout of an encoder that has some is no longer waited for."""


class BatchChecks:
    """Watches the training batches of one loss, and warns once about each way in which they teach nothing.

    Every check returns at once while gradients are disabled, and after its warning. A copy of the loss has its own
    checks, and a checkpoint holds none of them.

    Args:
        loss: name of the loss, for the messages.

    Attributes:
        only_equal_views: whether the two views of each sentence are equal and nothing else trains the encoder.
    """

    def __init__(self, loss: str) -> None:
        self.loss = loss
        self.only_equal_views = False
        self._equal_views = (
            f"{loss} must get two different views of each sentence, got the same vector twice, so its positives teach "
            "nothing: load the encoder with dropout=0.1, give each sentence a positive in a second column, or use "
            "augmentations=('token_cutoff', 'feature_cutoff')."
        )
        self._done: set[str] = set()
        self._equal_batches = 0

    def check_negatives(self, count: int) -> None:
        """Warn if the sentences of a batch have no negatives: the loss is then 0.

        Args:
            count: number of negatives of each sentence.
        """
        if count == 0 and torch.is_grad_enabled() and "negatives" not in self._done:
            self._done.add("negatives")
            logger.warning(
                "%s got a batch of one sentence, which has no negatives: its loss is 0 and teaches nothing. "
                "Train with a larger batch size; if the text repeats a sentence, batches keep equal ones apart.",
                self.loss,
            )

    def check_views(self, model: nn.Module, anchors: Tensor, positives: Tensor, *, other_signal: bool = False) -> None:
        """Warn if the two views of every sentence in the first batch are the same vector.

        Most encoders of recent years have no dropout. The positive is then the anchor itself, and pulling it closer
        teaches nothing. Equal views in evaluation mode are intended, and not compared.

        Args:
            model: the encoder that made the views.
            anchors: (B, D) embeddings of the first views.
            positives: (B, D) embeddings of the second views.
            other_signal: whether a batch with two equal views still teaches something: by adversaries, noise, a guide.
        """
        if "views" in self._done or not torch.is_grad_enabled():
            return
        encoder = unwrap(model)
        if not encoder.training:
            return
        equal = are_equal_views(anchors, positives)
        has_dropout = any(isinstance(module, nn.Dropout) and module.p > 0 for module in encoder.modules())
        if equal and has_dropout and self._equal_batches < _PATIENCE:
            self._equal_batches += 1  # a new LoRA adapter adds 0 to the encoder, whatever its dropout: wait
            return
        self._done.add("views")
        if equal:
            self.only_equal_views = not other_signal
            logger.warning("%s", self._equal_views)

    def refuse_equal_views(self) -> None:
        """Refuse to continue a training in which only equal views train the encoder.

        Raises:
            ValueError: if :meth:`check_views` found them equal and there is no other signal.
        """
        if self.only_equal_views:
            raise ValueError(self._equal_views)


@torch.no_grad()
def are_equal_views(anchors: Tensor, positives: Tensor) -> bool:
    """Return whether both (B, D) views are equal in every row, up to the rounding of their precision."""
    if anchors.shape != positives.shape:
        return False
    kinds = [anchors.dtype, positives.dtype]
    if torch.is_autocast_enabled(anchors.device.type):
        kinds.append(torch.get_autocast_dtype(anchors.device.type))
    tolerance = max(1e-5, *(torch.finfo(kind).eps for kind in kinds))
    first, second = full_precision(anchors), full_precision(positives)
    return bool(((first - second).norm(dim=1) <= tolerance * first.norm(dim=1)).all())
