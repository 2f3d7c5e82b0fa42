"""What a loss that works on tokens asks of an encoder: an embedding for each token, a mask token."""

from __future__ import annotations

from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router
from sentence_transformers.util import batch_to_device

from st_extras.checks import check_choice
from st_extras.encoders.forward import without_dropout
from st_extras.encoders.structure import unwrap

_WORDS = "a few words that are long enough to be shortened"


def check_token_embeddings(model: SentenceTransformer, what: str, otherwise: str) -> None:
    """Refuse an encoder that pools its tokens inside, as Funnel without its decoder does.

    One pass over a few words, without dropout; it leaves every random state as it was.

    Args:
        model: the SentenceTransformer.
        what: what needs the token embeddings, for the message.
        otherwise: the alternative that the message ends with.

    Raises:
        ValueError: if the encoder gives another number of token embeddings than it got tokens.
    """
    encoder = unwrap(model)
    first: Any = encoder[0]
    if isinstance(first, Router):  # of one encoder, which all its routes begin with
        first = cast(Any, next(iter(first.sub_modules.values())))[0]
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices), without_dropout(encoder):
        rows = batch_to_device(encoder.preprocess([_WORDS]), encoder.device)
        if "cu_seq_lens_q" in rows:
            return  # flattened: the first batch is refused with the setting to change
        tokens, ids = first(dict(rows)).get("token_embeddings"), rows["input_ids"]
    if tokens is not None and tokens.shape[:2] != ids.shape:
        raise ValueError(
            f"{what} needs an encoder with one token embedding for each token, got {tokens.size(1)} for "
            f"{ids.size(1)} tokens from {type(encoder.transformers_model).__name__}: use another encoder, or "
            f"{otherwise}."
        )


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
    check_choice("on_missing_mask", on_missing_mask, ("error", "delete"))
    tokenizer: Any = getattr(model, "tokenizer", None)
    if on_missing_mask == "error" and getattr(tokenizer, "mask_token_id", None) is None:
        raise ValueError(
            f"model must have a tokenizer with a mask token to put in place of {what}, got a "
            f'{type(tokenizer).__name__} without one: pass on_missing_mask="delete" to delete them instead, '
            f"{otherwise}."
        )
    return on_missing_mask
