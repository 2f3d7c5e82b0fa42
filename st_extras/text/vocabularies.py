"""Vocabularies: which token stands at which id, and counts that belong to one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from st_extras.checks import shown


def vocabulary(tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, ...]:
    """Return the token at each id of the tokenizer, None at ids without a token.

    Raises:
        ValueError: if it is not a tokenizer of transformers, or has no vocabulary.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(f"tokenizer must be one of transformers, got {shown(tokenizer)}: {_remedy(tokenizer)}.")
    ids = tokenizer.get_vocab()
    if not ids:
        raise ValueError("tokenizer must have a vocabulary, got one without a token.")
    tokens: list[str | None] = [None] * (max(ids.values()) + 1)
    for token, index in ids.items():
        tokens[index] = token
    return tuple(tokens)


def _remedy(given: Any) -> str:
    """Return what to give in place of something that is not a tokenizer of transformers."""
    if isinstance(getattr(given, "tokenizer", None), PreTrainedTokenizerBase):
        return "give its .tokenizer"
    if isinstance(given, Tokenizer):
        return "wrap it, PreTrainedTokenizerFast(tokenizer_object=...)"
    return "give the tokenizer of an encoder that is a transformer"


def vocabulary_hash(tokens: Sequence[str | None]) -> str:
    """Return the sha256 of the tokens as JSON, which no token can imitate by holding a separator."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()


def check_tokens(tokens: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return the tokens of a vocabulary; ValueError unless they are a collection of strings and None."""
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        raise ValueError(f"tokens must be a sequence of strings, None at ids without a token, got {shown(tokens)}.")
    listed = tuple(tokens)
    if any(not isinstance(token, str | None) for token in listed):
        wrong = next(token for token in listed if not isinstance(token, str | None))
        raise ValueError(f"tokens must hold strings, None at ids without a token, got the item {shown(wrong)}.")
    return listed


def whole_numbers(counts: Tensor | Sequence[int]) -> Tensor:
    """Return the counts as an int64 tensor; ValueError if that would change one."""
    try:
        given = torch.as_tensor(counts)
        whole = given.to(torch.int64).cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"counts must be whole numbers from 0 to 2**63 - 1, got {shown(counts)} ({error}).") from None
    if given.dtype in (torch.bool, torch.uint64) or given.is_complex() or (whole != given.cpu()).any():
        raise ValueError(
            f"counts must be whole numbers from 0 to 2**63 - 1, got {given.dtype} values that are not: {shown(counts)}."
        )
    return whole


def check_same_vocabulary(
    ours: Sequence[str | None], theirs: Sequence[str | None], owner: str, name: str = "The frequency table"
) -> None:
    """Raise a ValueError, which begins with ``name``, unless both have the same token at each id."""
    if tuple(ours) == tuple(theirs):
        return
    index = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if index is None:
        difference = f"{len(ours)} ids here, {len(theirs)} there"
    else:
        difference = f"id {index} is {ours[index]!r} here and {theirs[index]!r} there"
    raise ValueError(f"{name} and {owner} must have the same vocabulary, got a difference: {difference}.")


def counts_in_order(
    listed: Sequence[str | None], counts: Sequence[int], tokens: Sequence[str | None], name: str
) -> list[int]:
    """Return the counts of the ``listed`` tokens in the order of ``tokens``, the vocabulary; 0 for tokens not listed.

    Raises:
        ValueError: if a token is not in the vocabulary, or some are left out although counts of 0 are listed; the
            message begins with ``name``.
    """
    counted = dict(zip(listed, counts, strict=True))
    unknown = sorted(token for token in counted.keys() - set(tokens) if token is not None)
    if unknown:
        raise ValueError(
            f"{name} must be counted with this tokenizer, got {len(unknown)} tokens that are not in its vocabulary, "
            f"such as {', '.join(map(repr, unknown[:3]))}."
        )
    missing = [token for token in tokens if token is not None and token not in counted]
    if missing and 0 in counted.values():
        raise ValueError(
            f"{name} must have the vocabulary of this tokenizer, as it lists counts of 0 too, got {len(missing)} "
            f"tokens left out, such as {', '.join(map(repr, missing[:3]))}."
        )
    return [0 if token is None else counted.get(token, 0) for token in tokens]
