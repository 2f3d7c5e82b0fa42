"""What a loss that works on tokens asks of an encoder: an embedding for each token, a mask token."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_choice


def check_token_embeddings(tokens: Tensor, input_ids: Tensor, what: str, otherwise: str) -> None:
    """Refuse the tokens of an encoder that pools them inside, as Funnel without its decoder does.

    Args:
        tokens: (R, L, D) token embeddings.
        input_ids: (R, L).
        what: what needs the token embeddings, for the message.
        otherwise: the alternative that the message ends with.

    Raises:
        ValueError: if there is another number of token embeddings than of tokens.
    """
    if tokens.shape[:2] != input_ids.shape:
        raise ValueError(
            f"{what} needs an encoder with one token embedding for each token, got {tokens.size(1)} for "
            f"{input_ids.size(1)} tokens: use another encoder, or {otherwise}."
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
