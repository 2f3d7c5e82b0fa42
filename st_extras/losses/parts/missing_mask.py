"""What a loss that masks tokens does with a tokenizer that has no mask token: refuse it, or delete them."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_choice
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap

ON_MISSING_MASK = ("error", "delete")


def check_mask_token(model: SentenceTransformer, on_missing_mask: str, what: str, otherwise: str) -> str:
    """Return ``on_missing_mask``.

    Args:
        model: the SentenceTransformer.
        on_missing_mask: "error" or "delete".
        what: what the loss masks, for the message.
        otherwise: the alternatives that the message ends with.

    Raises:
        ValueError: if it is neither, or is "error" and the tokenizer has no mask token.
    """
    check_choice("on_missing_mask", on_missing_mask, ON_MISSING_MASK)
    tokenizer: Any = getattr(model, "tokenizer", None)
    if on_missing_mask == "error" and getattr(tokenizer, "mask_token_id", None) is None:
        raise ValueError(
            f"model must have a tokenizer with a mask token to put in place of {what}, got a "
            f'{type(tokenizer).__name__} without one: pass on_missing_mask="delete" to delete them instead, '
            f"{otherwise}."
        )
    return on_missing_mask


def delete_tokens(model: nn.Module, features: Features, deleted: Tensor) -> Features:
    """Return copies of the rows without the deleted tokens, as wide as before: their places become padding.

    The rows are those of the shorter sentences: the other tokens close up in their order, on the side that the
    tokenizer pads away from, and position ids keep their places.

    Args:
        model: the encoder, whose tokenizer tells the padding side and token.
        features: a tokenized column of B sentences.
        deleted: (B, L) bool, tokens that are present.
    """
    tokenizer = unwrap(model).tokenizer
    present = features["attention_mask"].bool()
    before = ~present & (present.cumsum(dim=1) == 0)
    place = torch.where(present, 2, torch.where(before, 0, 4))
    place = torch.where(deleted, 1 if tokenizer.padding_side == "left" else 3, place)
    order = place.argsort(dim=1, stable=True)  # (B, L)
    emptied = deleted.gather(1, order)
    shorter = dict(features)
    for key, value in features.items():
        if isinstance(value, Tensor) and value.shape == deleted.shape and key != "position_ids":
            shorter[key] = value.gather(1, order)
    shorter["input_ids"] = shorter["input_ids"].masked_fill(emptied, tokenizer.pad_token_id or 0)
    shorter["attention_mask"] = shorter["attention_mask"].masked_fill(emptied, 0)
    return shorter
