"""Chat templates: which tokens of a row the template, and a prompt inside it, put around the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, cast

import torch
from torch import Tensor

from st_extras.encoders.rows import Features, token_rows

_PROBES = ("0", "1 2 3 4")  # whatever stands around them is equal; nothing inside them is
_Ids = list[int]


def template_mask(encoder: Any, features: Features) -> Tensor:
    """Return where the tokens of a chat template are, and of a prompt that it renders: (R, L) bool.

    All False if the texts went through no template. The template's tokens are found by rendering two short texts, with
    and without a prompt, and comparing: a token in which template and text have merged counts as text, and rows that
    ``max_seq_length`` cut may lack the template's end. A template that puts a prompt right where a text begins (one
    turn for both) hides it: then what all rows of the batch have in common, up to what stands between prompt and text,
    is taken for the prompt.

    Args:
        encoder: the SentenceTransformer, or its first module, that made the features.
        features: the tokenized rows, padded on either side.
    """
    present = features["attention_mask"].bool()  # (R, L)
    if features.get("modality") != "message":
        return torch.zeros_like(present)
    rows = token_rows(features)
    before, after, prompt = _measure(encoder)
    starts = [_start(row, before, prompt, rows) for row in rows]
    ends = [len(row) - _common(row[start:][::-1], after[::-1]) for row, start in zip(rows, starts, strict=True)]
    place = present.cumsum(dim=1)  # 1-based among the tokens of a row
    first, last = (torch.tensor(values, device=present.device).unsqueeze(1) for values in (starts, ends))
    return cast(Tensor, present & ((place <= first) | (place > last)))


def _measure(encoder: Any) -> tuple[_Ids, _Ids, tuple[_Ids, _Ids] | None]:
    """Return what stands before and after a text; and before and after a prompt, None if a prompt changes nothing."""
    plain = [_token_ids(encoder, text) for text in _PROBES]
    before = plain[0][: _common(*plain)]
    after = _tail(plain[0][len(before) :], plain[1][len(before) :])
    try:
        prompted = [_token_ids(encoder, _PROBES[0], prompt) for prompt in _PROBES]
    except Exception:  # whatever the template raises where it knows no system message: then no row has a prompt
        return before, after, None
    if prompted[0] == prompted[1]:
        return before, after, None
    opening = prompted[0][: _common(*prompted)]
    rest = _tail(prompted[0][len(opening) :], prompted[1][len(opening) :])  # what is between, the text, the end
    between = rest[: max(0, len(rest) - (len(plain[0]) - len(before)))]
    return before, after, (opening, between)


def _start(row: _Ids, before: _Ids, prompt: tuple[_Ids, _Ids] | None, rows: Sequence[_Ids]) -> int:
    """Return the number of tokens before the text of a row."""
    length = _common(row, before)
    if prompt is None or not prompt[1]:
        return length
    opening, between = prompt
    parting = _common(opening, before)
    if parting == len(before):  # a row with a prompt begins as one without
        shared = row[: min(_common(row, other) for other in rows)] if len(rows) > 1 else []
        return _after_either(shared, between, len(opening)) or length
    is_prompted = length < len(before) - 1 or row[parting : parting + 1] == opening[parting : parting + 1]
    if not is_prompted or length == len(row):
        return length
    return _after_either(row, between, len(opening)) or len(row)


def _after_either(row: _Ids, between: _Ids, start: int) -> int:
    """Return the place after the tokens between prompt and text, of which the last may have merged with the text."""
    return _end_of(row, between, start) or _end_of(row, between[:-1], start)


def _end_of(row: _Ids, wanted: _Ids, start: int) -> int:
    """Return the place after the first occurrence of the wanted tokens; 0 if there is none."""
    ends = range(start + len(wanted), len(row) + 1) if wanted else range(0)
    return next((end for end in ends if row[end - len(wanted) : end] == wanted), 0)


def _token_ids(encoder: Any, text: str, prompt: str | None = None) -> _Ids:
    features = encoder.preprocess([text], prompt=prompt, processing_kwargs={"text": {"truncation": False}})
    return cast(_Ids, features["input_ids"][0].tolist())


def _common(first: Iterable[int], second: Iterable[int]) -> int:
    """Return the number of leading tokens that two rows have in common."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))))


def _tail(first: _Ids, second: _Ids) -> _Ids:
    """Return the trailing tokens that two rows have in common."""
    count = _common(first[::-1], second[::-1])
    return first[len(first) - count :]
