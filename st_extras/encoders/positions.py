"""What input an encoder accepts in place of its own: position ids, and embeddings in place of token ids."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import torch
from sentence_transformers.sentence_transformer.modules import Router
from torch import Tensor, nn

from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.rows import Features, count_rows
from st_extras.encoders.structure import content_mask, unwrap
from st_extras.functional import full_precision

SCHEMES = ("place", "padding")
"""How an encoder counts positions: by the place in the row (BERT), or by the ids that are not padding (RoBERTa)."""


@dataclass(frozen=True)
class InputWays:
    """Which changed input an encoder accepts.

    Attributes:
        scheme: one of ``SCHEMES``, by which position ids are made for changed input; None: none are given.
        permutes: permuting position ids does what permuting the tokens does: order reaches the encoder in no other way.
        embeddings: input embeddings, with these position ids, do what the token ids do.
    """

    scheme: str | None = None
    permutes: bool = False
    embeddings: bool = False


def find_input_ways(model: nn.Module) -> InputWays:
    """Find out which changed input the encoder accepts, by some passes over four short rows padded on either side.

    It must be run: encoders count positions in several ways, accept position ids and ignore them, or see the order by
    place as well. There is no dropout, no gradient and nothing random in these passes.

    Raises:
        ValueError: if the features are flattened (unpadded).
    """
    rows = _short_rows(model)
    count_rows(rows)
    with torch.no_grad(), without_dropout(model):
        plain = _without_order(model, rows)
        content = content_mask(model, rows)  # (R, L)
        place = torch.arange(content.size(1), device=content.device).expand(content.shape)
        in_order = torch.where(content, place - content.size(1), place).argsort(dim=1)  # content first
        reversed_order = torch.where(content, -place - 1, place).argsort(dim=1)  # and the same in reverse
        turned = {**rows, "input_ids": move(rows["input_ids"], in_order, reversed_order)}
        expected = _without_order(model, turned)
        for scheme in () if _is_close(expected, plain) else SCHEMES:
            own = position_ids(model, rows, scheme)
            permuted = own.scatter(1, in_order, own.gather(1, reversed_order))
            if _gives(model, rows, plain, scheme) and _gives(model, {**rows, "position_ids": permuted}, expected):
                return InputWays(scheme, True, _gives(model, rows, plain, scheme, embedded=True))
        for candidate in (None, *SCHEMES):
            if _gives(model, rows, plain, candidate, embedded=True):
                return InputWays(candidate, False, True)
    return InputWays()


def position_ids(model: nn.Module, rows: Features, scheme: str) -> Tensor:
    """Return position ids (R, L) made by one of ``SCHEMES``; by place where the encoder names no padding."""
    ids = rows["input_ids"]
    if scheme == "padding":
        for module in cast(nn.Module, unwrap(model).transformers_model).modules():
            padding = getattr(module, "padding_idx", None)  # RoBERTa and similar encoders count from padding_idx + 1
            if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), nn.Embedding):
                present = (ids != padding).long()
                return cast(Tensor, present.cumsum(dim=1) * present + padding)
    return torch.arange(ids.size(1), device=ids.device).expand(ids.shape)


def input_embeddings(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the word embeddings (R, L, E) of token ids, before positions and types are added."""
    encoder: Any = unwrap(model).transformers_model
    return cast(Tensor, encoder.get_input_embeddings()(ids))


def move(values: Tensor, places: Tensor, targets: Tensor) -> Tensor:
    """Return the values (R, L), those at ``places`` moved to ``targets``, both (R, L) and all places of a row."""
    return values.scatter(1, targets, values.gather(1, places))


def _short_rows(model: nn.Module) -> Features:
    """Return two short texts, of unlike tokens, padded on the tokenizer's side, and once more on the other side."""
    encoder = unwrap(model)
    first: Any = encoder[0]
    task = {"task": first.default_route or next(iter(first.sub_modules))} if isinstance(first, Router) else {}
    rows: Features = {**encoder.preprocess(["1 2 3 4 5 6", "1 2"], **task), **task}
    rows = {key: value.to(encoder.device) if isinstance(value, Tensor) else value for key, value in rows.items()}
    if not isinstance(rows.get("attention_mask"), Tensor) or rows["attention_mask"].ndim != 2:
        return rows
    content = content_mask(model, rows)
    special = set(encoder.tokenizer.all_special_ids)
    ids = rows["input_ids"].clone()
    words = list(islice((i for i in range(len(encoder.tokenizer)) if i not in special), ids.size(1)))
    unlike = torch.tensor([words[i % len(words)] for i in range(ids.size(1))], device=ids.device)
    rows["input_ids"] = torch.where(content, unlike.expand_as(ids), ids)
    present = rows["attention_mask"].bool()
    padded_left = ~present[:, :1]
    # padding goes to the row's other end
    order = torch.where(padded_left, ~present, present).long().argsort(dim=1, stable=True)
    return {
        key: torch.cat([value, value.gather(1, order)])
        if isinstance(value, Tensor) and value.shape == present.shape
        else value
        for key, value in rows.items()
    }


def _gives(
    model: nn.Module, rows: Features, expected: Tensor, scheme: str | None = None, *, embedded: bool = False
) -> bool:
    """Return whether the encoder takes these rows, or positions or embeddings for them, and makes what is expected."""
    try:
        if embedded:
            rows = {**rows, "inputs_embeds": input_embeddings(model, rows["input_ids"])}
        if scheme is not None:
            rows = {**rows, "position_ids": position_ids(model, rows, scheme)}
        outcome = _without_order(model, rows)
    except Exception:  # whatever an encoder raises for input that it does not take, or has no embedding layer for
        return False
    return _is_close(outcome, expected, next(model.parameters()).dtype)


def _is_close(outcome: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    tolerance = max(1e-4, 4 * torch.finfo(dtype).eps)
    return bool(((outcome - expected).norm(dim=1) <= tolerance * expected.norm(dim=1)).all())


def _without_order(model: nn.Module, rows: Features) -> Tensor:
    """Return one vector for each row that does not depend on the order of its token embeddings."""
    output = forward_pass(model, rows)
    tokens = output.get("token_embeddings")
    if tokens is None or tokens.shape[:2] != rows["attention_mask"].shape:
        return full_precision(output["sentence_embedding"])
    shown = rows["attention_mask"].unsqueeze(2).to(tokens)
    return full_precision((tokens * shown).sum(dim=1) / shown.sum(dim=1))
