"""Vocabularies: which token stands at which id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from st_extras.checks import shown


def vocabulary(tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, ...]:
    """Return the token at each id of the tokenizer, None at ids without a token.

    Raises:
        ValueError: if it is not a tokenizer of transformers, or has no vocabulary.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(
            f"tokenizer must be one of transformers, got {shown(tokenizer)}: give the .tokenizer of a transformer, or "
            "wrap one of tokenizers in PreTrainedTokenizerFast(tokenizer_object=...)."
        )
    ids = tokenizer.get_vocab()
    if not ids:
        raise ValueError("tokenizer must have a vocabulary, got one without a token.")
    tokens: list[str | None] = [None] * (max(ids.values()) + 1)
    for token, index in ids.items():
        tokens[index] = token
    return tuple(tokens)


def vocabulary_hash(tokens: Sequence[str | None]) -> str:
    """Return the sha256 of the tokens as JSON, which no token can imitate by holding a separator."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()
