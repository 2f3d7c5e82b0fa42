"""What a loss sees of MatryoshkaLoss and AdaptiveLayerLoss, which run it several times on a batch."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.sentence_transformer.losses.matryoshka import CachedLossDecorator, ForwardDecorator
from torch import Tensor, nn

from st_extras.encoders.forward import layer_decorator
from st_extras.encoders.structure import unwrap


def _matryoshka(model: nn.Module) -> ForwardDecorator | None:
    """Return what MatryoshkaLoss puts in place of the model's forward while it runs the loss; None outside it."""
    forwards = [vars(module).get("forward") for module in (model, unwrap(model))]
    return next((forward for forward in forwards if isinstance(forward, ForwardDecorator)), None)


def is_wrapped(model: nn.Module) -> bool:
    """Return whether MatryoshkaLoss or AdaptiveLayerLoss runs the loss: they take one value, not several terms."""
    return is_truncated(model) or layer_decorator(model) is not None


def sum_if_wrapped(model: nn.Module, terms: dict[str, Tensor]) -> Tensor | dict[str, Tensor]:
    """Return the terms, or their sum if one of them runs the loss."""
    return torch.stack(list(terms.values())).sum() if is_wrapped(model) else terms


def is_truncated(model: nn.Module) -> bool:
    """Return whether MatryoshkaLoss runs the loss, on embeddings that it has truncated."""
    return _matryoshka(model) is not None


def is_repeated(model: nn.Module) -> bool:
    """Return whether MatryoshkaLoss or AdaptiveLayerLoss runs the loss again on a batch: a smaller dimension, a layer.

    Then the encoder's output is that of the first run, of the very rows that were drawn there. What belongs to the
    batch as a whole (terms on tokens, counters, draws) is the first run's alone.
    """
    layers: Any = layer_decorator(model)
    if layers is not None and layers.layer_idx is not None:
        return True
    found: Any = _matryoshka(model)
    return found is not None and found.cache_dim not in (None, found.dim)


def refuse_wrapped(model: nn.Module, name: str, advice: str, *, cached: nn.Module | None = None) -> None:
    """Refuse MatryoshkaLoss and AdaptiveLayerLoss around a loss that must run once on a batch.

    MatryoshkaLoss leaves the model alone and wraps ``calculate_loss`` if the loss caches gradients: then the loss is
    given as ``cached``.

    Raises:
        ValueError: if one of them runs the loss; the message begins with ``name`` and ends with ``advice``.
    """
    truncated = is_truncated(model) or isinstance(vars(cached or model).get("calculate_loss"), CachedLossDecorator)
    if truncated or is_wrapped(model):
        wrapper = "MatryoshkaLoss" if truncated else "AdaptiveLayerLoss"
        raise ValueError(f"{name} cannot run inside {wrapper}, which runs a loss several times a batch: {advice}.")
