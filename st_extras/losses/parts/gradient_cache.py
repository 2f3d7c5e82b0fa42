"""Large batches in little memory: the encoder sees one mini-batch at a time, the loss all of them (GradCache).

Source: Gao et al., 2021, https://arxiv.org/abs/2101.06983.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from sentence_transformers.base.losses import gradcache
from torch import Tensor, nn

from st_extras.checks import check_count
from st_extras.encoders.forward import layer_decorator
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision

_VIEW = "st_extras_augmentation"
"""Where a column's features say which view is to be made of them."""


def check_mini_batches(model: nn.Module, size: int | None, num_tokens: int | None) -> None:
    """Refuse mini-batches that are cut in two ways or in none, or of an encoder whose batches have no rows.

    Raises:
        ValueError: if not one of them is a whole number >= 1, or the encoder is such an encoder.
    """
    given = {"mini_batch_size": size, "mini_batch_num_tokens": num_tokens}
    given = {name: check_count(name, value, at_least=1) for name, value in given.items() if value is not None}
    shown = " and ".join(f"{name}={value}" for name, value in given.items())
    if len(given) > 1:
        raise ValueError(f"A batch is cut in one way: give mini_batch_size or mini_batch_num_tokens, got {shown}.")
    encoder = unwrap(model)
    if gradcache.has_static_embedding_input(encoder):
        raise ValueError(
            f"{shown} does not go with a StaticEmbedding, whose batch is one bag of tokens: leave it out, as such an "
            "encoder needs little memory."
        )
    if getattr(encoder[0], "can_flatten_inputs", False):
        raise ValueError(
            f"{shown} does not go with flattened (unpadded) features: load the encoder with "
            'model_kwargs={"unpad_inputs": False} or set model[0].unpad_inputs = False.'
        )


class GradientCache(gradcache.CachedLossMixin):
    """One forward pass of a loss in mini-batches, whose memory is that of a mini-batch of one view.

    Every mini-batch is embedded without a graph; the loss of all embeddings is differentiated with respect to them;
    and the backward pass embeds each mini-batch again, with the same random numbers, and passes those gradients on.
    So gradients equal those of one pass over the same mini-batches, at the price of a second forward pass. The
    projection head belongs to that pass.

    Args:
        loss: the loss; its ``calculate_loss(reps, *, with_backward, columns)`` is called through it, where
            MatryoshkaLoss puts its own around it.
        step: the loss's :class:`~st_extras.losses.parts.pair_step.PairStep`.
        columns: the batch: (B, ...) features of the sentence, or of the sentence and its positive.

    Raises:
        ValueError: if AdaptiveLayerLoss runs the loss, whose layers are gone when the backward pass embeds again.
    """

    def __init__(self, loss: Any, step: Any, columns: Sequence[Features]) -> None:
        if layer_decorator(loss.model) is not None:
            raise ValueError(
                f"AdaptiveLayerLoss cannot run {type(loss).__name__} in mini-batches: leave out one of it and "
                "mini_batch_size or mini_batch_num_tokens."
            )
        self.loss, self.step, self.model = loss, step, loss.model
        cut = self.mini_batch_size, self.mini_batch_num_tokens = step.mini_batch_size, step.mini_batch_num_tokens
        self.columns = [
            [gradcache._create_minibatch(column, *rows) for rows in gradcache._minibatch_ranges(column, *cut)]
            for column in columns
        ]
        two_views = step.two_views
        names = ("dropout",) if two_views is None else two_views.augmentations
        self.views = [{**columns[min(i, len(columns) - 1)], _VIEW: name} for i, name in enumerate(names)]
        device = columns[0]["input_ids"].device
        self.generator = two_views.source.on(device) if two_views is not None and two_views.draws else None
        self.precision = {
            "device_type": device.type,
            "enabled": torch.is_autocast_enabled(device.type),
            "dtype": torch.get_autocast_dtype(device.type),
            "cache_enabled": False,  # weights that were cast without a graph have none
        }

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of the mini-batches of every view, (b, D) each."""
        return cast(Tensor, self.loss.calculate_loss(reps, with_backward=with_backward, columns=self.columns))

    def embed_minibatch(
        self,
        sentence_feature: Features,
        begin: int,
        end: int,
        with_grad: bool,
        copy_random_state: bool,
        random_state: Any = None,
    ) -> tuple[Tensor, Any]:
        """Return the embeddings of some rows of a view, after the head, and the random states before them.

        The embeddings are never in half precision, in which their gradients, not yet scaled, would round to 0.
        """
        features = gradcache._create_minibatch(sentence_feature, begin, end)
        augmentation, generator, replayed, states = features.pop(_VIEW), self.generator, nullcontext(), None
        if copy_random_state:
            own = None if generator is None else generator.get_state()
            states = gradcache.RandContext(*(value for value in features.values() if isinstance(value, Tensor))), own
        if random_state is not None:
            replayed, own = random_state
            generator = None if own is None else torch.Generator(sentence_feature["input_ids"].device).set_state(own)
        with torch.autocast(**self.precision), torch.set_grad_enabled(with_grad), replayed:
            embeddings = self.step.encode_view(self.model, features, augmentation, generator)
            return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)), states


def mean_over_mini_batches(
    anchors: Sequence[Tensor],
    shared: Sequence[Tensor],
    term: Callable[[Tensor, Sequence[Tensor], int], Tensor],
    *,
    with_backward: bool,
) -> Tensor:
    """Return the mean over all anchors of a term that sees one mini-batch of them, so no (B, B) matrix is held.

    Args:
        anchors: the mini-batches, (b, D) each.
        shared: what every mini-batch is compared with, such as the candidates of all processes. Where gradients flow
            through it, it is differentiated once, after the last mini-batch.
        term: (a mini-batch, ``shared``, index of its first row) -> mean over its rows.
        with_backward: differentiate at once, mini-batch by mini-batch, and return a value without a graph.
    """
    rows = sum(len(batch) for batch in anchors)
    inner = [x.detach().requires_grad_(x.requires_grad) for x in shared] if with_backward else shared
    total = torch.zeros((), device=anchors[0].device, dtype=full_precision(anchors[0]).dtype)
    begin = 0
    for batch in anchors:
        value = term(batch, inner, begin) * (len(batch) / rows)
        if with_backward and value.requires_grad:
            value.backward()  # type: ignore[no-untyped-call]
        total = total + (value.detach() if with_backward else value)
        begin += len(batch)
    if with_backward and (graphs := [pair for pair in zip(shared, inner, strict=True) if pair[1].grad is not None]):
        torch.autograd.backward([x for x, _ in graphs], [leaf.grad for _, leaf in graphs])
    return total
