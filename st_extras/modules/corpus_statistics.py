"""What post-processing is fitted on: count, mean and scatter of a corpus's embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_rows, counted
from st_extras.modules import pipeline

MIN_RELATIVE_VARIANCE = 1e-10
"""Directions with less variance, relative to the largest, are rounding noise."""


class CorpusStatistics:
    """Count, mean and scatter of the embeddings of a corpus: all that whitening and its family are fitted on.

    A corpus of any size is read once in flat memory.

    Equation: n; mu = sum v / n; S = sum (v - mu)(v - mu)^T. A chunk b is added to a by Chan's update, which loses
    no digits however far mu is from 0: mu = mu_a + d n_b / n and S = S_a + S_b + d d^T n_a n_b / n, d = mu_b - mu_a.

    Args:
        embedding_dimension: D, size of the embeddings.

    Attributes:
        embedding_dimension: D.
        count: number of embeddings (n).
        mean: (D,) float64 (mu).
        scatter: (D, D) float64, about the mean (S); divided by n - 1 it is the covariance.

    Works with:
        Every SentenceTransformer.

    Example:
        >>> from st_extras.modules import CorpusStatistics
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()
        >>> statistics = CorpusStatistics.compute(encoder, corpus[:600])
        >>> statistics
        CorpusStatistics(count=600, embedding_dimension=384)
        >>> statistics.mean.shape, statistics.scatter.shape
        (torch.Size([384]), torch.Size([384, 384]))
    """

    def __init__(self, embedding_dimension: int) -> None:
        self.embedding_dimension = pipeline.check_size(embedding_dimension)
        self.count = 0
        self.mean = torch.zeros(self.embedding_dimension, dtype=torch.float64)
        self.scatter = torch.zeros(self.embedding_dimension, self.embedding_dimension, dtype=torch.float64)

    def __repr__(self) -> str:
        return f"CorpusStatistics(count={self.count}, embedding_dimension={self.embedding_dimension})"

    @property
    def varies(self) -> bool:
        """Whether two embeddings differ by more than equal sentences do in batches of other sizes."""
        spread = self.scatter.diagonal().max() / max(1, self.count - 1)
        return self.count > 1 and bool(spread > pipeline.ROUNDING**2 * self.mean.square().max())

    def principal_directions(self) -> tuple[Tensor, Tensor]:
        """Return the variances (D,) of the embeddings along their principal directions, the columns of (D, D).

        The largest come first, in float64.

        Raises:
            ValueError: if there are no two different embeddings.
        """
        if not self.varies:
            raise ValueError(
                "sentences must have at least two different embeddings to fit on, got "
                f"{counted(self.count, 'sentence')} without."
            )
        variances, directions = torch.linalg.eigh(self.scatter / (self.count - 1))
        return variances.flip(0), directions.flip(1)

    def update(self, embeddings: Tensor | Any) -> CorpusStatistics:
        """Add embeddings by the same encoder, (N, D): a tensor, an array or a list.

        Raises:
            ValueError: as for :func:`~st_extras.checks.check_rows`.
        """
        rows = check_rows("embeddings", embeddings, 0, self.embedding_dimension).detach().to("cpu", torch.float64)
        if not len(rows):
            return self
        mean = rows.mean(dim=0)
        centred = rows - mean
        shift, total = mean - self.mean, self.count + len(rows)
        between = torch.outer(shift, shift) * (self.count * len(rows) / total)
        self.mean = self.mean + shift * (len(rows) / total)
        self.scatter = self.scatter + centred.T @ centred + between
        self.count = total
        return self

    @classmethod
    def compute(
        cls,
        model: SentenceTransformer,
        sentences: Iterable[str],
        **encode_options: Any,
    ) -> CorpusStatistics:
        """Encode ``sentences`` and return the statistics of their embeddings, before a final ``Normalize``.

        Args:
            model: the encoder, as it is before the post-processing that is to be fitted.
            sentences: any iterable, or a data set (or stream of one) with one text column; read once, in flat memory.
            **encode_options: arguments of ``encode``: ``batch_size`` (32 if it is left out), ``show_progress_bar``,
                ``prompt``, ``prompt_name``, ``chunk_size`` and ``device``. Of several devices, such as
                ``device=["cuda:0", "cuda:1"]``, each encodes in a process of its own; a script then needs
                ``if __name__ == "__main__":`` around what it does, or it never ends.

        Raises:
            ValueError: if there are no sentences, an item is not a string, an embedding is not finite (the error names
                the sentence), or a setting is not allowed.
        """
        modules, _ = pipeline.split_before_normalize(model)
        encoder = pipeline.part_of_model(model, modules)
        return cls.gather(encoder, sentences, encode_options)

    @classmethod
    def gather(
        cls,
        encoder: SentenceTransformer,
        sentences: Any,
        encode_options: Mapping[str, Any],
    ) -> CorpusStatistics:
        """Return the statistics of the embeddings of ``sentences``, by a whole encoder."""
        chunks = pipeline.stream_embeddings(encoder, sentences, encode_options)
        first = next(chunks)
        statistics = cls(first.shape[1]).update(first)
        for embeddings in chunks:
            statistics.update(embeddings)
        return statistics
