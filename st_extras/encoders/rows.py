"""Rows of tokenized sentences: repeat, stack and split them, and tell which of their tokens are content.

``features`` is what a SentenceTransformer's ``preprocess`` returns for one column: a dict of tensors whose first
axis has the B sentences, plus metadata. No function here changes the features it is given.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor

Features = dict[str, Any]
_PROBES = ("0", "1 2 3 4")  # whatever a chat template puts around them is equal; nothing inside them is


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
        return dict(columns[0]) if views == 1 else stack_rows([columns[0]] * views)
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
    length = features.get("prompt_length")
    return 0 if length is None else int(torch.as_tensor(length).flatten()[0])  # in training a tensor of equal ones


def non_content_ids(encoder: SentenceTransformer) -> list[int]:
    """Return the ids of the special tokens that are never content; [UNK] and [MASK] are content.

    A token that is [UNK] or [MASK] and also opens, closes, separates or pads rows (CLIP, GPT-2) is not content.
    """
    tokenizer = encoder.tokenizer
    frame = {getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "cls", "sep", "pad")}
    return sorted(set(tokenizer.all_special_ids) - ({tokenizer.unk_token_id, tokenizer.mask_token_id} - frame))


def _is_special(encoder: SentenceTransformer, ids: Tensor) -> Tensor:
    """Return which tokens are special and never content, bool of the shape of ``ids``."""
    return torch.isin(ids, _tensor_of(tuple(non_content_ids(encoder)), ids.device))


@functools.lru_cache(maxsize=16)
def _tensor_of(ids: tuple[int, ...], device: torch.device) -> Tensor:
    """Return token ids as a tensor, made once: copying numbers to a GPU in every step would wait for it every time."""
    with torch.inference_mode(False):
        return torch.tensor(ids, dtype=torch.long, device=device)


def content_mask(encoder: SentenceTransformer, features: Features) -> Tensor:
    """Return where the content tokens are: (R, L) bool, no padding, special tokens, prompt or chat template.

    [UNK] and [MASK] are content, although the tokenizer lists them as special, unless they also frame the rows; so is a
    prompt inside a chat template.
    """
    present = features["attention_mask"].bool()
    if length := prompt_length(encoder, features):
        present = present & (present.cumsum(dim=1) > length)
    present = present & ~template_mask(encoder, features)
    return cast(Tensor, present & ~_is_special(encoder, features["input_ids"]))


def prompt_length(encoder: SentenceTransformer, features: Features) -> int:
    """Return the number of tokens of the prompt before each text, the opening token included; 0 without a prompt.

    Sentence Transformers measures the prompt alone, without the last of the tokens that close a row (XLNet has two).
    There, byte-level and SentencePiece tokenizers make a token of the space at the prompt's end; before a text, that
    space belongs to the first word, which is not prompt.
    """
    length = reported_prompt_length(features)
    if length:
        present = features["attention_mask"].bool()
        ordinary = present & ~_is_special(encoder, features["input_ids"])
        after = ordinary.flip(1).cumsum(dim=1).flip(1) == 0  # after the last token that is not special
        closing = int((present & after).sum(dim=1).min())  # all rows hold a prompt, so no row is special alone
        length -= max(closing - 1, 0)
        last = features["input_ids"][present & (present.cumsum(dim=1) == length)]
        tokens = encoder.tokenizer.convert_ids_to_tokens(last.tolist())
        length -= any(token[:1] in ("\u0120", "\u2581") and len(token) > 1 for token in tokens)  # as in "\u0120dog"
    return length


def template_mask(encoder: SentenceTransformer, features: Features) -> Tensor:
    """Return where the tokens of a chat template are: (R, L) bool; all False if the texts went through no template.

    The template's tokens are found by rendering two short texts and comparing: a token in which template and text have
    merged counts as text, and so does a prompt inside the template. Rows that ``max_seq_length`` cut may lack the
    template's end.

    Args:
        encoder: made the features.
        features: the tokenized rows, padded on either side.
    """
    present = features["attention_mask"].bool()  # (R, L)
    if features.get("modality") != "message":
        return torch.zeros_like(present)
    probe, other = (
        encoder.preprocess([text], processing_kwargs={"text": {"truncation": False}})["input_ids"][0].tolist()
        for text in _PROBES
    )
    before = probe[: _count_equal(probe, other)]
    probe, other = probe[len(before) :], other[len(before) :]
    after = probe[len(probe) - _count_equal(probe[::-1], other[::-1]) :]
    rows = token_rows(features)
    starts = [_count_equal(row, before) for row in rows]
    ends = [len(row) - _count_equal(row[start:][::-1], after[::-1]) for row, start in zip(rows, starts, strict=True)]
    place = present.cumsum(dim=1)  # 1-based among the tokens of a row
    first, last = (torch.tensor(values, device=present.device).unsqueeze(1) for values in (starts, ends))
    return cast(Tensor, present & ((place <= first) | (place > last)))


def _count_equal(first: Iterable[int], second: Iterable[int]) -> int:
    """Return the number of leading tokens that two rows have in common."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))))
