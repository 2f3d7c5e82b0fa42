"""Views made on the encoder's input: shuffled positions and cutoffs of embeddings (ConSERT, Yan et al., 2021)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from st_extras.encoders import check_augmentations, check_one_encoder, content_mask, unwrap
from st_extras.functional import check_fraction
from st_extras.generators import RandomSource
from st_extras.rows import Features

CUTOFFS = ("token_cutoff", "span_cutoff", "feature_cutoff")


def _ranks(content: Tensor, generator: torch.Generator) -> Tensor:
    """(B, L): a random ranking of each row's content tokens, 0 first; everything else ranks behind them."""
    draws = torch.rand(content.T.shape, generator=generator, device=content.device).T  # padding changes no draw
    return draws.masked_fill(~content, 2.0).argsort(dim=1, stable=True).argsort(dim=1)


def _share(rate: float, count: Tensor) -> Tensor:
    """``rate * count``, to the nearest whole number."""
    return (rate * count + 0.5).floor()


def token_cutoff(content: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Which tokens to zero: round(rate * n) of a row's n content tokens, anywhere. (B, L) bool."""
    return content & (_ranks(content, generator) < _share(rate, content.sum(dim=1, keepdim=True)))


def span_cutoff(content: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Which tokens to zero: round(rate * n) neighbouring ones of a row's n content tokens. (B, L) bool."""
    count = content.sum(dim=1, keepdim=True)  # (B, 1)
    length = _share(rate, count)
    draws = torch.rand(count.shape, generator=generator, device=content.device)
    start = (draws * (count - length + 1)).floor()
    place = content.cumsum(dim=1) - 1  # of a content token among its row's
    return content & (place >= start) & (place < start + length)


def feature_cutoff(rows: int, size: int, rate: float, generator: torch.Generator, device: torch.device) -> Tensor:
    """Which features to zero in all tokens of a row: round(rate * size) of them. (B, size) bool."""
    ranks = torch.rand(rows, size, generator=generator, device=device).argsort(dim=1).argsort(dim=1)
    return ranks < _share(rate, torch.tensor(size, device=device))


def shuffled_positions(positions: Tensor, content: Tensor, generator: torch.Generator) -> Tensor:
    """Position ids, those of a row's content tokens permuted among themselves. All (B, L)."""
    in_order = (~content).long().argsort(dim=1, stable=True)  # content first
    at_random = _ranks(content, generator).argsort(dim=1)
    return positions.scatter(1, in_order, positions.gather(1, at_random))


class Augmenter(nn.Module):
    """Applies the augmentations that are no dropout to the rows of a batch, each view with its own draws.

    The n content tokens of a sentence are those that are neither special nor padding. "shuffle" permutes their
    position ids: attention sees the same tokens in another order. The cutoffs zero word embeddings, before
    position and type embeddings are added: whole tokens, a span of them, or the same features in every token.

    Args:
        model: the encoder, asked whether it takes ``inputs_embeds`` (cutoffs) or ``position_ids`` (shuffle).
        augmentations: the names of the two views' augmentations.
        cutoff_rate: share of a sentence's tokens, or of the features, that a cutoff zeroes.
        generator: source of the draws. None: one of its own.

    Raises:
        ValueError: the encoder cannot be given what the augmentations need.
    """

    def __init__(
        self,
        model: nn.Module,
        augmentations: Sequence[str],
        *,
        cutoff_rate: float = 0.2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.cutoff_rate = check_fraction("cutoff_rate", cutoff_rate)
        self.source = RandomSource(generator, salt=1)
        names = {*check_augmentations(augmentations)} & {*CUTOFFS, "shuffle"}
        if names:
            check_one_encoder(model, f"augmentations={tuple(augmentations)!r}")
        self.takes_positions = bool(names) and _takes(model, "position_ids")
        if "shuffle" in names and not (self.takes_positions and _uses_positions(model)):
            _refuse(model, "shuffle", "position_ids")
        for name in names & {*CUTOFFS}:
            if not _takes(model, "inputs_embeds"):
                _refuse(model, name, "inputs_embeds")

    def forward(self, model: nn.Module, rows: Features, augmentations: Sequence[str]) -> Features:
        """The rows, view after view, with ``inputs_embeds`` or ``position_ids`` where the views need them."""
        if not set(augmentations) & {*CUTOFFS, "shuffle"}:
            return rows
        transformer: Any = unwrap(model).transformers_model
        content = content_mask(model, rows)  # (R, L)
        generator = self.source.on(content.device)
        result = dict(rows)
        blocks = list(zip(augmentations, content.chunk(len(augmentations)), strict=True))
        if set(augmentations) & set(CUTOFFS):
            embeddings = transformer.get_input_embeddings()(rows["input_ids"])  # (R, L, E)
            parts = embeddings.chunk(len(augmentations))
            result["inputs_embeds"] = torch.cat(
                [self._cut(name, part, block, generator) for part, (name, block) in zip(parts, blocks, strict=True)]
            )
        if self.takes_positions:  # given embeddings, some encoders would count padding as positions
            parts = _default_positions(transformer, rows).chunk(len(augmentations))  # (B, L) each
            result["position_ids"] = torch.cat(
                [
                    shuffled_positions(part, block, generator) if name == "shuffle" else part
                    for part, (name, block) in zip(parts, blocks, strict=True)
                ]
            )
        return result

    def _cut(self, name: str, embeddings: Tensor, content: Tensor, generator: torch.Generator) -> Tensor:
        rows, _, size = embeddings.shape
        if name == "token_cutoff":
            cut = token_cutoff(content, self.cutoff_rate, generator).unsqueeze(2)
        elif name == "span_cutoff":
            cut = span_cutoff(content, self.cutoff_rate, generator).unsqueeze(2)
        elif name == "feature_cutoff":
            cut = feature_cutoff(rows, size, self.cutoff_rate, generator, embeddings.device).unsqueeze(1)
        else:
            return embeddings
        return embeddings.masked_fill(cut, 0.0)


def _takes(model: nn.Module, argument: str) -> bool:
    transformer = unwrap(model).transformers_model
    return transformer is not None and argument in inspect.signature(transformer.forward).parameters


def _uses_positions(model: nn.Module) -> bool:
    """False for DeBERTa with relative positions alone, which accepts position ids and ignores them."""
    config: Any = getattr(unwrap(model).transformers_model, "config", None)
    return bool(getattr(config, "position_biased_input", True))


def _refuse(model: nn.Module, augmentation: str, wanted: str) -> None:
    encoder = unwrap(model).transformers_model or unwrap(model)[0]
    raise ValueError(
        f"augmentations={augmentation!r} needs an encoder that uses {wanted}, which {type(encoder).__name__} does "
        "not: choose 'dropout' or another augmentation."
    )


def _default_positions(transformer: Any, rows: Features) -> Tensor:
    """The position ids (R, L) that the encoder itself would use for these rows."""
    ids = rows["input_ids"]
    for module in transformer.modules():
        padding = getattr(module, "padding_idx", None)  # RoBERTa and its kin count from padding_idx + 1
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), nn.Embedding):
            present = (ids != padding).long()
            counted: Tensor = present.cumsum(dim=1) * present + padding
            return counted
    return torch.arange(ids.size(1), device=ids.device).expand(ids.shape)
