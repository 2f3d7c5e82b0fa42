"""Masked copies of a batch: who asks for them, how the rows are doubled, and how they are taken apart again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor, nn

COPIES = "masked_copies"
"""Feature key: present if the second half of the rows are masked copies of the first half."""
POOLED = "pooled_copies"
"""Feature key: present if those copies are the texts' own token embeddings, their keywords left out of the mask."""


@runtime_checkable
class MaskedCopyReader(Protocol):
    """A pipeline module that may need masked copies of the texts; ``PartialMaskTransformer`` looks for it."""

    @property
    def wants_masked_copies(self) -> bool:
        """Whether the next pass needs masked copies."""
        ...


def with_pooled_copies(features: dict[str, Any], keyword_tokens: Tensor) -> dict[str, Any]:
    """Repeat each encoded row, with its keywords removed from the attention mask of the second one.

    A row that would have no token left keeps them all.

    Args:
        features: what the encoder returned for B texts.
        keyword_tokens: (B, L) bool, the tokens of keywords.

    Returns:
        Features of 2B rows: the texts, then their copies.
    """
    attention = features["attention_mask"]  # (B, L)
    kept = attention * ~keyword_tokens.to(attention.device)
    kept = torch.where(kept.any(dim=1, keepdim=True), kept, attention)
    rows = len(attention)
    doubled = {name: _map_rows(value, rows, lambda x: torch.cat([x, x])) for name, value in features.items()}
    doubled["attention_mask"] = torch.cat([attention, kept])
    doubled[POOLED] = True
    return doubled


def split_copies(features: dict[str, Any]) -> tuple[dict[str, Any], Tensor | None]:
    """Undo the doubling: return the features of the B texts, and the embeddings (B, D) of their masked copies."""
    if not features.pop(COPIES, False):
        return features, None
    features.pop(POOLED, None)
    embeddings = features["sentence_embedding"]  # (2B, D)
    rows = len(embeddings)
    halved = {name: _map_rows(value, rows, lambda x: x[: rows // 2]) for name, value in features.items()}
    return halved, embeddings[rows // 2 :]


def _map_rows(value: Any, rows: int, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply ``function`` to a tensor of ``rows`` rows, or to each one in a list or tuple; leave the rest unchanged."""
    if isinstance(value, Tensor):
        return function(value) if value.ndim and value.shape[0] == rows else value
    if isinstance(value, (tuple, list)) and value and all(isinstance(item, Tensor) for item in value):
        return type(value)([_map_rows(item, rows, function) for item in value])
    return value


def refuse_training(module: nn.Module) -> None:
    """Check that no gradients are taken through a model with RepAL in training mode.

    Raises:
        ValueError: if they are.
    """
    if module.training and torch.is_grad_enabled():
        raise ValueError(
            "a model with RepAL attached cannot be trained, because RepAL post-processes a finished encoder: train "
            "RepALPostProcessor.detach(model) and attach RepAL again, or call model.eval() before a forward pass."
        )


class JoinedParts(Module):
    """Last module of a pass that wants both embeddings: (2B, D) -> (B, 2D)."""

    wants_masked_copies = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Put the embedding of each masked copy beside that of its text."""
        features, redundant = split_copies(features)
        if redundant is not None:
            features["sentence_embedding"] = torch.cat([features["sentence_embedding"], redundant], dim=1)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Save nothing: this module is never part of a saved model."""
