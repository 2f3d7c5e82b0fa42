"""The two views of a sentence that a pair loss compares: dropout, shuffled positions, cutoffs (ConSERT).

Source: Yan et al., 2021, https://aclanthology.org/2021.acl-long.393.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from st_extras.checks import check_bool, check_fraction, shown
from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.rows import Features, stack_columns, try_stack_columns
from st_extras.encoders.structure import check_one_encoder, content_mask, unwrap
from st_extras.random_source import RandomSource

CUTOFFS = ("token_cutoff", "span_cutoff", "feature_cutoff")
AUGMENTATIONS = ("dropout", "none", "shuffle", *CUTOFFS)


def check_augmentations(augmentations: Sequence[str]) -> tuple[str, str]:
    """Return the augmentations of the two views.

    Raises:
        ValueError: if there are not two, one is unknown, or they ask for dropout in one view alone.
    """
    views = tuple(augmentations) if isinstance(augmentations, list | tuple) else ()
    if len(views) != 2 or any(name not in AUGMENTATIONS for name in views):
        raise ValueError(
            f"augmentations must be two of {AUGMENTATIONS}, one for each view, got {shown(augmentations)}."
        )
    if set(views) == {"dropout", "none"}:
        raise ValueError(
            "augmentations=('dropout', 'none') is not possible: both views go through the encoder in one pass, whose "
            "dropout is on or off as a whole. Use 'dropout' for both or 'none' for both."
        )
    return views[0], views[1]


def _ranks(content: Tensor, generator: torch.Generator) -> Tensor:
    """Rank each row's content tokens at random, from 0; all other tokens rank after them. (B, L)."""
    draws = torch.rand(content.T.shape, generator=generator, device=content.device).T  # padding changes no draw
    return draws.masked_fill(~content, 2.0).argsort(dim=1, stable=True).argsort(dim=1)


def _share(rate: float, count: Tensor) -> Tensor:
    """Return ``rate * count``, rounded to the nearest whole number."""
    return (rate * count + 0.5).floor()


def token_cutoff(content: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Draw the tokens to zero: round(rate * n) of a row's n content tokens, anywhere. (B, L) bool."""
    return content & (_ranks(content, generator) < _share(rate, content.sum(dim=1, keepdim=True)))


def span_cutoff(content: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Draw the tokens to zero: a span of round(rate * n) of a row's n content tokens. (B, L) bool."""
    count = content.sum(dim=1, keepdim=True)  # (B, 1)
    length = _share(rate, count)
    draws = torch.rand(count.shape, generator=generator, device=content.device)
    start = (draws * (count - length + 1)).floor()
    place = content.cumsum(dim=1) - 1  # index of a content token among its row's
    return content & (place >= start) & (place < start + length)


def feature_cutoff(rows: int, size: int, rate: float, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw the features to zero in all tokens of a row: round(rate * size) of them. (B, size) bool."""
    ranks = torch.rand(rows, size, generator=generator, device=device).argsort(dim=1).argsort(dim=1)
    return ranks < _share(rate, torch.tensor(size, device=device))


def shuffled_positions(positions: Tensor, content: Tensor, generator: torch.Generator) -> Tensor:
    """Permute the position ids of each row's content tokens among themselves. All (B, L)."""
    in_order = (~content).long().argsort(dim=1, stable=True)  # content first
    at_random = _ranks(content, generator).argsort(dim=1)
    return positions.scatter(1, in_order, positions.gather(1, at_random))


class TwoViews(nn.Module):
    """Makes the two views of each sentence, and encodes them in one pass.

    With one column, both views are made of the same sentence; with two, the second view is made of its positive.
    The augmentations of a view, on the n content tokens (neither special nor padding nor prompt):

    * "dropout": the encoder's own dropout, which is then on in the whole pass; "none": no change.
    * "shuffle": permute the position ids of the content tokens, so that attention sees them in another order.
    * "token_cutoff", "span_cutoff": zero the word embeddings of some content tokens, or of a span of them.
    * "feature_cutoff": zero the same features in all tokens of a sentence.

    Cutoffs act on word embeddings, before position and type embeddings are added. Each view has its own draws.

    Args:
        model: the encoder; asked whether it takes ``inputs_embeds`` (cutoffs) or ``position_ids`` (shuffle), not kept.
        augmentations: the two views' augmentations.
        cutoff_rate: share of the content tokens, or of the features, that a cutoff zeroes, in (0, 1).
        dropout: run the encoder with its dropout although no view is "dropout".
        generator: source of the draws. None: one of its own, made from torch's seed.

    Raises:
        ValueError: if an augmentation is unknown or the encoder cannot be given what it needs.
    """

    def __init__(
        self,
        model: nn.Module,
        augmentations: Sequence[str] = ("dropout", "dropout"),
        *,
        cutoff_rate: float = 0.2,
        dropout: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        unwrap(model)
        self.augmentations = check_augmentations(augmentations)
        self.cutoff_rate = check_fraction("cutoff_rate", cutoff_rate)
        self.dropout = check_bool("dropout", dropout) or "dropout" in self.augmentations
        self.source = RandomSource(generator, salt=1)
        changed = {*self.augmentations} & {*CUTOFFS, "shuffle"}
        if changed:
            check_one_encoder(model, f"augmentations={tuple(augmentations)!r}")
        self.takes_positions = bool(changed) and _takes(model, "position_ids")
        if "shuffle" in changed and not (self.takes_positions and _uses_positions(model)):
            _refuse(model, "shuffle", "position_ids")
        for name in changed & {*CUTOFFS}:
            if not _takes(model, "inputs_embeds"):
                _refuse(model, name, "inputs_embeds")

    def rows(self, model: nn.Module, columns: Sequence[Features]) -> Features:
        """Return both views as one batch of 2B rows, for a loss that adds rows of its own to the pass.

        Raises:
            ValueError: if two columns cannot share a pass.
        """
        return self.augment(model, stack_columns(columns), self.augmentations)

    def encode(self, model: nn.Module, columns: Sequence[Features]) -> list[Tensor]:
        """Return [anchors, positives], each (B, D), from one pass; two columns that cannot share one take one each."""
        with nullcontext() if self.dropout else without_dropout(model):
            rows = try_stack_columns(columns)
            if rows is None:
                views = zip(columns, self.augmentations, strict=True)
                batches = [self.augment(model, column, (name,)) for column, name in views]
                return [forward_pass(model, batch)["sentence_embedding"] for batch in batches]
            embeddings = forward_pass(model, self.augment(model, rows, self.augmentations))["sentence_embedding"]
            return list(embeddings.chunk(2))

    @property
    def config(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {"augmentations": list(self.augmentations), "cutoff_rate": self.cutoff_rate}

    def augment(self, model: nn.Module, rows: Features, augmentations: Sequence[str]) -> Features:
        """Return the rows, view after view, with ``inputs_embeds`` or ``position_ids`` if the views need them."""
        if not set(augmentations) & {*CUTOFFS, "shuffle"}:
            return rows
        transformer: Any = unwrap(model).transformers_model
        content = content_mask(model, rows)  # (R, L)
        generator = self.source.on(content.device)
        result = dict(rows)
        views = list(zip(augmentations, content.chunk(len(augmentations)), strict=True))
        if set(augmentations) & set(CUTOFFS):
            embeddings = transformer.get_input_embeddings()(rows["input_ids"])  # (R, L, E)
            blocks = embeddings.chunk(len(augmentations))
            result["inputs_embeds"] = torch.cat(
                [self._cut(name, block, own, generator) for block, (name, own) in zip(blocks, views, strict=True)]
            )
        if self.takes_positions:  # with inputs_embeds alone, some encoders would count padding as positions
            blocks = _default_positions(transformer, rows).chunk(len(augmentations))  # (B, L) each
            result["position_ids"] = torch.cat(
                [
                    shuffled_positions(block, own, generator) if name == "shuffle" else block
                    for block, (name, own) in zip(blocks, views, strict=True)
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
    """Return False for DeBERTa with relative positions alone, which accepts position ids and ignores them."""
    config: Any = getattr(unwrap(model).transformers_model, "config", None)
    return bool(getattr(config, "position_biased_input", True))


def _refuse(model: nn.Module, augmentation: str, wanted: str) -> None:
    encoder = unwrap(model).transformers_model or unwrap(model)[0]
    raise ValueError(
        f"augmentations={augmentation!r} needs an encoder that uses {wanted}, which {type(encoder).__name__} does "
        "not: choose 'dropout' or another augmentation."
    )


def _default_positions(transformer: Any, rows: Features) -> Tensor:
    """Return the position ids (R, L) that the encoder itself would use for these rows."""
    ids = rows["input_ids"]
    for module in transformer.modules():
        padding = getattr(module, "padding_idx", None)  # RoBERTa and similar encoders count from padding_idx + 1
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), nn.Embedding):
            present = (ids != padding).long()
            counted: Tensor = present.cumsum(dim=1) * present + padding
            return counted
    return torch.arange(ids.size(1), device=ids.device).expand(ids.shape)
