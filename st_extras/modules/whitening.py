"""BERT-whitening: rotate and scale sentence embeddings so that their covariance over a corpus is the identity."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_extras.checks import check_count
from st_extras.modules import pipeline, saving
from st_extras.modules.repal import RepALPostProcessor

logger = logging.getLogger(__name__)

_MIN_RELATIVE_VARIANCE = 1e-10  # directions with less variance, relative to the largest, are rounding noise


class WhiteningPostProcessor(Module):
    """Make every direction of the embedding space equally important: zero mean and identity covariance over a corpus.

    It undoes the anisotropy of a raw encoder, and can keep only the directions of largest variance, for shorter
    embeddings. Use it on an encoder that was never trained for similarity, fitted on text similar to what you
    will compare. Do not use it on an encoder trained for similarity, whose high-variance directions carry meaning, or
    with little text.

    Paper: BERT-whitening (Su et al., 2021), https://arxiv.org/abs/2103.15316.
    Code: https://github.com/bojone/BERT-whitening.

    Equation: v' = (v - mu) W, with mu and C = U Lambda U^T the mean and covariance of the embeddings of a corpus, and W
    the first k columns of U Lambda^{-1/2}, largest eigenvalues first.

    ``attach`` builds the pipeline [Transformer, Pooling, ..., WhiteningPostProcessor(, Normalize)].

    Args:
        embedding_dimension: D, size of the embeddings that come in.
        dimensions: size of the embeddings that go out (k), 1 to D; None: D.
        corpus_size: number of sentences that mu and W were computed from; 0 if not fitted.

    Works with:
        Any SentenceTransformer whose last module before a final ``Normalize`` knows its embedding dimension: every
        encoder and pooling, static embeddings too. RepAL can be attached afterwards. The step is linear, so gradients
        pass through it (mu and W stay fixed) and ``to_dense`` exports it as a stock module. Refused: a model that has
        whitening or RepAL already.

    Differs from the authors' code:
        The covariance is accumulated in float64 in one pass over a stream of any size. Directions in which the corpus
        does not vary come out as 0 instead of as rounding errors scaled up. The result is not normalized to length one,
        which makes no difference to cosines: put a ``Normalize`` at the end if you want it.

    Example:
        >>> from st_extras.modules import WhiteningPostProcessor
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()[:500]
        >>> model = WhiteningPostProcessor.attach(encoder, dimensions=64, corpus=corpus)
        >>> embeddings = model.encode(corpus, convert_to_tensor=True)
        >>> embeddings.shape, round(embeddings.var(dim=0).mean().item(), 2)
        (torch.Size([500, 64]), 1.0)
    """

    config_keys: list[str] = ["embedding_dimension", "dimensions", "corpus_size"]  # noqa: RUF012
    corpus_mean: Tensor
    kernel: Tensor

    def __init__(self, embedding_dimension: int, dimensions: int | None = None, corpus_size: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        size = pipeline.check_size(embedding_dimension)
        self.embedding_dimension = size
        self.dimensions = size if dimensions is None else check_count("dimensions", dimensions, 1, size)
        self.corpus_size = check_count("corpus_size", corpus_size)
        self.register_buffer("corpus_mean", torch.zeros(size))
        self.register_buffer("kernel", torch.zeros(size, self.dimensions))

    @staticmethod
    def attach(
        model: SentenceTransformer,
        *,
        dimensions: int | None = None,
        corpus: Iterable[str] | None = None,
        batch_size: int = 32,
    ) -> SentenceTransformer:
        """Return a new model: ``model`` with whitening before a final ``Normalize``. Weights are shared.

        Args:
            model: any model (see "Works with"). It is not changed.
            dimensions: size of the whitened embeddings (k); None keeps all dimensions.
            corpus: sentences to fit on, or a data set with one text column; None: call ``fit`` before encoding.
            batch_size: sentences per forward pass over ``corpus``.

        Raises:
            ValueError: if a setting is not allowed, or the model has whitening or RepAL already.
        """
        pipeline.check_encoding(batch_size)
        modules, normalize = pipeline.split_before_normalize(model)
        if any(isinstance(module, (WhiteningPostProcessor, RepALPostProcessor)) for module in modules):
            raise ValueError(
                "model must not have whitening or RepAL attached already: whiten the plain model, then attach RepAL."
            )
        processor = WhiteningPostProcessor(pipeline.embedding_dimension(modules), dimensions)
        attached = pipeline.rebuild_model(model, [*modules, processor, *normalize])
        if corpus is not None:
            processor.fit(corpus, batch_size=batch_size)
        return attached

    def fit(
        self, sentences: Iterable[str], *, batch_size: int = 32, show_progress_bar: bool = False
    ) -> WhiteningPostProcessor:
        """Compute mu and W from ``sentences``: any iterable or data set with one text column, of any size, read once.

        Raises:
            ValueError: if there are fewer than two different sentences, or an embedding is not finite (the error names
                the sentence).
        """
        plain = pipeline.temporary_model(self, pipeline.modules_before(self))
        size = self.embedding_dimension
        mean = torch.zeros(size, dtype=torch.float64)
        scatter, count = torch.zeros(size, size, dtype=torch.float64), 0
        for embeddings in pipeline.stream_embeddings(
            plain, sentences, batch_size=batch_size, show_progress_bar=show_progress_bar
        ):
            mean, scatter, count = self._merge(mean, scatter, count, embeddings)
        self._set(mean, scatter, count)
        return self

    @staticmethod
    def _merge(mean: Tensor, scatter: Tensor, count: int, chunk: Tensor) -> tuple[Tensor, Tensor, int]:
        """Add a chunk (N, D) to mean and scatter by Chan's update, without the cancellation of E[vv] - E[v]E[v]."""
        added, chunk_mean = len(chunk), chunk.mean(dim=0)
        centred, shift, total = chunk - chunk_mean, chunk_mean - mean, count + len(chunk)
        between = torch.outer(shift, shift) * (count * added / total)
        return mean + shift * (added / total), scatter + centred.T @ centred + between, total

    def _set(self, mean: Tensor, scatter: Tensor, count: int) -> None:
        """Set mu and W from the mean (D,) and scatter (D, D) of ``count`` embeddings."""
        variances, directions = torch.linalg.eigh(scatter / max(1, count - 1))
        variances, directions = variances.flip(0), directions.flip(1)  # largest first
        rounding = pipeline.ROUNDING**2 * mean.square().max()  # the variance of equal sentences, batched differently
        if count < 2 or variances[0] <= rounding:
            raise ValueError(
                f"sentences must have at least two different embeddings to whiten on, got {count} sentences without."
            )
        varies = variances > _MIN_RELATIVE_VARIANCE * variances[0]
        if not varies[: self.dimensions].all():
            logger.warning(
                "%d sentences vary in %d directions only: the other %d of %d whitened dimensions are 0.",
                count,
                int(varies.sum()),
                self.dimensions - int(varies.sum()),
                self.dimensions,
            )
        scale = torch.where(varies, variances.clamp(min=1e-300).rsqrt(), 0.0)
        self.corpus_mean.copy_(mean)
        self.kernel.copy_((directions * scale)[:, : self.dimensions])
        self.corpus_size = count

    def to_dense(self) -> Module:
        """Export the fitted step as a stock ``Dense`` module, which loads without this package."""
        pipeline.check_fitted(self, "to_dense")
        kernel = self.kernel.float().cpu()
        return pipeline.as_dense(kernel.T, -self.corpus_mean.float().cpu() @ kernel)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Whiten ``sentence_embedding``: (B, D) -> (B, k)."""
        pipeline.check_fitted(self, "whitening")
        embedding = features["sentence_embedding"]  # (B, D)
        pipeline.check_dimension(self, embedding, self.embedding_dimension)
        features["sentence_embedding"] = (embedding - self.corpus_mean.to(embedding)) @ self.kernel.to(embedding)
        return features

    def get_embedding_dimension(self) -> int:
        """Return k, the size of the embeddings that go out."""
        return self.dimensions

    on_model_ready = pipeline.remember_model  # the model that fit encodes with
    save = saving.save_module

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> WhiteningPostProcessor:
        """Load from a folder or the Hub."""
        return saving.load_module(cls, *args, **kwargs)
