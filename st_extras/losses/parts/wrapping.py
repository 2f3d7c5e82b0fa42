"""Another loss as the base of one that adds rows of its own to the encoder's one pass (SLT-FAI, PaSeR)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.encoders import unwrap, without_dropout
from st_extras.rows import Features, merged_pair


def check_base_loss(base_loss: nn.Module, model: SentenceTransformer) -> nn.Module:
    """The base loss; ValueError where it computes nothing from embeddings, or belongs to another model."""
    name = type(base_loss).__name__
    if not hasattr(base_loss, "compute_loss_from_embeddings"):
        raise ValueError(
            f"base_loss={name} has no compute_loss_from_embeddings, so it cannot share the encoder's pass: use a loss "
            "that has it, as SimCSELoss, ConSERTLoss, DCLRLoss, AdCSELoss and MultipleNegativesRankingLoss do."
        )
    if unwrap(cast(Any, base_loss).model) is not unwrap(model):
        raise ValueError(f"base_loss={name} must be built on the same model.")
    return base_loss


def base_views(base_loss: nn.Module, columns: Sequence[Features]) -> tuple[Features, int]:
    """The rows that the base loss needs encoded, view after view, and the number of views.

    A loss without a method ``views`` (any of Sentence Transformers) gets every column, or two views of a single one.

    Raises:
        ValueError: the columns cannot share one pass.
    """
    if hasattr(base_loss, "views"):
        return cast("tuple[Features, int]", cast(Any, base_loss).views(columns))
    return merged_pair(columns, ("dropout", "dropout")), max(len(columns), 2)


def base_mode(base_loss: nn.Module | None, model: nn.Module) -> AbstractContextManager[None]:
    """For the pass over the base's views: the encoder's dropout off where the base says ``dropout = False``."""
    return nullcontext() if getattr(base_loss, "dropout", True) else without_dropout(model)


def base_value(
    base_loss: nn.Module, embeddings: Sequence[Tensor], labels: Tensor | None, columns: Sequence[Features]
) -> Tensor | dict[str, Tensor]:
    """The base loss of its views' embeddings, (B, D) each; ``columns`` go to a loss that asks for them."""
    compute = cast(Any, base_loss).compute_loss_from_embeddings
    takes_features = "sentence_features" in inspect.signature(compute).parameters
    value: Tensor | dict[str, Tensor] = compute(
        list(embeddings), labels, **({"sentence_features": columns} if takes_features else {})
    )
    return value
