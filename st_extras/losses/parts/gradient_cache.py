"""Large batches in little memory: the encoder sees one mini-batch at a time, the loss all of them (GradCache).

Source: Gao et al., 2021, https://arxiv.org/abs/2101.06983.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, cast

import torch
from sentence_transformers.base.losses import gradcache
from torch import Tensor, nn

from st_extras.checks import check_count
from st_extras.encoders.forward import layer_decorator
from st_extras.encoders.rows import Features, count_rows
from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision

Views = list[list[Tensor]]
"""The embeddings of each view, cut into mini-batches of (b, D); a plain batch is one mini-batch."""
CutColumns = list[list[Features]]
"""The tokenized columns, each cut into mini-batches as the views are."""
EncodeView = Callable[[nn.Module, Features, str, torch.Generator | None], Tensor]
"""(encoder, rows, augmentation, generator of its draws) -> the view's embeddings after the head, (b, D)."""

_AUGMENTATION = "st_extras_augmentation"
"""Key of a column's features that names the augmentation of the view to be made of them."""


class PairLoss(Protocol):
    """A loss whose mathematics is all in ``calculate_loss``, and which can be called for mini-batches."""

    @property
    def model(self) -> nn.Module:
        """The encoder."""

    def calculate_loss(self, reps: Views, *, with_backward: bool = False, columns: CutColumns | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            reps: the embeddings of each view after the head, in mini-batches.
            with_backward: differentiate here, with respect to ``reps``, and return a value without a graph.
            columns: the tokenized columns that the views were made of; None if only their embeddings are known.
        """


def check_mini_batches(model: nn.Module, size: int | None, num_tokens: int | None) -> None:
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
    encoder = unwrap(model)
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
    size, length = count_rows(features), features["attention_mask"].size(1)
    present = features["attention_mask"][begin:end].any(dim=0).nonzero()
    width = int(present.max()) + 1 if len(present) else length

    def cut(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.ndim == 0:
            return value
        rows = value[begin:end] if value.size(0) == size else value
        return rows[:, :width] if rows.ndim > 1 and rows.size(1) == length else rows

    return {key: cut(value) for key, value in features.items()}


class GradientCache(gradcache.CachedLossMixin):
    """One step of a loss in mini-batches, whose memory is that of a mini-batch of one view.

    Every mini-batch is embedded without a graph; the loss of all embeddings is differentiated with respect to them;
    and the backward pass embeds each mini-batch again, with the same random numbers, and passes those gradients on.
    So gradients equal those of one pass over the same mini-batches, at the price of a second forward pass. The
    projection head belongs to that pass.

    The order of these steps is that of Sentence Transformers' cached losses, by the mixin that they share: it is not in
    its documentation, but MatryoshkaLoss works with losses that have it.

    Args:
        loss: the loss. MatryoshkaLoss replaces its ``calculate_loss``, so it is called through the loss.
        columns: the batch: (B, ...) features of the sentence, or of the sentence and its positive.
        augmentations: the augmentation of each view.
        encode_view: encodes the rows of a mini-batch as one view.
        generator: generator of the augmentations' draws; None: they draw nothing.
        mini_batch_size: number of rows of a mini-batch.
        mini_batch_num_tokens: instead, its number of tokens.

    Raises:
        ValueError: if AdaptiveLayerLoss runs the loss, whose layers are removed before the backward pass embeds again.
    """

    def __init__(
        self,
        loss: PairLoss,
        columns: Sequence[Features],
        augmentations: Sequence[str],
        encode_view: EncodeView,
        generator: torch.Generator | None,
        *,
        mini_batch_size: int | None,
        mini_batch_num_tokens: int | None,
    ) -> None:
        if layer_decorator(loss.model) is not None:
            raise ValueError(
                f"AdaptiveLayerLoss cannot run {type(loss).__name__} in mini-batches: leave out one of it and "
                "mini_batch_size or mini_batch_num_tokens."
            )
        self.loss, self.model = loss, loss.model
        self.columns, self.encode_view, self.generator = columns, encode_view, generator
        self.mini_batch_size, self.mini_batch_num_tokens = cast(int, mini_batch_size), mini_batch_num_tokens
        self.views = [
            {**columns[min(i, len(columns) - 1)], _AUGMENTATION: name} for i, name in enumerate(augmentations)
        ]
        device = columns[0]["input_ids"].device
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

    def calculate_loss(self, reps: Views, labels: Tensor | None = None, *, with_backward: bool = False) -> Tensor:
        """Return the loss of the views' mini-batches, (b, D) each, and cut the columns as the views were cut."""
        columns = []
        for i, column in enumerate(self.columns):
            begin, parts = 0, []
            for part in reps[min(i, len(reps) - 1)]:
                parts.append(cut_rows(column, begin, begin + len(part)))
                begin += len(part)
            columns.append(parts)
        return self.loss.calculate_loss(reps, with_backward=with_backward, columns=columns)

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
            embeddings = self.encode_view(self.model, features, augmentation, generator)
            return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)), states


def mean_over_mini_batches(
    anchors: Sequence[Tensor],
    candidates: Tensor,
    contrast: Callable[[Tensor, Tensor, int], Tensor],
    *,
    with_backward: bool,
) -> Tensor:
    """Return the mean loss of all anchors, contrasting one mini-batch of them at a time, so no (B, B) matrix is held.

    Args:
        anchors: the mini-batches, (b, D) each.
        candidates: (K, D), which every anchor is compared with. If gradients flow through them, they are
            differentiated once, after the last mini-batch.
        contrast: (anchors of a mini-batch, ``candidates``, index of its first row) -> the mean loss of its rows.
        with_backward: differentiate here, mini-batch by mini-batch, and return a value without a graph.
    """
    rows = sum(len(batch) for batch in anchors)
    leaf = candidates.detach().requires_grad_(candidates.requires_grad) if with_backward else candidates
    total = torch.zeros((), device=anchors[0].device, dtype=full_precision(anchors[0]).dtype)
    begin = 0
    for batch in anchors:
        value = contrast(batch, leaf, begin) * (len(batch) / rows)
        if with_backward and value.requires_grad:
            value.backward()  # type: ignore[no-untyped-call]
        total = total + (value.detach() if with_backward else value)
        begin += len(batch)
    if with_backward and leaf.grad is not None:
        torch.autograd.backward(candidates, leaf.grad)
    return total
