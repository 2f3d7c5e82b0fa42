"""What a pair loss does beside its mathematics: two views, the encoder's pass, a head, all processes, mini-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from st_extras.checks import check_bool
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.heads import apply_head, check_head_size, projection_head
from st_extras.encoders.momentum import require_trainable
from st_extras.encoders.padding import fix_padding_side
from st_extras.encoders.rows import Features, check_columns
from st_extras.encoders.structure import embedding_dimension, unwrap
from st_extras.losses.parts.batch_checks import tell_no_negatives, tell_repeated_texts, tell_same_views
from st_extras.losses.parts.gradient_cache import GradientCache, check_mini_batches
from st_extras.losses.parts.views import TwoViews
from st_extras.losses.parts.wrapping import is_repeated

Columns = Sequence[Features]
"""The tokenized columns of a batch."""
Batches = list[list[Any]]
"""Of every view or column, its mini-batches; a whole batch is the case of one."""


class PairStep(nn.Module):
    """Runs a pair loss, whose ``calculate_loss(reps, *, with_backward=False, columns)`` is all of its mathematics.

    ``reps`` are the views' embeddings after the head, ``columns`` the untouched columns, both in mini-batches. It is
    called through the loss, where MatryoshkaLoss puts its own around it.

    Args:
        model: the encoder, not kept.
        augmentations: the two views' augmentations.
        one_view: encode the first column alone, as it is.
        cutoff_rate: see :class:`~st_extras.losses.parts.views.TwoViews`.
        dropout: see there.
        projection: whether to train with a head.
        gather_across_devices: whether the sentences of all processes are candidates.
        mini_batch_size: number of sentences that the encoder sees at a time.
        mini_batch_num_tokens: in its place, number of tokens. Both None: the whole batch at once.
        generator: source of the views' draws.

    Attributes:
        dropout: whether the encoder's dropout is on in the pass.
        caches: whether the encoder sees mini-batches.
        runs: how often ``calculate_loss`` has begun on this batch, of which MatryoshkaLoss makes a run a dimension.

    Raises:
        ValueError: if a setting is not what it must be, or the encoder's batches cannot be cut into rows.
    """

    def __init__(
        self,
        model: nn.Module,
        augmentations: Sequence[str] = ("dropout", "dropout"),
        *,
        one_view: bool = False,
        cutoff_rate: float = 0.2,
        dropout: bool = False,
        projection: bool = False,
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        mini_batch_num_tokens: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        fix_padding_side(model)
        self.two_views = None
        if not one_view:
            self.two_views = TwoViews(
                model, augmentations, cutoff_rate=cutoff_rate, dropout=dropout, generator=generator
            )
        self.dropout = self.two_views is None or self.two_views.dropout
        self.projection_head = None
        if check_bool("projection", projection):
            self.projection_head = projection_head(embedding_dimension(model)).to(unwrap(model).device)
        self.gather_across_devices = check_bool("gather_across_devices", gather_across_devices)
        self.caches = mini_batch_size is not None or mini_batch_num_tokens is not None
        if self.caches:
            check_mini_batches(model, mini_batch_size, mini_batch_num_tokens)
        self.mini_batch_size = None if mini_batch_size is None else int(mini_batch_size)
        self.mini_batch_num_tokens = None if mini_batch_num_tokens is None else int(mini_batch_num_tokens)
        self.runs = 0

    def run(self, loss: Any, sentence_features: Iterable[Features]) -> Tensor:
        """Return the loss of a batch: in one pass of the encoder, or in mini-batches by gradient caching.

        Raises:
            ValueError: if there are not one or two columns, or no parameter of the model is trained.
        """
        columns = check_columns(sentence_features, type(loss).__name__)
        if torch.is_grad_enabled():
            require_trainable(unwrap(loss.model))
            tell_repeated_texts(loss, columns)
        if self.caches:
            self.runs = 0
            cache = GradientCache(loss, self, columns)
            return cache.forward_cached(cache.views)
        if self.two_views is None:
            embeddings = [forward_pass(loss.model, columns[0])["sentence_embedding"]]
        else:
            embeddings = self.two_views.encode(loss.model, columns)
        return self.of_embeddings(loss, embeddings, columns)

    def of_embeddings(
        self, loss: Any, embeddings: Sequence[Tensor], columns: Columns | None, *, after_head: bool = False
    ) -> Tensor:
        """Return the loss of each view's embeddings, (B, D), before the head: the batch is its one mini-batch."""
        if not is_repeated(loss.model):
            self.runs = 0
        views = embeddings if after_head else apply_head(self.projection_head, embeddings)
        whole = None if columns is None else [[column] for column in columns]
        return cast(Tensor, loss.calculate_loss([[view] for view in views], columns=whole))

    def views(self, loss: Any, sentence_features: Iterable[Features]) -> tuple[Features, int]:
        """Return the rows that the encoder must see, for a loss that wraps this one, and the number of views."""
        columns = check_columns(sentence_features, type(loss).__name__)
        return (dict(columns[0]), 1) if self.two_views is None else (self.two_views.rows(loss.model, columns), 2)

    def encode_view(
        self, model: nn.Module, rows: Features, augmentation: str, generator: torch.Generator | None
    ) -> Tensor:
        """Return one view of some rows, (b, D), after the head."""
        with nullcontext() if self.dropout else without_dropout(model):
            if self.two_views is not None and self.two_views.draws:
                rows = self.two_views.augment(model, rows, (augmentation,), generator)
            embeddings: Tensor = forward_pass(model, rows)["sentence_embedding"]
        return embeddings if self.projection_head is None else apply_head(self.projection_head, [embeddings])[0]

    def join(self, loss: nn.Module, reps: Batches, *, others: bool = False) -> list[Tensor]:
        """Begin a run of ``calculate_loss``: return each view of the batch, (B, D), from its mini-batches.

        ``others`` says whether something beside the views teaches.

        Raises:
            ValueError: if the views differ in shape, or were truncated after the head.
        """
        self.runs += 1
        views = [batches[0] if len(batches) == 1 else torch.cat(batches) for batches in reps]
        shapes = [tuple(view.shape) for view in views]
        if len(views) != 2 or shapes[0] != shapes[1]:
            raise ValueError(f"{type(loss).__name__} compares two views of one shape, got {shapes}.")
        if self.projection_head is not None:
            check_head_size(self.projection_head, views[0])
        if self.dropout:
            tell_same_views(loss, *views, others=others)
        return views

    def gather(self, loss: nn.Module, positives: Tensor, *, others: int = 0, gather: bool = True) -> tuple[Tensor, int]:
        """Return the candidates of all processes, (world * B, D), and the index of this process's first one.

        Args:
            loss: the loss, which a warning names the first time that a training batch has no negatives.
            positives: (B, D), of this process.
            others: number of negatives that are not candidates.
            gather: whether the other candidates are negatives.
        """
        candidates, offset = gather_rows(positives, self.gather_across_devices and gather)
        tell_no_negatives(loss, others + (len(candidates) - 1 if gather else 0))
        return candidates, offset

    @property
    def config(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return ({} if self.two_views is None else self.two_views.config) | {
            "projection": self.projection_head is not None,
            "gather_across_devices": self.gather_across_devices,
            "mini_batch_size": self.mini_batch_size,
            "mini_batch_num_tokens": self.mini_batch_num_tokens,
        }
