"""What SimCSE, ConSERT, DCLR and AdCSE share beside their mathematics: views, encoding, a head, mini-batches."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_bool
from st_extras.encoders.distributed import gather_rows, require_synchronised
from st_extras.encoders.forward import check_trained_encoder
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import embedding_dimension, fix_padding_side, unwrap
from st_extras.functional import full_precision
from st_extras.losses.parts.batch_checks import BatchChecks
from st_extras.losses.parts.gradient_cache import (
    ColumnBatches,
    GradientCache,
    ViewBatches,
    check_mean,
    check_mini_batches,
)
from st_extras.losses.parts.views import ViewMaker

Columns = Sequence[Features]
"""The tokenized columns of a batch: the sentences, or the sentences and their positives."""


class PairOptions(TypedDict, total=False):
    """The keyword arguments that every pair loss hands on to :class:`PairLoss`, which documents them."""

    projection: bool
    gather_across_devices: bool
    mini_batch_size: int | None
    mini_batch_num_tokens: int | None
    generator: torch.Generator | None


class ProjectionHead(nn.Sequential):
    """Linear(D, D) + tanh, the head that the authors of SimCSE, DCLR and AdCSE train with."""

    def __init__(self, dimension: int) -> None:
        super().__init__(nn.Linear(dimension, dimension), nn.Tanh())
        self.dimension = dimension

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings, (B, D), after the head, in its dtype.

        Raises:
            ValueError: if they have another dimension than the head, or a multi-process run does not keep the head
                equal across processes.
        """
        require_synchronised(self)
        self.check_size(embeddings)
        linear, tanh = self
        after: Tensor = tanh(linear(embeddings.to(next(self.parameters()).dtype)))
        return after

    def check_size(self, embeddings: Tensor) -> None:
        """Refuse embeddings, (B, D) before or after the head, of another dimension than the head's."""
        if embeddings.size(-1) != self.dimension:
            raise ValueError(
                f"projection=True was built for embeddings of {self.dimension} dimensions, got {embeddings.size(-1)}: "
                "use projection=False with a loss that truncates embeddings (MatryoshkaLoss)."
            )


class PairLoss(nn.Module, ABC):
    """Compares two views of each sentence with those of the other sentences of a batch.

    Abstract: a loss adds its settings and ``calculate_loss``, its mathematics. What happens to a batch of B sentences:

    1. ``forward`` checks the columns, has the encoder embed all rows of both views in one pass, and passes the
       embeddings through the head. With ``mini_batch_size``,
       :class:`~st_extras.losses.parts.gradient_cache.GradientCache` does so for b rows of one view at a time, and again
       in the backward pass, which takes the gradients from the embeddings to the weights.
    2. ``calculate_loss`` gets each view as a list of mini-batches, (b, D) each; without mini-batches, a list of one.
    3. It calls :meth:`whole`, which returns both views in one piece, (B, D) each, and warns if they are equal;
    4. :meth:`gather`, which returns the candidates that every anchor is compared with: the second views of this
       process, or of all, (world * B, D);
    5. and :meth:`mean_over_mini_batches`, which contrasts the anchors of one mini-batch at a time with the candidates.

    A loss that wraps this one and encodes the rows itself, such as SLT-FAI, asks :meth:`views` which rows, and begins
    at :meth:`compute_loss_from_embeddings`. MatryoshkaLoss runs ``forward`` once per dimension, or with mini-batches
    ``calculate_loss``.

    Args:
        model: the SentenceTransformer to train.
        augmentations: how each view is made: "dropout", "none", "shuffle", "token_cutoff" or "feature_cutoff",
            explained in :class:`~st_extras.losses.parts.views.ViewMaker`.
        one_view: have only the first view encoded; the loss makes the other one itself.
        dropout: run the encoder with its own dropout too; always on if a view is "dropout".
        projection: train with a head, Linear(D, D) + tanh, that belongs to the loss and is dropped at evaluation.
        gather_across_devices: use the sentences of all processes as negatives.
        mini_batch_size: number of sentences that the encoder sees at a time (gradient caching). Memory no longer grows
            with the batch's activations, and a step takes about 4/3 of the time. None: the whole batch at once.
        mini_batch_num_tokens: instead, number of tokens, without padding, that the encoder sees at a time: for
            sentences of very different lengths. A sentence with more tokens is a mini-batch of its own.
        generator: torch.Generator of all that the loss draws, on the model's device. None: made from torch's seed.

    Attributes:
        dropout: whether the encoder's dropout is on in the pass.
        projection_head: the head; nn.Identity without one.
        uses_gradient_cache: whether the encoder sees mini-batches; MatryoshkaLoss reads it.
        checks: the warnings about batches that teach nothing.

    Raises:
        ValueError: if a setting is not allowed, or the encoder cannot take what a view or a mini-batch needs.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        augmentations: Sequence[str] = ("dropout", "dropout"),
        one_view: bool = False,
        dropout: bool = False,
        projection: bool = False,
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        mini_batch_num_tokens: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        encoder = unwrap(model)
        fix_padding_side(encoder)
        self.model = model
        self.view_maker = ViewMaker(
            encoder, augmentations, count=1 if one_view else 2, dropout=dropout, generator=generator
        )
        self.dropout = self.view_maker.dropout
        self.projection_head: nn.Module = nn.Identity()
        if check_bool("projection", projection):
            self.projection_head = ProjectionHead(embedding_dimension(encoder)).to(encoder.device)
        self.gather_across_devices = check_bool("gather_across_devices", gather_across_devices)
        check_mini_batches(encoder, mini_batch_size, mini_batch_num_tokens)
        self.mini_batch_size, self.mini_batch_num_tokens = mini_batch_size, mini_batch_num_tokens
        self.uses_gradient_cache = mini_batch_size is not None or mini_batch_num_tokens is not None
        self.checks = BatchChecks(type(self).__name__)

    @abstractmethod
    def calculate_loss(
        self, view_batches: ViewBatches, *, with_backward: bool = False, columns: ColumnBatches | None = None
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            view_batches: the embeddings of each view after the head, in mini-batches of (b, D).
            with_backward: differentiate here, with respect to ``view_batches``, and return a value without a graph.
            columns: the tokenized columns in the same mini-batches; None if only the embeddings are known.
        """

    # -- the way of a batch

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch of one or two columns; ``labels`` are not used.

        Raises:
            ValueError: if there are more columns, or the encoder is frozen while gradients are enabled.
        """
        columns = self._check_columns(sentence_features)
        check_trained_encoder(self.model)
        if self.uses_gradient_cache:
            return GradientCache(self, columns).run()
        embeddings = self.view_maker.encode(self.model, columns)
        return self.compute_loss_from_embeddings(embeddings, sentence_features=columns)

    def views(self, sentence_features: Iterable[Features]) -> tuple[Features, int]:
        """Return the token rows of all views and the number of views: (2B rows, 2), with ``one_view`` (B rows, 1).

        The rows are view after view, for a loss that encodes them together with rows of its own.

        Raises:
            ValueError: if the columns cannot share a pass.
        """
        columns = self._check_columns(sentence_features)
        return self.view_maker.rows(self.model, columns), len(self.view_maker.augmentations)

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None, *, sentence_features: Columns | None = None
    ) -> Tensor:
        """Return the loss of embeddings of the views, [anchors, positives], (B, D) each, before the projection head.

        All that is given passes through the trained head.

        Args:
            embeddings: the encoder's output for the rows of :meth:`views`, view by view. AdCSE, unless ``tied``, takes
                [anchors] and makes the positives of ``sentence_features``; given both, it uses both as they are.
            labels: not used.
            sentence_features: the tokenized columns, for a loss that has another encoder read them too.
        """
        view_batches = [[self.projection_head(view)] for view in embeddings]
        columns = None if sentence_features is None else [[column] for column in sentence_features]
        return check_mean(self.calculate_loss(view_batches, columns=columns), self)

    def encode_view(self, rows: Features, augmentation: str, generator: torch.Generator | None) -> Tensor:
        """Return the embeddings of a mini-batch of one view after the head, (b, D)."""
        embedded: Tensor = self.projection_head(self.view_maker.embed(self.model, rows, (augmentation,), generator))
        return embedded

    # -- for calculate_loss

    def whole(self, view_batches: ViewBatches, *, other_signal: bool = False) -> tuple[Tensor, Tensor]:
        """Return both views of the whole batch, (B, D) each.

        Args:
            view_batches: their mini-batches.
            other_signal: whether a batch with two equal views still teaches something: by adversaries, noise, a guide.

        Raises:
            ValueError: if the views differ in shape, or were truncated after the head.
        """
        joined = [batches[0] if len(batches) == 1 else torch.cat(batches) for batches in view_batches]
        shapes = [tuple(view.shape) for view in joined]
        if len(joined) != 2 or shapes[0] != shapes[1]:
            raise ValueError(f"{type(self).__name__} compares two views of one shape, got {shapes}.")
        if isinstance(self.projection_head, ProjectionHead):
            self.projection_head.check_size(joined[0])
        if self.dropout:
            self.checks.check_views(self.model, *joined, other_signal=other_signal)
        return joined[0], joined[1]

    def gather(self, positives: Tensor, *, other_negatives: int = 0) -> tuple[Tensor, int]:
        """Return the candidates of all processes, (world * B, D), and the index of this process's first one.

        Args:
            positives: (B, D), of this process.
            other_negatives: number of negatives that are not candidates: noise, adversaries.
        """
        candidates, offset = positives, 0
        if self.gather_across_devices:
            candidates, offset = gather_rows(positives, across_devices=True)
        self.checks.check_negatives(other_negatives + len(candidates) - 1)
        return candidates, offset

    def mean_over_mini_batches(
        self,
        anchors: Sequence[Tensor],
        candidates: Tensor,
        contrast: Callable[[Tensor, Tensor, int], Tensor],
        *,
        with_backward: bool,
    ) -> Tensor:
        """Return the mean loss of all anchors, taken in mini-batches, so that only (b, K) scores are held at a time.

        Args:
            anchors: the mini-batches, (b, D) each.
            candidates: (K, D), which every anchor is compared with. If gradients flow through them, they are
                differentiated once, after the last mini-batch.
            contrast: (anchors of a mini-batch, ``candidates``, index of its first row) -> the mean loss of its rows.
            with_backward: differentiate here, mini-batch by mini-batch, and return a value without a graph.
        """
        rows = sum(len(batch) for batch in anchors)
        leaf = candidates.detach().requires_grad_(candidates.requires_grad) if with_backward else candidates
        total = torch.zeros((), device=anchors[0].device, dtype=full_precision(anchors[0]).dtype)
        begin = 0
        for batch in anchors:
            value = check_mean(contrast(batch, leaf, begin), self, "contrast") * (len(batch) / rows)
            if with_backward and value.requires_grad:
                value.backward()  # type: ignore[no-untyped-call]
            total = total + (value.detach() if with_backward else value)
            begin += len(batch)
        if with_backward and leaf.grad is not None:
            torch.autograd.backward(candidates, leaf.grad)
        return total

    # -- around it

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card: those that all pair losses share, and the loss's own.

        Its own are the arguments of its constructor that it keeps as plain attributes of the same name; what it keeps
        otherwise, it adds.
        """
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, PairLoss) and kind is not PairLoss]
        arguments = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
        own = {name: value for name, value in vars(self).items() if name in arguments and _is_plain(value)}
        names = ("gather_across_devices", "mini_batch_size", "mini_batch_num_tokens")
        return own | {
            "augmentations": list(self.view_maker.augmentations),
            "projection": isinstance(self.projection_head, ProjectionHead),
            **{name: getattr(self, name) for name in names},
        }

    def _check_columns(self, sentence_features: Iterable[Features]) -> list[Features]:
        columns = list(sentence_features)
        if len(columns) not in (1, 2):
            raise ValueError(
                f"{type(self).__name__} takes one column (the sentence) or two (the sentence and its positive), got "
                f"{len(columns)}."
            )
        return columns


def _is_plain(value: object) -> bool:
    """Return whether a value can stand on a model card: a number, a string, a boolean, None, or several of them."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
