"""Large batches in little memory: the encoder sees one mini-batch at a time, the loss all of them (GradCache).

Source: Gao et al., 2021, https://arxiv.org/abs/2101.06983.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext, has_static_embedding_input
from torch import Tensor, nn

from st_extras.checks import check_count
from st_extras.encoders.forward import forward_pass, layer_decorator
from st_extras.encoders.heads import apply_head
from st_extras.encoders.momentum import require_trainable
from st_extras.encoders.rows import Features, count_rows
from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision
from st_extras.losses.parts.views import TwoViews

_VIEW = "st_extras_augmentation"
"""Where a column's features say which view is to be made of them."""


def check_mini_batch_size(model: nn.Module, mini_batch_size: Any) -> int | None:
    """Return the mini-batch size, a whole number >= 1, or None.

    Raises:
        ValueError: if it is something else, or the encoder's batches cannot be cut into rows.
    """
    if mini_batch_size is None:
        return None
    size = check_count("mini_batch_size", mini_batch_size, at_least=1)
    encoder = unwrap(model)
    if has_static_embedding_input(encoder):
        raise ValueError(
            f"mini_batch_size={size} does not go with a StaticEmbedding, whose batch is one bag of tokens: leave it "
            "out, as such an encoder needs little memory."
        )
    if getattr(encoder[0], "can_flatten_inputs", False):
        raise ValueError(
            f"mini_batch_size={size} does not go with flattened (unpadded) features: load the encoder with "
            'model_kwargs={"unpad_inputs": False} or set model[0].unpad_inputs = False.'
        )
    return size


def check_head_size(head: nn.Module | None, embeddings: Tensor) -> None:
    """Refuse embeddings that were truncated after the projection head.

    Raises:
        ValueError: if their dimension is not that of the head.
    """
    size = embeddings.size(-1) if head is None else cast(nn.Linear, cast(nn.Sequential, head)[0]).out_features
    if embeddings.size(-1) != size:
        raise ValueError(
            f"projection=True was built for embeddings of {size} dimensions, got {embeddings.size(-1)}: "
            "use projection=False with a loss that truncates embeddings (MatryoshkaLoss)."
        )


class GradientCache(CachedLossMixin):
    """One forward pass of a loss with a ``mini_batch_size``, whose memory is that of a mini-batch of one view.

    Every mini-batch is embedded without a graph; the loss of all embeddings is differentiated with respect to them;
    and the backward pass embeds each mini-batch again, with the same random numbers, and passes those gradients on.
    So gradients equal those of one pass over the same mini-batches, at the price of a second forward pass. The
    projection head belongs to that pass.

    The loss has ``model``, ``mini_batch_size`` and ``calculate_loss(reps, labels, *, with_backward, ...)``, which is
    called through the loss, where MatryoshkaLoss puts its own around it.

    Args:
        loss: the loss.
        columns: the batch: (B, ...) features of the sentence, or of the sentence and its positive.
        two_views: makes the two views. None: the first column is encoded, as it is.
        head: a projection head, applied to the embeddings.

    Raises:
        ValueError: if no parameter of the model is trained, the features have no rows, or AdaptiveLayerLoss runs the
            loss, whose layers are gone when the backward pass embeds again.
    """

    def __init__(
        self, loss: nn.Module, columns: Sequence[Features], *, two_views: TwoViews | None, head: nn.Module | None
    ) -> None:
        if layer_decorator(cast(Any, loss).model) is not None:
            raise ValueError(
                f"AdaptiveLayerLoss cannot run {type(loss).__name__} with mini_batch_size: leave one of them out."
            )
        self.loss: Any = loss
        self.model = cast(Any, loss).model
        self.mini_batch_size = cast(Any, loss).mini_batch_size
        self.columns = columns
        self.two_views = two_views
        self.head = head
        names = ("dropout",) if two_views is None else two_views.augmentations
        self.views = [{**columns[min(i, len(columns) - 1)], _VIEW: name} for i, name in enumerate(names)]
        for view in self.views:
            count_rows(view)
        device = columns[0]["input_ids"].device
        self.generator = two_views.source.on(device) if two_views is not None and two_views.draws else None
        self.precision = {
            "device_type": device.type,
            "enabled": torch.is_autocast_enabled(device.type),
            "dtype": torch.get_autocast_dtype(device.type),
            "cache_enabled": False,  # weights that were cast without a graph have none
        }
        if torch.is_grad_enabled():
            require_trainable(unwrap(self.model))

    def value(self, **options: Any) -> Tensor:
        """Return the loss; ``options`` go to ``calculate_loss``."""
        self.options = options
        return self.forward_cached(self.views)

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of the mini-batches of every view, (b, D) each."""
        return cast(Tensor, self.loss.calculate_loss(reps, labels, with_backward=with_backward, **self.options))

    def embed_minibatch(
        self,
        sentence_feature: Features,
        begin: int,
        end: int,
        with_grad: bool,
        copy_random_state: bool,
        random_state: Any = None,
    ) -> tuple[Tensor, Any]:
        """Return the embeddings of some rows of a view, after the head, and the random state before them.

        The embeddings are never in half precision, in which their gradients, not yet scaled, would round to 0.
        """
        features = take_rows(sentence_feature, begin, end)
        augmentation = features.pop(_VIEW)
        state = _RandomState(features, self.generator) if copy_random_state else None
        replayed = nullcontext(self.generator) if random_state is None else random_state
        with torch.autocast(**self.precision), torch.set_grad_enabled(with_grad), replayed as generator:
            if self.two_views is None:
                embeddings = forward_pass(self.model, features)["sentence_embedding"]
            else:
                embeddings = self.two_views.encode_view(self.model, features, augmentation, generator)
            return full_precision(apply_head(self.head, [embeddings])[0]), state


class _RandomState:
    """The random state before a mini-batch, torch's own and a generator's; as a context, gives that generator again."""

    def __init__(self, features: Features, generator: torch.Generator | None) -> None:
        self.torch = RandContext(*(value for value in features.values() if isinstance(value, Tensor)))
        self.own = None if generator is None else (generator.device, generator.get_state())

    def __enter__(self) -> torch.Generator | None:
        self.torch.__enter__()
        if self.own is None:
            return None
        device, state = self.own
        return torch.Generator(device).set_state(state)

    def __exit__(self, *error: Any) -> None:
        self.torch.__exit__(*error)


def take_rows(features: Features, begin: int, end: int) -> Features:
    """Return rows ``begin`` to ``end`` of a padded batch, without the last tokens where they are all padding."""
    mask = features["attention_mask"]
    rows, width = mask.shape
    used = mask[begin:end].any(dim=0).nonzero()
    last = int(used.max()) + 1 if len(used) else width
    result = {}
    for key, value in features.items():
        if isinstance(value, Tensor) and value.ndim > 0 and len(value) == rows:
            value = value[begin:end]
            value = value[:, :last] if value.ndim > 1 and value.size(1) == width else value
        result[key] = value
    return result


def mini_batches(features: Features, size: int | None) -> Iterator[Features]:
    """Yield a padded batch's rows, ``size`` at a time; None: the features themselves."""
    if size is None:
        yield features
        return
    rows = count_rows(features)
    for begin in range(0, rows, size):
        yield take_rows(features, begin, min(begin + size, rows))


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
