"""The two views of a sentence that a pair loss compares: dropout, shuffled positions, cutoffs (ConSERT).

Source: Yan et al., 2021, https://aclanthology.org/2021.acl-long.393.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from sentence_transformers.sentence_transformer.modules import Router
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

from st_extras.checks import check_bool, check_fraction, shown
from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.rows import Features, count_rows, stack_columns, try_stack_columns
from st_extras.encoders.structure import check_one_encoder, content_mask, unwrap
from st_extras.functional import full_precision
from st_extras.random_source import RandomSource

CUTOFFS = ("token_cutoff", "span_cutoff", "feature_cutoff")
AUGMENTATIONS = ("dropout", "none", "shuffle", *CUTOFFS)


def check_augmentations(augmentations: Sequence[str]) -> tuple[str, str]:
    """Return the augmentations of the two views.

    Raises:
        ValueError: if there are not two, one is unknown, or only one view is to have dropout.
    """
    views = tuple(augmentations) if isinstance(augmentations, list | tuple) else ()
    if len(views) != 2 or any(name not in AUGMENTATIONS for name in views):
        raise ValueError(
            f"augmentations must be two of {AUGMENTATIONS}, one for each view, got {shown(augmentations)}."
        )
    if set(views) == {"dropout", "none"}:
        raise ValueError(
            "augmentations must be 'dropout' or 'none' for both views, got one of each: both go through the encoder in "
            "one pass, with dropout or without."
        )
    return views[0], views[1]


def _ranks(content: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random rank for each token of a row, (B, L): content tokens from 0, the others after them."""
    draws = torch.rand(content.T.shape, generator=generator, device=content.device).T  # padding changes no draw
    return draws.masked_fill(~content, 2.0).argsort(dim=1, stable=True).argsort(dim=1)


def _number_to_cut(rate: float, count: Tensor) -> Tensor:
    """Return ``rate * count``, rounded to the nearest whole number."""
    return (rate * count + 0.5).floor()


def token_cutoff(content: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Draw the tokens to set to zero, (B, L) bool: any round(rate * n) of a row's n content tokens."""
    return content & (_ranks(content, generator) < _number_to_cut(rate, content.sum(dim=1, keepdim=True)))


def span_cutoff(content: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Draw the tokens to set to zero, (B, L) bool: a span of round(rate * n) of a row's n content tokens."""
    count = content.sum(dim=1, keepdim=True)  # (B, 1)
    length = _number_to_cut(rate, count)
    draws = torch.rand(count.shape, generator=generator, device=content.device)
    start = (draws * (count - length + 1)).floor()
    place = content.cumsum(dim=1) - 1  # index of a content token among its row's
    return content & (place >= start) & (place < start + length)


def feature_cutoff(rows: int, size: int, rate: float, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw the features to set to zero in all tokens of a row, (B, size) bool: round(rate * size) of them."""
    ranks = torch.rand(rows, size, generator=generator, device=device).argsort(dim=1).argsort(dim=1)
    return ranks < _number_to_cut(rate, torch.tensor(size, device=device))


def draw_permutation(content: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a permutation of each row's content tokens: their columns in order, and in the drawn order, (B, L) each.

    In both, the columns of all other tokens follow, in their order.
    """
    in_order = (~content).long().argsort(dim=1, stable=True)
    return in_order, _ranks(content, generator).argsort(dim=1)


def shuffled_positions(positions: Tensor, content: Tensor, generator: torch.Generator) -> Tensor:
    """Return the position ids, (B, L), with those of each row's content tokens permuted."""
    in_order, drawn = draw_permutation(content, generator)
    return positions.scatter(1, in_order, positions.gather(1, drawn))


def shuffled_tokens(ids: Tensor, content: Tensor, generator: torch.Generator) -> Tensor:
    """Return the token ids, (B, L), with each row's content tokens permuted.

    Each token then stands at the position that :func:`shuffled_positions` gives it for the same draws.
    """
    places, targets = draw_permutation(content, generator)
    return ids.scatter(1, targets, ids.gather(1, places))


def _input_embeddings(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the word embeddings (R, L, E) of token ids, before positions and types are added."""
    encoder: Any = unwrap(model).transformers_model
    return cast(Tensor, encoder.get_input_embeddings()(ids))


def takes_embeddings(model: nn.Module) -> bool:
    """Return whether an encoder makes of word embeddings what it makes of their token ids: BART does not take them.

    It must be run, on two short texts: an encoder may accept them and count its positions in another way.
    """
    encoder = unwrap(model)
    first: Any = encoder[0]
    task = {"task": next(iter(first.sub_modules))} if isinstance(first, Router) else {}
    rows = batch_to_device({**encoder.preprocess(["the dog ran in the park", "a cat"], **task), **task}, encoder.device)
    count_rows(rows)
    with torch.no_grad(), without_dropout(model):
        expected = forward_pass(model, rows)["sentence_embedding"]
        try:
            embedded = {**rows, "inputs_embeds": _input_embeddings(model, rows["input_ids"])}
            found = forward_pass(model, embedded)["sentence_embedding"]
        except Exception:  # whatever an encoder raises that takes no embeddings, or has none of words
            return False
    apart = (full_precision(found) - full_precision(expected)).norm(dim=1) / full_precision(expected).norm(dim=1)
    return bool((apart <= max(1e-4, 4 * torch.finfo(expected.dtype).eps)).all())


class TwoViews(nn.Module):
    """Makes the two views of each sentence, and encodes them in one pass.

    With one column, both views are made of the same sentence; with two, the second view is made of its positive.
    A view is augmented in its n content tokens (neither special nor padding nor prompt):

    * "dropout": by the encoder's own dropout, which is then on in the whole pass; "none": no change.
    * "shuffle": the content tokens in another order. In a BERT, the position ids are permuted and the tokens stay in
      place, as in the paper; in other encoders, whose positions are rarely ids alone, the token ids are permuted.
    * "token_cutoff", "span_cutoff": zero the word embeddings of some content tokens, or of a span of them.
    * "feature_cutoff": zero the same features in all tokens of a sentence.

    Cutoffs act on word embeddings, before position and type embeddings are added. Each view has its own draws.

    Args:
        model: the encoder, which is not kept.
        augmentations: the two views' augmentations.
        cutoff_rate: share of the content tokens, or of the features, that a cutoff zeroes, in (0, 1).
        dropout: run the encoder with its dropout although no view is "dropout".
        generator: generator of the draws. None: one is made from torch's seed.

    Attributes:
        draws: whether a view is drawn with the module's generator: all but "dropout" and "none".

    Raises:
        ValueError: if an augmentation is unknown, or the encoder cannot take its input: "shuffle" needs a transformer,
            cutoffs one that takes embeddings in place of token ids.
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
        self.draws = bool(changed)
        if changed:
            check_one_encoder(model, f"augmentations={tuple(augmentations)!r}")
            encoder: nn.Module = unwrap(model).transformers_model or unwrap(model)[0]
            if unwrap(model).transformers_model is None:
                raise ValueError(
                    f"augmentations must be 'none' for an encoder that is no transformer, got {sorted(changed)[0]!r} "
                    f"for a {type(encoder).__name__}: give two columns, the sentence and its positive, with "
                    "augmentations=('none', 'none')."
                )
            cutoffs = sorted(changed & {*CUTOFFS})
            if cutoffs and not takes_embeddings(model):
                raise ValueError(
                    "augmentations must be 'dropout', 'none' or 'shuffle' for an encoder that takes no input "
                    f"embeddings, got {cutoffs[0]!r} for a {type(encoder).__name__}: use 'shuffle' in its place."
                )

    def rows(self, model: nn.Module, columns: Sequence[Features]) -> Features:
        """Return both views as one batch of 2B rows, for a loss that encodes further rows in the same pass.

        Raises:
            ValueError: if two columns cannot share a pass.
        """
        return self.augment(model, stack_columns(columns), self.augmentations)

    def encode(self, model: nn.Module, columns: Sequence[Features]) -> list[Tensor]:
        """Return [anchors, positives], each (B, D), from one pass, or from two if two columns cannot share one."""
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

    def augment(
        self,
        model: nn.Module,
        rows: Features,
        augmentations: Sequence[str],
        generator: torch.Generator | None = None,
    ) -> Features:
        """Return the rows with the input that makes them views: ``inputs_embeds``, ``position_ids`` or ``input_ids``.

        Args:
            model: the encoder.
            rows: equally many rows for each view, view after view.
            augmentations: the augmentation of each view.
            generator: generator of the draws. None: the module's.
        """
        changed = set(augmentations) & {*CUTOFFS, "shuffle"}
        if not changed:
            return rows
        content = content_mask(model, rows)  # (R, L)
        generator = self.source.on(content.device) if generator is None else generator
        result = dict(rows)
        views = list(zip(augmentations, content.chunk(len(augmentations)), strict=True))

        def change_shuffled(values: Tensor, shuffle: Callable[[Tensor, Tensor, torch.Generator], Tensor]) -> Tensor:
            blocks = zip(values.chunk(len(views)), views, strict=True)  # (B, L) each
            return torch.cat(
                [shuffle(block, own, generator) if name == "shuffle" else block for block, (name, own) in blocks]
            )

        moves_positions = cast(Any, unwrap(model).transformers_model).config.model_type == "bert"
        if "shuffle" in changed and not moves_positions:
            result["input_ids"] = change_shuffled(rows["input_ids"], shuffled_tokens)
        if changed & {*CUTOFFS}:
            blocks = _input_embeddings(model, result["input_ids"]).chunk(len(augmentations))  # (B, L, E) each
            result["inputs_embeds"] = torch.cat(
                [self._cut(name, block, own, generator) for block, (name, own) in zip(blocks, views, strict=True)]
            )
        if "shuffle" in changed and moves_positions:
            places = torch.arange(content.size(1), device=content.device).expand(content.shape)
            result["position_ids"] = change_shuffled(places, shuffled_positions)
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
