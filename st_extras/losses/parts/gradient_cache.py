"""Large batches in little memory: the encoder sees one mini-batch at a time, the loss all of them (GradCache).

Source: Gao et al., 2021, https://arxiv.org/abs/2101.06983.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses import gradcache
from torch import Tensor

from st_extras.checks import check_count
from st_extras.encoders.rows import Features

if TYPE_CHECKING:
    from st_extras.losses.pair_loss import PairLoss

ViewBatches = list[list[Tensor]]
"""The embeddings of each view after the head, in mini-batches of (b, D); a plain batch is one mini-batch."""
ColumnBatches = list[list[Features]]
"""The tokenized columns, each in the mini-batches of its view."""

_AUGMENTATION = "st_extras_augmentation"
"""Key of a column's features that names the augmentation of the view to be made of them."""


def check_mini_batches(encoder: SentenceTransformer, size: int | None, num_tokens: int | None) -> None:
    """Check the settings of mini-batches, if one is given, and that the encoder's features can be cut into rows.

    Raises:
        ValueError: if both settings are given, one of them is not a whole number >= 1, or the encoder is a
            StaticEmbedding or takes flattened features.
    """
    if size is None and num_tokens is None:
        return
    if size is not None and num_tokens is not None:
        raise ValueError(
            f"mini_batch_num_tokens must be None with mini_batch_size={size}, got {num_tokens}: give one of them."
        )
    name, value = ("mini_batch_num_tokens", num_tokens) if size is None else ("mini_batch_size", size)
    check_count(name, value, at_least=1)
    if gradcache.has_static_embedding_input(encoder):
        raise ValueError(
            f"{name} must be None for a StaticEmbedding, whose batch cannot be cut into rows, got {value}: such an "
            "encoder needs little memory."
        )
    if getattr(encoder[0], "can_flatten_inputs", False):
        raise ValueError(
            f"{name} must be None for an encoder with flattened (unpadded) features, got {value}: load it with "
            'model_kwargs={"unpad_inputs": False} or set model[0].unpad_inputs = False.'
        )


def cut_rows(features: Features, begin: int, end: int) -> Features:
    """Return some rows of a batch, without the padding on the right that only other rows need."""
    size, length = features["attention_mask"].shape
    present = features["attention_mask"][begin:end].any(dim=0).nonzero()
    width = int(present.max()) + 1 if len(present) else length

    def cut(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.ndim == 0:
            return value
        rows = value[begin:end] if value.size(0) == size else value
        return rows[:, :width] if rows.ndim > 1 and rows.size(1) == length else rows

    return {key: cut(value) for key, value in features.items()}


def check_mean(value: Tensor, loss: object, function: str = "calculate_loss") -> Tensor:
    """Return the value of a loss's function if it is one number.

    Raises:
        ValueError: if it is a loss for each row.
    """
    if value.dim():
        raise ValueError(
            f"{function} of {type(loss).__name__} must return the mean over its rows, a tensor of shape (), got "
            f"{tuple(value.shape)}: add .mean()."
        )
    return value


class GradientCache(gradcache.CachedLossMixin):
    """One step of a loss in mini-batches, whose memory is that of a mini-batch of one view.

    Every mini-batch is embedded without a graph; the loss of all embeddings is differentiated with respect to them;
    and the backward pass embeds each mini-batch again, with the same random numbers, and passes those gradients on.
    So gradients equal those of one pass over the same mini-batches, at the price of a second forward pass. The
    projection head belongs to that pass.

    The order of these steps is that of Sentence Transformers' cached losses, by the mixin that they share: it is not in
    its documentation, but MatryoshkaLoss works with losses that have it.

    Args:
        loss: the loss, with a ``mini_batch_size`` or ``mini_batch_num_tokens``.
        columns: the batch: (B, ...) features of the sentence, or of the sentence and its positive.
    """

    def __init__(self, loss: PairLoss, columns: Sequence[Features]) -> None:
        self.loss, self.model, self.columns = loss, loss.model, columns
        self.mini_batch_size = cast(int, loss.mini_batch_size)
        self.mini_batch_num_tokens = loss.mini_batch_num_tokens
        device = columns[0]["input_ids"].device
        maker = loss.view_maker
        self.generator = maker.source.on(device) if maker.draws else None  # whose draws are repeated too
        self.views = [
            {**columns[min(i, len(columns) - 1)], _AUGMENTATION: name} for i, name in enumerate(maker.augmentations)
        ]
        self.precision = {
            "device_type": device.type,
            "enabled": torch.is_autocast_enabled(device.type),
            "dtype": torch.get_autocast_dtype(device.type),
            "cache_enabled": False,  # weights that were cast without a graph have none
        }

    def run(self) -> Tensor:
        """Return the loss of the batch; its backward pass embeds the mini-batches again."""
        value: Tensor = self.forward_cached(self.views)
        return value

    def calculate_loss(self, reps: ViewBatches, labels: Tensor | None = None, *, with_backward: bool = False) -> Tensor:
        """Return the loss of the views' mini-batches, (b, D) each, and cut the columns as the views were cut."""
        columns = []
        for i, column in enumerate(self.columns):
            begin, parts = 0, []
            for part in reps[min(i, len(reps) - 1)]:
                parts.append(cut_rows(column, begin, begin + len(part)))
                begin += len(part)
            columns.append(parts)
        # MatryoshkaLoss replaces the loss's own method while it runs
        value = check_mean(self.loss.calculate_loss(reps, with_backward=with_backward, columns=columns), self.loss)
        if with_backward and value.requires_grad:  # a loss may leave it to this one
            value.backward()  # type: ignore[no-untyped-call]
        return value.detach() if with_backward else value

    def embed_minibatch(
        self,
        sentence_feature: Features,
        begin: int,
        end: int,
        with_grad: bool,
        copy_random_state: bool,
        random_state: Any = None,
    ) -> tuple[Tensor, Any]:
        """Return the embeddings of some rows of a view, after the head, and the random states before they were made.

        The embeddings are never in half precision: their gradients, which are not scaled yet, would round to 0.
        """
        features = cut_rows(sentence_feature, begin, end)
        augmentation, generator, replayed, states = features.pop(_AUGMENTATION), self.generator, nullcontext(), None
        if copy_random_state:
            own = None if generator is None else generator.get_state()
            states = gradcache.RandContext(*(value for value in features.values() if isinstance(value, Tensor))), own
        if random_state is not None:
            replayed, own = random_state
            generator = None if own is None else torch.Generator(sentence_feature["input_ids"].device).set_state(own)
        with torch.autocast(**self.precision), torch.set_grad_enabled(with_grad), replayed:
            embeddings = self.loss.encode_view(features, augmentation, generator)
            return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)), states
