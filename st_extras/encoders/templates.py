"""Chat templates: which tokens of a row the template puts around the text."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any, cast

import torch
from torch import Tensor

from st_extras.encoders.rows import Features, token_rows

_PROBES = ("0", "1 2 3 4")  # whatever stands around them is equal; nothing inside them is


def template_mask(encoder: Any, features: Features) -> Tensor:
    """Return where the tokens of a chat template are: (R, L) bool; all False if the texts went through no template.

    The template's tokens are found by rendering two short texts and comparing: a token in which template and text have
    merged counts as text, and so does a prompt inside the template. Rows that ``max_seq_length`` cut may lack the
    template's end.

    Args:
        encoder: the SentenceTransformer, or its first module, that made the features.
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
