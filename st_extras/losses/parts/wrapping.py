"""A base loss inside another loss that adds rows of its own to the encoder's one pass (SLT-FAI, PaSeR)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses.matryoshka import ForwardDecorator
from torch import Tensor, nn

from st_extras.checks import check_instance
from st_extras.encoders.forward import without_dropout
from st_extras.encoders.rows import Features, stack_columns
from st_extras.encoders.structure import unwrap


def check_base_loss(base_loss: nn.Module, model: SentenceTransformer) -> nn.Module:
    """Return the base loss.

    Raises:
        ValueError: if it does not compute its value from embeddings, or was built on another model.
    """
    check_instance("base_loss", base_loss, nn.Module)
    name = type(base_loss).__name__
    if not hasattr(base_loss, "compute_loss_from_embeddings"):
        raise ValueError(
            f"base_loss={name} has no compute_loss_from_embeddings, so it cannot share the encoder's pass: use a loss "
            "that has it, such as SimCSELoss, ConSERTLoss, DCLRLoss, AdCSELoss or MultipleNegativesRankingLoss."
        )
    if unwrap(cast(Any, base_loss).model) is not unwrap(model):
        raise ValueError(f"base_loss={name} must be built on the same model.")
    return base_loss


def base_views(base_loss: nn.Module, columns: Sequence[Features]) -> tuple[Features, int]:
    """Return the rows that the base loss needs encoded, view after view, and the number of views.

    A loss without a ``views`` method (any of Sentence Transformers') gets every column, or two copies of a single
    one, which dropout tells apart.

    Raises:
        ValueError: if the columns cannot share one pass.
    """
    if hasattr(base_loss, "views"):
        return cast("tuple[Features, int]", cast(Any, base_loss).views(columns))
    return stack_columns(columns), max(len(columns), 2)


def base_mode(base_loss: nn.Module | None, model: nn.Module) -> AbstractContextManager[None]:
    """Return the context of the pass over the base's views: without dropout if the base has ``dropout = False``."""
    return nullcontext() if getattr(base_loss, "dropout", True) else without_dropout(model)


def base_value(
    base_loss: nn.Module, embeddings: Sequence[Tensor], labels: Tensor | None, columns: Sequence[Features]
) -> Tensor | dict[str, Tensor]:
    """Return the base loss of its views' embeddings, (B, D) each; ``columns`` go to a loss that takes them."""
    compute = cast(Any, base_loss).compute_loss_from_embeddings
    takes_features = "sentence_features" in inspect.signature(compute).parameters
    value: Tensor | dict[str, Tensor] = compute(
        list(embeddings), labels, **({"sentence_features": columns} if takes_features else {})
    )
    return value


def refuse_matryoshka(model: nn.Module, advice: str) -> None:
    """Refuse MatryoshkaLoss around a loss of several terms: it multiplies the value that a loss returns.

    Raises:
        ValueError: if MatryoshkaLoss has wrapped the model; the message ends with ``advice``.
    """
    if any(isinstance(vars(module).get("forward"), ForwardDecorator) for module in (model, unwrap(model))):
        raise ValueError(f"MatryoshkaLoss takes losses of one term, and this one returns several: {advice}.")
