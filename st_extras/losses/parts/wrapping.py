"""Losses inside others: a base loss inside SLT-FAI or PaSeR, and ours inside MatryoshkaLoss."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import uses_gradient_cache
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.sentence_transformer.losses.matryoshka import CachedLossDecorator, ForwardDecorator
from torch import Tensor, nn

from st_extras.checks import check_instance
from st_extras.encoders.forward import Encoded, encode_tokens, without_dropout
from st_extras.encoders.rows import Features, split_rows, stack_columns
from st_extras.encoders.structure import unwrap
from st_extras.losses.parts.batch_checks import BatchChecks


def check_base_loss(base_loss: nn.Module, model: SentenceTransformer) -> nn.Module:
    """Return the base loss, if another loss can share the encoder's pass with it.

    Raises:
        ValueError: if it does not compute its value from embeddings, encodes them in mini-batches, or was built on
            another model.
    """
    check_instance("base_loss", base_loss, nn.Module)
    name = type(base_loss).__name__
    if not hasattr(base_loss, "compute_loss_from_embeddings"):
        raise ValueError(
            f"base_loss must be a loss with compute_loss_from_embeddings, got {name}: use one of st_extras.losses that "
            "compares two views, or MultipleNegativesRankingLoss."
        )
    if uses_gradient_cache(base_loss):
        raise ValueError(
            f"base_loss must have neither mini_batch_size nor mini_batch_num_tokens, got a {name} with one: its views "
            "share one pass of the encoder with other rows, so use a smaller batch instead."
        )
    if unwrap(cast(Any, base_loss).model) is not unwrap(model):
        raise ValueError(f"base_loss must be built on the same model, got a {name} of another one.")
    return base_loss


def base_views(base_loss: nn.Module, columns: Sequence[Features]) -> tuple[Features, int]:
    """Return the rows that the base loss needs encoded, view after view, and the number of views.

    A loss without a ``views`` method (any loss of Sentence Transformers) gets every column, or two copies of a single
    one, which differ by dropout.

    Raises:
        ValueError: if the columns cannot share one pass.
    """
    if hasattr(base_loss, "views"):
        return cast("tuple[Features, int]", cast(Any, base_loss).views(columns))
    return stack_columns(columns), max(len(columns), 2)


def base_mode(base_loss: nn.Module | None, model: nn.Module) -> AbstractContextManager[None]:
    """Return the context in which the base's views are encoded: without dropout if the base has ``dropout = False``."""
    return nullcontext() if getattr(base_loss, "dropout", True) else without_dropout(model)


def base_value(
    base_loss: nn.Module,
    embeddings: Sequence[Tensor],
    labels: Tensor | None,
    columns: Sequence[Features],
    checks: BatchChecks | None = None,
) -> dict[str, Tensor]:
    """Return the terms of the base loss by name; a single one is called "base".

    Args:
        base_loss: the base loss.
        embeddings: of its views, (B, D) each.
        labels: its labels.
        columns: the tokenized columns, passed to a loss that takes them.
        checks: compares the views of a base of Sentence Transformers; our losses check theirs themselves.
    """
    compute = cast(Any, base_loss).compute_loss_from_embeddings
    takes_features = "sentence_features" in inspect.signature(compute).parameters
    if checks is not None and len(columns) == 1 and len(embeddings) == 2 and not hasattr(base_loss, "views"):
        checks.check_views(cast(nn.Module, base_loss.model), *embeddings, other_signal=True)
    value = compute(list(embeddings), labels, **({"sentence_features": columns} if takes_features else {}))
    return value if isinstance(value, dict) else {"base": value}


def encode_with_base(
    model: nn.Module, base_loss: nn.Module | None, columns: Sequence[Features], added: Sequence[Features]
) -> tuple[list[Encoded], list[Encoded]]:
    """Return the encoded views of the base and the encoded added blocks, from one pass if all can be merged.

    Args:
        model: the encoder.
        base_loss: the base loss. None: the first column is the only view.
        columns: the base loss's columns.
        added: blocks of B rows.
    """
    view_rows, count = (columns[0], 1) if base_loss is None else base_views(base_loss, columns)
    with base_mode(base_loss, model):
        merged = merge_feature_batches([*split_rows(view_rows, count), *added])
        if merged is not None:
            encoded = encode_tokens(model, merged).split(count + len(added))
        else:
            encoded = encode_tokens(model, view_rows).split(count) + [encode_tokens(model, block) for block in added]
    return encoded[:count], encoded[count:]


def gather_instruments(**parts: Any) -> dict[str, Tensor]:
    """Return the ``instruments`` of a loss's parts; names that several parts use are prefixed with the part's name."""
    instruments_of = {part: getattr(loss, "instruments", {}) for part, loss in parts.items()}
    names = [name for instruments in instruments_of.values() for name in instruments]
    return {
        f"{part}_{name}" if names.count(name) > 1 else name: value
        for part, instruments in instruments_of.items()
        for name, value in instruments.items()
    }


# MatryoshkaLoss replaces the model's forward without informing the loss: the class of the replacement shows it.


def _matryoshka(model: nn.Module) -> ForwardDecorator | None:
    """Return what MatryoshkaLoss puts in place of the model's forward while it runs the loss; None outside it."""
    forwards = [vars(module).get("forward") for module in (model, unwrap(model))]
    return next((forward for forward in forwards if isinstance(forward, ForwardDecorator)), None)


def is_truncated(model: nn.Module) -> bool:
    """Return whether MatryoshkaLoss runs the loss, on embeddings that it has truncated; it takes one value."""
    return _matryoshka(model) is not None


def sum_if_truncated(model: nn.Module, terms: dict[str, Tensor]) -> Tensor | dict[str, Tensor]:
    """Return the terms, or their sum if MatryoshkaLoss runs the loss."""
    return torch.stack(list(terms.values())).sum() if is_truncated(model) else terms


def is_repeated(model: nn.Module) -> bool:
    """Return whether MatryoshkaLoss runs the loss on this batch for a second or later time.

    It runs it once per dimension. In later runs, the encoder returns its output of the first run, whatever rows it is
    given. What belongs to the batch as a whole (terms on tokens, counters, draws) is computed in the first run only.
    """
    forward: Any = _matryoshka(model)
    return forward is not None and forward.cache_dim not in (None, forward.dim)


def refuse_matryoshka(model: nn.Module, name: str, advice: str, *, cached: nn.Module | None = None) -> None:
    """Refuse MatryoshkaLoss around a loss that must run once per batch.

    Args:
        model: the encoder.
        name: name of the loss; the message begins with it.
        advice: what to do instead; the message ends with it.
        cached: the loss, if it can cache gradients: MatryoshkaLoss then wraps its ``calculate_loss``, not the model.

    Raises:
        ValueError: if it runs the loss.
    """
    if is_truncated(model) or isinstance(vars(cached or model).get("calculate_loss"), CachedLossDecorator):
        raise ValueError(
            f"{name} cannot run inside MatryoshkaLoss, which runs a loss several times per batch: {advice}."
        )
