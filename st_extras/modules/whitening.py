"""BERT-whitening: rotate and scale sentence embeddings so that their covariance over a corpus is the identity."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_count, check_weight
from st_extras.citations import CITATIONS
from st_extras.modules import pipeline
from st_extras.modules.corpus_statistics import MIN_RELATIVE_VARIANCE, CorpusStatistics
from st_extras.modules.post_processor import LinearPostProcessor, attach_transform

logger = logging.getLogger(__name__)


class WhiteningPostProcessor(LinearPostProcessor):
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
        epsilon: how much of the mean variance is added to that of every direction, >= 0; 0 whitens fully, and the
            larger, the more of the embedding space stays as it was (try 0.1).
        corpus_size: number of sentences that mu and W were computed from; 0 if not fitted.

    Works with:
        Any SentenceTransformer whose last module before a final ``Normalize`` knows its embedding dimension: every
        encoder and pooling, static embeddings too. RepAL can be attached afterwards. It is linear, so gradients pass
        through it (mu and W stay fixed) and ``to_dense`` exports it as a stock module. ``CorpusStatistics``
        fits it on a corpus that was encoded in shards. Refused: a model that has whitening, all-but-the-top,
        locality preservation or RepAL already.

    Differs from the paper:
        The Soft-ZCA paper adds epsilon itself to the eigenvalues; here it is relative to their mean, so that one value
        means the same for every encoder. With ``epsilon=0`` and all dimensions, the result is not rotated back: a
        rotation changes no cosine.

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

    citation = CITATIONS["su2021whitening"]
    config_keys: list[str] = ["embedding_dimension", "dimensions", "epsilon", "corpus_size"]  # noqa: RUF012

    def __init__(
        self, embedding_dimension: int, dimensions: int | None = None, epsilon: float = 0.0, corpus_size: int = 0
    ) -> None:
        size = pipeline.check_size(embedding_dimension)
        dimensions = size if dimensions is None else check_count("dimensions", dimensions, 1, size)
        super().__init__(size, dimensions, corpus_size)
        self.dimensions = dimensions
        self.epsilon = check_weight("epsilon", epsilon)

    @staticmethod
    def attach(
        model: SentenceTransformer,
        *,
        dimensions: int | None = None,
        epsilon: float = 0.0,
        corpus: Iterable[str] | None = None,
        statistics: CorpusStatistics | None = None,
        batch_size: int = 32,
        encode_options: Mapping[str, Any] | None = None,
    ) -> SentenceTransformer:
        """Return a new model: ``model`` with whitening before a final ``Normalize``. Weights are shared.

        Args:
            model: any model (see "Works with"). It is not changed.
            dimensions: size of the whitened embeddings (k); None keeps all dimensions.
            epsilon: 0 whitens fully; above 0 softly.
            corpus: sentences to fit on, or a data set with one text column; None: call ``fit`` before encoding.
            statistics: of a corpus, in place of ``corpus``.
            batch_size: sentences per forward pass over ``corpus``.
            encode_options: further arguments of ``encode``, as for ``CorpusStatistics.compute``.

        Raises:
            ValueError: if a setting is not allowed, or the model has a linear transform or RepAL already.
        """
        build = partial(WhiteningPostProcessor, dimensions=dimensions, epsilon=epsilon)
        return attach_transform(model, build, corpus, statistics, batch_size, encode_options)

    def kernel_of(self, statistics: CorpusStatistics) -> Tensor:
        """Return W, (D, k) in float64.

        Raises:
            ValueError: if there are no two different embeddings.
        """
        variances, directions = statistics.principal_directions()
        varies = variances > MIN_RELATIVE_VARIANCE * variances[0]
        if not varies[: self.dimensions].all():
            kept = "have the variance that epsilon gives them" if self.epsilon else "are 0"
            message = "%d sentences vary in %d directions only: the other %d of %d whitened dimensions %s."
            found = int(varies.sum())
            logger.warning(message, statistics.count, found, self.dimensions - found, self.dimensions, kept)
        if self.epsilon:
            variances = variances.clamp(min=0)
            scale = (variances + self.epsilon * variances.mean()).rsqrt()
        else:
            scale = torch.where(varies, variances.clamp(min=1e-300).rsqrt(), 0.0)
        kernel = (directions * scale)[:, : self.dimensions]
        rotated_back = self.epsilon and self.dimensions == self.embedding_dimension
        return kernel @ directions.T if rotated_back else kernel
