"""Rows of tokenized sentences: repeated, stacked, split and paired, without a model.

``features`` is what a SentenceTransformer's ``preprocess`` returns for one column: a dict of tensors whose first
axis are the B sentences, plus metadata. Nothing in here mutates the features it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor

Features = dict[str, Any]


def check_columns(sentence_features: Iterable[Features], loss: str) -> list[Features]:
    """The one or two columns of a pair loss, or a ValueError that names the loss."""
    columns = list(sentence_features)
    if len(columns) not in (1, 2):
        raise ValueError(
            f"{loss} takes one column (the sentence) or two (the sentence and its positive), got {len(columns)}."
        )
    return columns


def count_rows(features: Features) -> int:
    """The number of sentences.

    Raises:
        ValueError: the features have no batch axis (flattened for flash attention, or a bag of tokens).
    """
    if "cu_seq_lens_q" in features:
        raise ValueError(
            "The features are flattened (unpadded) for flash attention, which cannot be repeated as views: load "
            'the encoder with model_kwargs={"unpad_inputs": False} or set model[0].unpad_inputs = False.'
        )
    mask = features.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        raise ValueError(
            "The encoder's features have no (B, L) attention_mask to make views of (a StaticEmbedding has neither "
            "that nor dropout): give two columns, the sentence and its positive."
        )
    return mask.size(0)


def repeat_rows(features: Features, times: int) -> Features:
    """``times`` copies of every row, copy after copy: (times * B) rows, no second tokenization."""
    return stack_rows([features] * times)


def _is_per_row(key: str, value: Any, rows: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.size(0) == rows and key != "prompt_length"


def stack_rows(blocks: Sequence[Features]) -> Features:
    """The rows of all blocks, which are equally wide, as one batch; metadata is the first block's."""
    rows = count_rows(blocks[0])
    return {
        key: torch.cat([block[key] for block in blocks]) if _is_per_row(key, value, rows) else value
        for key, value in blocks[0].items()
    }


def first_rows(features: Features, count: int) -> Features:
    """The first ``count`` rows of a batch."""
    rows = count_rows(features)
    return {key: value[:count] if _is_per_row(key, value, rows) else value for key, value in features.items()}


def split_rows(features: Features, count: int) -> list[Features]:
    """The features of ``count`` equal blocks of rows, block after block: what :func:`stack_rows` stacks."""
    rows = count_rows(features)
    blocks = [dict(features) for _ in range(count)]
    for key, value in features.items():
        if _is_per_row(key, value, rows):
            for block, part in zip(blocks, value.chunk(count), strict=True):
                block[key] = part
    return blocks


def views(features: Features, augmentations: Sequence[str] = ("dropout", "dropout")) -> Features:
    """One tokenized column as ``len(augmentations) * B`` rows: view 1 of all sentences, then view 2, ..."""
    return repeat_rows(features, len(augmentations))


def pair_views(
    sentence_features: Sequence[Features], augmentations: Sequence[str] = ("dropout", "dropout")
) -> Features | None:
    """Both sides of the pairs as one batch of 2B rows, anchors first.

    One column: its two views. Two columns: padded to one width.

    Returns:
        The features; None where two columns cannot share one pass (other prompts, flattened features).
    """
    if len(sentence_features) == 1:
        return views(sentence_features[0], augmentations)
    merged: Features | None = merge_feature_batches([dict(column) for column in sentence_features])
    return merged


def merged_pair(sentence_features: Sequence[Features], augmentations: Sequence[str]) -> Features:
    """:func:`pair_views` where one pass is a must, as when another loss adds its own rows to it."""
    rows = pair_views(sentence_features, augmentations)
    if rows is None:
        keys = {key for column in sentence_features for key in column}
        if odd := sorted(key for key in keys if any(key not in column for column in sentence_features)):
            reason = f"only some have {odd}: use one prompt for all, and no column name that begins with another's"
        else:
            reason = "they have different prompts or flattened features: use one prompt for all, or unpad_inputs=False"
        raise ValueError(
            f"This combination of losses needs the columns to go through the encoder in one pass, and {reason}."
        )
    return rows
