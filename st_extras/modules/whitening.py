"""BERT-whitening: rotate and scale sentence embeddings so that their covariance over a corpus is the identity."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_extras.modules.pipeline import (
    as_dense,
    build_model,
    embedding_dimension,
    load_module,
    modules_before,
    remember_owner,
    save_module,
    split_before_normalize,
    stream_embeddings,
    view,
)

logger = logging.getLogger(__name__)

_SMALLEST_VARIANCE = 1e-10  # of a direction, relative to the largest: below it there is only rounding


class WhiteningPostProcessor(Module):
    """Whitened sentence embeddings (BERT-whitening, Su et al., 2021): the baseline that RepAL is stacked on.

    v' = (v - mu) W, with mu the mean over a corpus, the covariance U Lambda U^T, and W the first k columns of
    U Lambda^{-1/2} (largest eigenvalues first). The pipeline is [Transformer, Pooling, WhiteningPostProcessor(,
    Normalize)]; the whole step is linear, so ``to_dense`` exports it as a stock module.

    Args:
        embedding_dimension: D, of the embeddings that come in.
        dimensions: k <= D, of those that go out; None: D.
        corpus_size: number of sentences that mu and W were taken over (0: not fitted).

    Differs from the authors' code: the covariance is accumulated in float64 in one stream; directions in which the
    corpus does not vary come out as 0, not as rounding errors scaled up.

    Example:
        >>> from st_extras.modules import WhiteningPostProcessor
        >>> model = WhiteningPostProcessor.attach(model, dimensions=4, corpus=sentences)
        >>> model.encode(["a cat sat on the mat"]).shape
        (1, 4)
    """

    config_keys: list[str] = ["embedding_dimension", "dimensions", "corpus_size"]  # noqa: RUF012
    corpus_mean: Tensor
    kernel: Tensor

    def __init__(self, embedding_dimension: int, dimensions: int | None = None, corpus_size: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        dimensions = embedding_dimension if dimensions is None else dimensions
        if isinstance(dimensions, bool) or not isinstance(dimensions, int):
            raise ValueError(f"dimensions must be a whole number or None; got {dimensions!r}")
        if not 1 <= dimensions <= embedding_dimension:
            raise ValueError(f"dimensions must be 1 to {embedding_dimension} (the embedding's); got {dimensions!r}")
        self.embedding_dimension = embedding_dimension
        self.dimensions = dimensions
        self.corpus_size = corpus_size
        self.register_buffer("corpus_mean", torch.zeros(embedding_dimension))
        self.register_buffer("kernel", torch.zeros(embedding_dimension, dimensions))

    @staticmethod
    def attach(
        model: SentenceTransformer,
        *,
        dimensions: int | None = None,
        corpus: Iterable[str] | None = None,
        batch_size: int = 32,
    ) -> SentenceTransformer:
        """A new model: ``model`` with whitening before its trailing ``Normalize``; weights are shared.

        Args:
            model: any model; RepAL, if wanted, is attached afterwards.
            dimensions: k; None keeps all.
            corpus: sentences to fit on; None: call ``fit`` before encoding.
            batch_size: of the pass over ``corpus``.

        Raises:
            ValueError: for a bad setting, or a model that has whitening or RepAL already.
        """
        modules, normalize = split_before_normalize(model)
        if any(hasattr(module, "lambda_1") or isinstance(module, WhiteningPostProcessor) for module in modules):
            raise ValueError(
                "model has whitening or RepAL attached already: whiten the plain model first, then attach RepAL"
            )
        processor = WhiteningPostProcessor(embedding_dimension(modules), dimensions)
        attached = build_model(model, [*modules, processor, *normalize])
        if corpus is not None:
            processor.fit(corpus, batch_size=batch_size)
        return attached

    def fit(
        self, sentences: Iterable[str], *, batch_size: int = 32, show_progress_bar: bool = False
    ) -> WhiteningPostProcessor:
        """Take mu and W over ``sentences``: any iterable, of any size, in one stream.

        Raises:
            ValueError: for fewer than two sentences, sentences that all have one embedding, or an embedding that is
                not finite (the sentence is named).
        """
        size = self.embedding_dimension
        mean = torch.zeros(size, dtype=torch.float64)
        scatter, count = torch.zeros(size, size, dtype=torch.float64), 0
        for embeddings in stream_embeddings(
            view(self, modules_before(self)),
            sentences,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
        ):
            mean, scatter, count = self._merge(mean, scatter, count, embeddings)
        self._set(mean, scatter, count)
        return self

    @staticmethod
    def _merge(mean: Tensor, scatter: Tensor, count: int, chunk: Tensor) -> tuple[Tensor, Tensor, int]:
        """Chan's update: mean and scatter with a chunk more, without the cancellation of E[vv] - E[v]E[v]."""
        added, chunk_mean = len(chunk), chunk.mean(dim=0)
        centred, shift, total = chunk - chunk_mean, chunk_mean - mean, count + len(chunk)
        between = torch.outer(shift, shift) * (count * added / total)
        return mean + shift * (added / total), scatter + centred.T @ centred + between, total

    def _set(self, mean: Tensor, scatter: Tensor, count: int) -> None:
        variances, directions = torch.linalg.eigh(scatter / max(1, count - 1))
        variances, directions = variances.flip(0), directions.flip(1)  # largest first
        if count < 2 or variances[0] <= 0:
            raise ValueError(f"sentences must hold at least two different texts to whiten on; got {count}")
        alive = variances > _SMALLEST_VARIANCE * variances[0]
        if not alive[: self.dimensions].all():
            logger.warning(
                "%d sentences vary in %d directions only: the other %d of %d whitened dimensions are 0",
                count,
                int(alive.sum()),
                self.dimensions - int(alive.sum()),
                self.dimensions,
            )
        scale = torch.where(alive, variances.clamp(min=1e-300).rsqrt(), 0.0)
        self.corpus_mean.copy_(mean)
        self.kernel.copy_((directions * scale)[:, : self.dimensions])
        self.corpus_size = count

    def to_dense(self) -> Module:
        """The fitted step as a stock ``Dense`` module, which loads without this package."""
        self._check_fitted()
        kernel = self.kernel.float().cpu()
        return as_dense(kernel.T, -self.corpus_mean.float().cpu() @ kernel)

    def _check_fitted(self) -> None:
        if not self.corpus_size:
            raise ValueError(
                "this WhiteningPostProcessor is not fitted: call fit(sentences), or pass corpus= to attach"
            )

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Whiten ``sentence_embedding``: (B, D) -> (B, k)."""
        self._check_fitted()
        embedding = features["sentence_embedding"]  # (B, D)
        if embedding.shape[-1] != self.embedding_dimension:
            raise ValueError(
                f"embedding_dimension={self.embedding_dimension}, but the embeddings that arrive have "
                f"{embedding.shape[-1]} dimensions: attach whitening to this model again"
            )
        features["sentence_embedding"] = (embedding - self.corpus_mean.to(embedding)) @ self.kernel.to(embedding)
        return features

    def get_embedding_dimension(self) -> int:
        """K, of the embeddings that go out."""
        return self.dimensions

    def on_model_ready(self, model: Any) -> None:
        """Learn the model that ``fit`` encodes with."""
        remember_owner(self, model)

    save = save_module

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> WhiteningPostProcessor:
        """Load from a folder or the Hub."""
        return load_module(cls, *args, **kwargs)
