"""Padding that changes no embedding: a text's must be the same alone and in a batch with longer texts."""

from __future__ import annotations

import logging
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

from st_extras.encoders.forward import without_dropout
from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision

logger = logging.getLogger(__name__)
_SHORT, _LONG = "a b", "one two three four five six seven eight nine ten"
_ROUNDING = 1e-3
"""Relative difference up to which two embeddings of a text are equal, or 8 units of rounding in half precision."""
_MIXED = 0.05
"""Relative difference above which padding itself, not a quantised layer, changed an embedding."""


def fix_padding_side(model: nn.Module) -> None:
    """Let the tokenizer pad on the right, in place, if padding on the left changes the model's embeddings.

    Padding on the left moves a text in the batch. An encoder with absolute positions that counts them by place (BERT,
    GPT-2) then makes another embedding of it, depending on the longest text of the batch. On the right, padding moves
    nothing, and attention masks hide it. Encoders with relative or rotary positions keep their side. Where padding
    changes embeddings on either side (FNet), a warning says so.

    Whatever takes an encoder calls it: loading, losses, modules, guides, searches; not evaluators, which change no
    encoder. It runs the encoder on two short texts, once
    for each padding side of a model.
    """
    encoder = unwrap(model)
    tokenizers = _tokenizers(encoder)
    sides = [tokenizer.padding_side for tokenizer in tokenizers]
    body = encoder.transformers_model or encoder[0]  # what models of the same encoder share
    if not sides or vars(body).get("checked_padding_sides") == sides:
        return
    what = type(body).__name__
    change = _change_by_padding(encoder)
    if "left" in sides and change > 0:
        for tokenizer in tokenizers:
            tokenizer.padding_side = "right"
        logger.warning(
            "The tokenizer pads on the right now: on the left, padding changes the embeddings of this %s.", what
        )
        change = _change_by_padding(encoder)
    if change > _MIXED:
        logger.warning(
            "Padding changes the embeddings of this %s: a text gets another one beside a longer text. Encode with "
            "batch_size=1, or texts of equal length together.",
            what,
        )
    vars(body)["checked_padding_sides"] = [tokenizer.padding_side for tokenizer in tokenizers]


def _tokenizers(encoder: SentenceTransformer) -> list[Any]:
    """Return the tokenizers that pad, of every route."""
    found = {id(own): own for module in encoder.modules() if (own := getattr(module, "tokenizer", None)) is not None}
    return [tokenizer for tokenizer in found.values() if hasattr(tokenizer, "padding_side")]


def _change_by_padding(encoder: SentenceTransformer) -> float:
    """Return how far a longer text in the batch moves a short text's embedding, relative to its length; rounding is 0.

    Of several routes of a Router, the largest counts.
    """
    first: Any = encoder[0]
    changes = [0.0]
    for task in list(first.sub_modules) if isinstance(first, Router) else [None]:
        try:
            alone, together = (_embedding(encoder, texts, task) for texts in ([_SHORT], [_SHORT, _LONG]))
        except Exception:  # whatever an encoder raises that takes no plain text, or none of this route
            continue
        rounding = max(_ROUNDING, 8 * torch.finfo(alone.dtype).eps)
        apart = float((full_precision(alone) - full_precision(together)).norm() / full_precision(alone).norm())
        changes.append(apart if apart > rounding else 0.0)
    return max(changes)


def _embedding(encoder: SentenceTransformer, texts: list[str], task: str | None) -> Tensor:
    """Return the embedding (D,) of the first text."""
    named = {} if task is None else {"task": task}
    features = batch_to_device({**encoder.preprocess(texts, **named), **named}, encoder.device)
    with torch.no_grad(), without_dropout(encoder):
        return encoder(features)["sentence_embedding"][0]  # type: ignore[no-any-return]
