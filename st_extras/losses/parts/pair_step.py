"""What a pair loss does beside its mathematics: two views, the encoder's pass, a head, all processes, mini-batches."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from st_extras.checks import check_bool
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.heads import apply_head, projection_head
from st_extras.encoders.momentum import require_trainable
from st_extras.encoders.rows import Features, check_columns
from st_extras.encoders.structure import embedding_dimension, unwrap
from st_extras.functional import full_precision
from st_extras.losses.parts.gradient_cache import GradientCache, check_mini_batches
from st_extras.losses.parts.views import TwoViews
from st_extras.losses.parts.wrapping import is_repeated

logger = logging.getLogger(__name__)

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
        self.mini_batch_size, self.mini_batch_num_tokens = mini_batch_size, mini_batch_num_tokens
        self.caches = mini_batch_size is not None or mini_batch_num_tokens is not None
        if self.caches:
            check_mini_batches(model, mini_batch_size, mini_batch_num_tokens)
        self._warned = False
        self.runs = 0

    def run(self, loss: Any, sentence_features: Iterable[Features]) -> Tensor:
        """Return the loss of a batch: in one pass of the encoder, or in mini-batches by gradient caching.

        Raises:
            ValueError: if there are not one or two columns, or no parameter of the model is trained.
        """
        columns = check_columns(sentence_features, type(loss).__name__)
        if torch.is_grad_enabled():
            require_trainable(unwrap(loss.model))
        if self.caches:
            self.runs = 0
            return GradientCache(loss, self, columns).value()
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

    def join(self, loss: nn.Module, reps: Batches) -> list[Tensor]:
        """Begin a run of ``calculate_loss``: return each view of the batch, (B, D), from its mini-batches.

        Raises:
            ValueError: if the views differ in shape, or were truncated after the head.
        """
        self.runs += 1
        views = [batches[0] if len(batches) == 1 else torch.cat(batches) for batches in reps]
        shapes = [tuple(view.shape) for view in views]
        if len(views) != 2 or shapes[0] != shapes[1]:
            raise ValueError(f"{type(loss).__name__} compares two views of one shape, got {shapes}.")
        size = views[0].size(-1) if self.projection_head is None else self.projection_head[0].out_features
        if views[0].size(-1) != size:
            raise ValueError(
                f"projection=True was built for embeddings of {size} dimensions, got {views[0].size(-1)}: "
                "use projection=False with a loss that truncates embeddings (MatryoshkaLoss)."
            )
        if self.dropout:
            warn_if_same_views(loss, *views)
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
        negatives = others + (len(candidates) - 1 if gather else 0)
        if negatives == 0 and torch.is_grad_enabled() and not self._warned:
            self._warned = True
            logger.warning(
                "%s got a batch of one sentence, which has no negatives: its loss is 0 and teaches nothing. "
                "Train with a larger batch size; if the text repeats a sentence, batches keep equal ones apart.",
                type(loss).__name__,
            )
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


def warn_if_same_views(loss: nn.Module, anchors: Tensor, positives: Tensor) -> None:
    """Log a warning if the two views of every sentence in the first training batch of ``loss`` are the same vector.

    Most encoders of recent years have no dropout. Then the positive is the anchor itself, and pulling it closer
    teaches nothing. The views are those that the loss has encoded already: no further pass, and nothing random.

    Does nothing while gradients are disabled, or the model is in evaluation mode, whose views are meant to be equal.

    Args:
        loss: the loss, with its ``model``; the warning bears its name.
        anchors: (B, D) embeddings of the first views.
        positives: (B, D) embeddings of the second views.

    Raises:
        ValueError: if no parameter of the model is trained.
    """
    model = unwrap(cast(nn.Module, loss.model))
    if not torch.is_grad_enabled() or not model.training or getattr(loss, "_compared_views", False):
        return
    if not anchors.requires_grad:
        require_trainable(model)
    same = are_same_views(anchors, positives)
    if same and any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()):
        return  # a fresh LoRA adapter adds 0, with or without its dropout: look again at the next batch
    loss._compared_views = True  # type: ignore[assignment]
    if same:
        logger.warning(
            "%s got the same vector twice as the two views of each sentence, so its positives teach nothing: the "
            "encoder has no dropout. Load it with st_extras.encoders.load_encoder(..., dropout=0.1) (--dropout 0.1), "
            "give each sentence a positive in a second column, or use a loss with "
            "augmentations=('token_cutoff', 'feature_cutoff') if the encoder takes input embeddings.",
            type(loss).__name__,
        )


@torch.no_grad()
def are_same_views(anchors: Tensor, positives: Tensor) -> bool:
    """Return whether both (B, D) views are equal in every row, but for the rounding of their precision."""
    if anchors.shape != positives.shape:
        return False
    kinds = [anchors.dtype, positives.dtype]
    if torch.is_autocast_enabled(anchors.device.type):
        kinds.append(torch.get_autocast_dtype(anchors.device.type))
    tolerance = max(1e-5, *(torch.finfo(kind).eps for kind in kinds))
    first, second = full_precision(anchors), full_precision(positives)
    return bool(((first - second).norm(dim=1) <= tolerance * first.norm(dim=1)).all())
