"""Rows of tokenized sentences: repeat, stack and split them, without a model.

``features`` is what a SentenceTransformer's ``preprocess`` returns for one column: a dict of tensors whose first
axis has the B sentences, plus metadata. No function here changes the features it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor

Features = dict[str, Any]


def check_columns(sentence_features: Iterable[Features], loss: str) -> list[Features]:
    """Return the columns of a pair loss as a list.

    Raises:
        ValueError: if there are not one or two of them; the message names the loss.
    """
    columns = list(sentence_features)
    if len(columns) not in (1, 2):
        raise ValueError(
            f"{loss} takes one column (the sentence) or two (the sentence and its positive), got {len(columns)}."
        )
    return columns


def count_rows(features: Features) -> int:
    """Return the number of sentences.

    Raises:
        ValueError: if the features have no batch axis (flattened for flash attention, or a bag of tokens).
    """
    if "cu_seq_lens_q" in features:
        raise ValueError(
            "The features are flattened (unpadded) for flash attention and cannot be repeated as views: load "
            'the encoder with model_kwargs={"unpad_inputs": False} or set model[0].unpad_inputs = False.'
        )
    mask = features.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        raise ValueError(
            "The encoder's features have no (B, L) attention_mask to make views of (a StaticEmbedding has neither "
            "that nor dropout): give two columns, the sentence and its positive."
        )
    return mask.size(0)


def _is_per_row(key: str, value: Any, rows: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.size(0) == rows and key != "prompt_length"


def stack_rows(blocks: Sequence[Features]) -> Features:
    """Return the rows of all blocks, which are equally wide, as one batch with the first block's metadata."""
    rows = count_rows(blocks[0])
    return {
        key: torch.cat([block[key] for block in blocks]) if _is_per_row(key, value, rows) else value
        for key, value in blocks[0].items()
    }


def split_rows(features: Features, count: int) -> list[Features]:
    """Split a batch into ``count`` equal blocks of rows: the inverse of :func:`stack_rows`."""
    rows = count_rows(features)
    parts = {
        key: value.chunk(count) if _is_per_row(key, value, rows) else [value] * count for key, value in features.items()
    }
    return [{key: part[number] for key, part in parts.items()} for number in range(count)]


def try_stack_columns(columns: Sequence[Features], views: int = 2) -> Features | None:
    """Return all columns as one batch: a single column ``views`` times, several columns padded to one width.

    Returns:
        The rows, column after column; None if the columns cannot share a pass (different prompts, flattened
        features).
    """
    if len(columns) == 1:
        return stack_rows([columns[0]] * views)
    # as Sentence Transformers' own losses merge their columns; it names no public function for it
    merged: Features | None = merge_feature_batches([dict(column) for column in columns])
    return merged


def stack_columns(columns: Sequence[Features], views: int = 2) -> Features:
    """Return what :func:`try_stack_columns` does, for callers that need one pass, such as a loss that adds rows.

    Raises:
        ValueError: if the columns cannot share a pass.
    """
    rows = try_stack_columns(columns, views)
    if rows is None:
        keys = {key for column in columns for key in column}
        if odd := sorted(key for key in keys if any(key not in column for column in columns)):
            reason = f"only some have {odd}: use one prompt for all, and no column name that begins with another's"
        else:
            reason = "they have different prompts or flattened features: use one prompt for all, or unpad_inputs=False"
        raise ValueError(
            f"This combination of losses needs the columns to go through the encoder in one pass, and {reason}."
        )
    return rows


def token_rows(features: Features) -> list[list[int]]:
    """Return the token ids of each sentence, without padding; the features may be flattened (``unpad_inputs``)."""
    ids = features["input_ids"]
    if "cu_seq_lens_q" in features:
        starts = features["cu_seq_lens_q"].tolist()
        flat = ids.flatten().tolist()
        return [flat[start:end] for start, end in pairwise(starts)]
    pairs = zip(ids.tolist(), features["attention_mask"].tolist(), strict=True)
    return [[token for token, kept in zip(row, mask, strict=True) if kept] for row, mask in pairs]


def reported_prompt_length(features: Features) -> int:
    """Return how many tokens Sentence Transformers counts as the prompt; 0 without one, or inside a template."""
    found = features.get("prompt_length")
    return 0 if found is None else int(torch.as_tensor(found).flatten()[0])  # in training a tensor of equal ones
