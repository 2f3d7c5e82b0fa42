"""What all pair losses share beside their mathematics: views, the encoder's pass, a head, processes, mini-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

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
from st_extras.losses.parts.batch_checks import BatchChecks
from st_extras.losses.parts.gradient_cache import GradientCache, PairLoss, Views, check_mini_batches
from st_extras.losses.parts.views import TwoViews
from st_extras.losses.parts.wrapping import is_repeated

Columns = Sequence[Features]
"""The tokenized columns of a batch."""


class PairStep(nn.Module):
    """Turns a training batch into the views' embeddings, and calls the loss's ``calculate_loss`` with them.

    A pair loss owns one. The order of the calls for a batch of B sentences in mini-batches of b (or of B):

    1. the loss's ``forward`` calls :meth:`run`, which checks the columns and has the encoder make the views, at once
       or, by :class:`~st_extras.losses.parts.gradient_cache.GradientCache`, in mini-batches;
    2. it calls back ``loss.calculate_loss`` with the views' embeddings after the head: for each view a list of (b, D);
    3. ``calculate_loss`` calls :meth:`join`, which counts the call and returns both views whole, (B, D) each. A loss
       with ``one_view`` adds its other view before;
    4. then :meth:`gather`, which returns the candidates of all processes, (world * B, D);
    5. and :func:`~st_extras.losses.parts.gradient_cache.mean_over_mini_batches` contrasts (b, D) of the anchors at a
       time with the candidates.

    A loss that wraps this one and encodes the rows itself begins at 2, by :meth:`of_embeddings`. MatryoshkaLoss and
    AdaptiveLayerLoss go through these calls several times for a batch: see :attr:`is_first_call`.

    Args:
        loss: name of the loss, for messages.
        model: the encoder, which is not kept: each method gets it anew, as the trainer may wrap it.
        augmentations: the two views' augmentations.
        one_view: encode the first column alone, by dropout; the loss makes the other view itself.
        cutoff_rate: see :class:`~st_extras.losses.parts.views.TwoViews`.
        dropout: see :class:`~st_extras.losses.parts.views.TwoViews`.
        projection: whether to train with a head.
        gather_across_devices: whether the sentences of all processes are candidates.
        mini_batch_size: number of sentences that the encoder sees at a time.
        mini_batch_num_tokens: instead, the number of tokens. Both None: the whole batch at once.
        generator: generator of the augmentations' draws.

    Attributes:
        dropout: whether the encoder's dropout is on in the pass.
        uses_gradient_cache: whether the encoder sees mini-batches.
        checks: the warnings about batches that teach nothing.

    Raises:
        ValueError: if a setting is not allowed, or the encoder's features cannot be cut into rows.
    """

    def __init__(
        self,
        loss: str,
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
        self.checks = BatchChecks(loss)
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
        self.uses_gradient_cache = mini_batch_size is not None or mini_batch_num_tokens is not None
        check_mini_batches(model, mini_batch_size, mini_batch_num_tokens)
        self.mini_batch_size, self.mini_batch_num_tokens = mini_batch_size, mini_batch_num_tokens
        self._calls = 0

    def run(self, loss: PairLoss, sentence_features: Iterable[Features]) -> Tensor:
        """Return the loss of a batch: in one pass of the encoder, or in mini-batches by gradient caching.

        Raises:
            ValueError: if there are not one or two columns, or no parameter of the model is trained.
        """
        columns = check_columns(sentence_features, self.checks.loss)
        if torch.is_grad_enabled():
            require_trainable(unwrap(loss.model))
        if self.uses_gradient_cache:
            return self._run_in_mini_batches(loss, columns)
        if self.two_views is None:
            embeddings = [forward_pass(loss.model, columns[0])["sentence_embedding"]]
        else:
            embeddings = self.two_views.encode(loss.model, columns)
        return self.of_embeddings(loss, embeddings, columns)

    def of_embeddings(
        self, loss: PairLoss, embeddings: Sequence[Tensor], columns: Columns | None, *, after_head: bool = False
    ) -> Tensor:
        """Return the loss of the views' embeddings, (B, D) each, as one mini-batch.

        They go through the head first, unless ``after_head`` says that they have.
        """
        if not is_repeated(loss.model):  # a new batch, not the same one at another dimension or layer
            self._calls = 0
        views = embeddings if after_head else apply_head(self.projection_head, embeddings)
        whole = None if columns is None else [[column] for column in columns]
        return loss.calculate_loss([[view] for view in views], columns=whole)

    def _run_in_mini_batches(self, loss: PairLoss, columns: Columns) -> Tensor:
        self._calls = 0  # here MatryoshkaLoss repeats calculate_loss, not this method
        two_views, generator = self.two_views, None
        if two_views is not None and two_views.draws:
            generator = two_views.source.on(columns[0]["input_ids"].device)
        cache = GradientCache(
            loss,
            columns,
            ("dropout",) if two_views is None else two_views.augmentations,
            self.encode_view,
            generator,
            mini_batch_size=self.mini_batch_size,
            mini_batch_num_tokens=self.mini_batch_num_tokens,
        )
        return cache.run()

    def rows(self, model: nn.Module, sentence_features: Iterable[Features]) -> tuple[Features, int]:
        """Return the rows that the encoder must see, view after view, and the number of views.

        For a loss that encodes them together with rows of its own, such as SLT-FAI.
        """
        columns = check_columns(sentence_features, self.checks.loss)
        return (dict(columns[0]), 1) if self.two_views is None else (self.two_views.rows(model, columns), 2)

    def encode_view(
        self, model: nn.Module, rows: Features, augmentation: str, generator: torch.Generator | None
    ) -> Tensor:
        """Return the embeddings of some rows as one view, (b, D), after the head."""
        with nullcontext() if self.dropout else without_dropout(model):
            if self.two_views is not None and self.two_views.draws:
                rows = self.two_views.augment(model, rows, (augmentation,), generator)
            embeddings: Tensor = forward_pass(model, rows)["sentence_embedding"]
        return embeddings if self.projection_head is None else apply_head(self.projection_head, [embeddings])[0]

    def join(self, model: nn.Module, reps: Views, *, other_signal: bool = False) -> list[Tensor]:
        """Return both views of the whole batch, (B, D) each, and check them; counts a call of ``calculate_loss``.

        Args:
            model: the encoder that made the views.
            reps: the views' mini-batches, as ``calculate_loss`` got them.
            other_signal: whether a batch with two equal views still teaches something: by adversaries, noise, a guide.

        Raises:
            ValueError: if the views differ in shape, or were truncated after the head.
        """
        self._calls += 1
        views = [batches[0] if len(batches) == 1 else torch.cat(batches) for batches in reps]
        shapes = [tuple(view.shape) for view in views]
        if len(views) != 2 or shapes[0] != shapes[1]:
            raise ValueError(f"{self.checks.loss} compares two views of one shape, got {shapes}.")
        if self.projection_head is not None:
            check_head_size(self.projection_head, views[0])
        if self.dropout:
            self.checks.check_views(model, *views, other_signal=other_signal)
        return views

    def gather(
        self, positives: Tensor, *, other_negatives: int = 0, in_batch_negatives: bool = True
    ) -> tuple[Tensor, int]:
        """Return the candidates of all processes, (world * B, D), and the index of this process's first one.

        Args:
            positives: (B, D), of this process.
            other_negatives: number of negatives that are not candidates: noise, adversaries.
            in_batch_negatives: whether the candidates of other sentences are negatives; False: only this process's
                candidates are returned.
        """
        candidates, offset = gather_rows(positives, self.gather_across_devices and in_batch_negatives)
        self.checks.check_negatives(other_negatives + (len(candidates) - 1 if in_batch_negatives else 0))
        return candidates, offset

    @property
    def is_first_call(self) -> bool:
        """Whether ``calculate_loss`` runs on this batch for the first time; true from :meth:`join` on.

        MatryoshkaLoss runs it once per dimension, AdaptiveLayerLoss once per layer. What belongs to the batch as a
        whole, such as a running mean, counts the first time only.
        """
        return self._calls == 1

    @property
    def config(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return ({} if self.two_views is None else self.two_views.config) | {
            "projection": self.projection_head is not None,
            "gather_across_devices": self.gather_across_devices,
            "mini_batch_size": self.mini_batch_size,
            "mini_batch_num_tokens": self.mini_batch_num_tokens,
        }


def pair_step_of(loss: nn.Module) -> PairStep | None:
    """Return the PairStep of a loss, or of the loss inside MatryoshkaLoss or AdaptiveLayerLoss; None if it has none."""
    while isinstance(inner := getattr(loss, "loss", None), nn.Module):
        loss = inner
    step = getattr(loss, "step", None)
    return step if isinstance(step, PairStep) else None
