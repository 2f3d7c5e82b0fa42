"""The two views of a sentence that a pair loss compares: dropout, shuffled positions, cutoffs (ConSERT).

Source: Yan et al., 2021, https://aclanthology.org/2021.acl-long.393.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

from st_extras.checks import check_bool, shown
from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.rows import Features, content_mask, count_rows, stack_columns, try_stack_columns
from st_extras.encoders.structure import check_one_encoder, unwrap
from st_extras.functional import full_precision
from st_extras.random_source import RandomSource

CUTOFFS = ("token_cutoff", "feature_cutoff")
CUTOFF_RATE = 0.2
"""Share of the content tokens, or of the features, that a cutoff zeroes: the paper's."""
AUGMENTATIONS = ("dropout", "none", "shuffle", *CUTOFFS)


def check_augmentations(augmentations: Sequence[str]) -> tuple[str, ...]:
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
    return views


def _ranks(content: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random rank for each token of a row, (B, L): content tokens from 0, the others after them."""
    draws = torch.rand(content.T.shape, generator=generator, device=content.device).T  # padding changes no draw
    return draws.masked_fill(~content, 2.0).argsort(dim=1, stable=True).argsort(dim=1)


def token_cutoff(content: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Draw the tokens to set to zero, (B, L) bool: any round(rate * n) of a row's n content tokens."""
    number = (rate * content.sum(dim=1, keepdim=True) + 0.5).floor()  # (B, 1)
    return content & (_ranks(content, generator) < number)


def feature_cutoff(rows: int, size: int, rate: float, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw the features to set to zero in all tokens of a row, (B, size) bool: round(rate * size) of them."""
    ranks = torch.rand(rows, size, generator=generator, device=device).argsort(dim=1).argsort(dim=1)
    return ranks < math.floor(rate * size + 0.5)


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


def _word_embeddings(encoder: SentenceTransformer, ids: Tensor) -> Tensor:
    """Return the word embeddings (R, L, E) of token ids, before positions and types are added."""
    body: Any = encoder.transformers_model
    return cast(Tensor, body.get_input_embeddings()(ids))


def takes_embeddings(encoder: SentenceTransformer) -> bool:
    """Return whether an encoder makes of word embeddings what it makes of their token ids: BART does not take them.

    It must be run, on two short texts: an encoder may accept them and count its positions in another way.
    """
    first: Any = encoder[0]
    task = {"task": next(iter(first.sub_modules))} if isinstance(first, Router) else {}
    rows = batch_to_device({**encoder.preprocess(["the dog ran in the park", "a cat"], **task), **task}, encoder.device)
    count_rows(rows)
    with torch.no_grad(), without_dropout(encoder):
        expected = forward_pass(encoder, rows)["sentence_embedding"]
        try:
            embedded = {**rows, "inputs_embeds": _word_embeddings(encoder, rows["input_ids"])}
            embeddings = forward_pass(encoder, embedded)["sentence_embedding"]
        except Exception:  # whatever an encoder raises that takes no embeddings, or has none of words
            return False
    expected = full_precision(expected)
    apart = (full_precision(embeddings) - expected).norm(dim=1) / expected.norm(dim=1)
    return bool((apart <= max(1e-4, 4 * torch.finfo(embeddings.dtype).eps)).all())


class ViewMaker(nn.Module):
    """Makes the views of each sentence, and encodes them in one pass.

    With one column, both views are made of the same sentence; with two, the second view is made of its positive.
    A view is augmented in its n content tokens (neither special nor padding nor prompt):

    * "dropout": by the encoder's own dropout, which is then on in the whole pass; "none": no change.
    * "shuffle": the content tokens in another order. In a BERT, the position ids are permuted and the tokens stay in
      place, as in the paper; in other encoders, whose positions are rarely ids alone, the token ids are permuted.
    * "token_cutoff": zero the word embeddings of a fifth of the content tokens.
    * "feature_cutoff": zero the same fifth of the features in all tokens of a sentence.

    Cutoffs act on word embeddings, before position and type embeddings are added. Each view has its own draws.

    Args:
        encoder: the encoder, which is not kept: the trainer may wrap it.
        augmentations: the two views' augmentations.
        count: number of views to make; 1: the first one alone, for a loss that makes the other one itself.
        dropout: run the encoder with its dropout although no view is "dropout".
        generator: generator of the draws. None: one is made from torch's seed.

    Attributes:
        cutoff_rate: share of the content tokens, or of the features, that a cutoff zeroes.
        draws: whether a view is drawn with the module's generator: all but "dropout" and "none".

    Raises:
        ValueError: if an augmentation is unknown, or the encoder cannot take its input: "shuffle" needs a transformer,
            cutoffs one that takes embeddings in place of token ids.
    """

    def __init__(
        self,
        encoder: SentenceTransformer,
        augmentations: Sequence[str] = ("dropout", "dropout"),
        *,
        count: int = 2,
        dropout: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.augmentations = check_augmentations(augmentations)[:count]
        self.cutoff_rate = CUTOFF_RATE
        if check_bool("dropout", dropout) and "none" in self.augmentations:
            raise ValueError(
                f"dropout must be False with augmentations={self.augmentations}, got True: both views go through the "
                "encoder in one pass, so use 'dropout' instead of 'none'."
            )
        self.dropout = dropout or "dropout" in self.augmentations
        self.source = RandomSource(generator, salt=1)
        changed = {*self.augmentations} & {*CUTOFFS, "shuffle"}
        self.draws = bool(changed)
        if not changed:
            return
        check_one_encoder(encoder, f"augmentations={tuple(augmentations)!r}")
        body: Any = encoder.transformers_model
        if body is None:
            raise ValueError(
                f"augmentations must be 'none' for an encoder that is no transformer, got {sorted(changed)[0]!r} for a "
                f"{type(encoder[0]).__name__}: give two columns, the sentence and its positive, with "
                "augmentations=('none', 'none')."
            )
        self._moves_positions = body.config.model_type == "bert"
        cutoffs = sorted(changed & {*CUTOFFS})
        if cutoffs and not takes_embeddings(encoder):
            raise ValueError(
                "augmentations must be 'dropout', 'none' or 'shuffle' for an encoder that takes no input "
                f"embeddings, got {cutoffs[0]!r} for a {type(body).__name__}: use 'shuffle' in its place."
            )

    def rows(self, model: nn.Module, columns: Sequence[Features]) -> Features:
        """Return the views as one batch, view after view, for a loss that encodes further rows in the same pass.

        Raises:
            ValueError: if two columns cannot share a pass.
        """
        count = len(self.augmentations)
        return self.augment(model, stack_columns(columns[:count], count), self.augmentations)

    def encode(self, model: nn.Module, columns: Sequence[Features]) -> list[Tensor]:
        """Return the embeddings of each view, (B, D), from one pass, or from two if two columns cannot share one."""
        count = len(self.augmentations)
        rows = try_stack_columns(columns[:count], count)
        if rows is None:
            return [
                self.embed(model, column, (name,)) for column, name in zip(columns, self.augmentations, strict=True)
            ]
        return list(self.embed(model, rows, self.augmentations).chunk(count))

    def embed(
        self,
        model: nn.Module,
        rows: Features,
        augmentations: Sequence[str],
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the embeddings of rows as views, (R, D), from one pass; for the arguments see :meth:`augment`."""
        with nullcontext() if self.dropout else without_dropout(model):
            output = forward_pass(model, self.augment(model, rows, augmentations, generator))
        embeddings: Tensor = output["sentence_embedding"]
        return embeddings

    def augment(
        self,
        model: nn.Module,
        rows: Features,
        augmentations: Sequence[str],
        generator: torch.Generator | None = None,
    ) -> Features:
        """Return the rows with the input that makes them views: ``inputs_embeds``, ``position_ids`` or ``input_ids``.

        Args:
            model: the encoder, which may be wrapped.
            rows: equally many rows for each view, view after view.
            augmentations: the augmentation of each view.
            generator: generator of the draws. None: the module's.
        """
        changed = {*augmentations} & {*CUTOFFS, "shuffle"}
        if not changed:
            return rows
        encoder = unwrap(model)
        content = content_mask(encoder, rows)  # (R, L)
        generator = self.source.on(content.device) if generator is None else generator
        result = dict(rows)
        views = list(zip(augmentations, content.chunk(len(augmentations)), strict=True))

        def change_shuffled(values: Tensor, shuffle: Callable[[Tensor, Tensor, torch.Generator], Tensor]) -> Tensor:
            blocks = zip(values.chunk(len(views)), views, strict=True)  # (B, L) each
            return torch.cat(
                [shuffle(block, own, generator) if name == "shuffle" else block for block, (name, own) in blocks]
            )

        if "shuffle" in changed and not self._moves_positions:
            result["input_ids"] = change_shuffled(rows["input_ids"], shuffled_tokens)
        if changed & {*CUTOFFS}:
            blocks = _word_embeddings(encoder, result["input_ids"]).chunk(len(augmentations))  # (B, L, E) each
            result["inputs_embeds"] = torch.cat(
                [self._cut(name, block, own, generator) for block, (name, own) in zip(blocks, views, strict=True)]
            )
        if "shuffle" in changed and self._moves_positions:
            places = torch.arange(content.size(1), device=content.device).expand(content.shape)
            result["position_ids"] = change_shuffled(places, shuffled_positions)
        return result

    def _cut(self, name: str, embeddings: Tensor, content: Tensor, generator: torch.Generator) -> Tensor:
        rows, _, size = embeddings.shape
        if name == "token_cutoff":
            cut = token_cutoff(content, self.cutoff_rate, generator).unsqueeze(2)
        elif name == "feature_cutoff":
            cut = feature_cutoff(rows, size, self.cutoff_rate, generator, embeddings.device).unsqueeze(1)
        else:
            return embeddings
        return embeddings.masked_fill(cut, 0.0)
