"""All-but-the-top: centre sentence embeddings and remove the few directions that dominate them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_count
from st_extras.citations import CITATIONS
from st_extras.modules import pipeline
from st_extras.modules.corpus_statistics import MIN_RELATIVE_VARIANCE, CorpusStatistics
from st_extras.modules.post_processor import LinearPostProcessor, attach_transform


class AllButTheTopPostProcessor(LinearPostProcessor):
    """Subtract the corpus mean, and remove the few directions in which all embeddings differ most.

    In a raw encoder these directions hold frequency and length rather than meaning, and they dominate every cosine.
    It changes less than whitening: the other directions stay as they are. Use it on a raw or anisotropic encoder, or
    after ``SIFPooling``. Do not use it on an encoder trained for similarity, whose strongest directions carry
    meaning; there, ``components=0`` (centring alone) is the most to try.

    Paper: All-but-the-Top (Mu and Viswanath, 2018), https://arxiv.org/abs/1702.01417.

    Equation: v' = (v - mu) - sum_{i <= k} u_i u_i^T (v - mu), with mu the mean and u_i the first principal directions
    of the embeddings of a corpus.

    ``attach`` builds the pipeline [Transformer, Pooling, ..., AllButTheTopPostProcessor(, Normalize)].

    Args:
        embedding_dimension: D, size of the embeddings.
        components: number of directions to remove (k), 0 to D - 1; 0 is centring. None: D / 100, as in the paper, and
            at least 1.
        corpus_size: number of sentences that the mean and the directions were computed from; 0 if not fitted.

    Works with:
        Any SentenceTransformer whose last module before a final ``Normalize`` knows its embedding dimension: every
        encoder and pooling, static embeddings too. RepAL can be attached afterwards. It is linear, so gradients pass
        through it and ``to_dense`` exports it as a stock module. Refused: a model that has whitening,
        all-but-the-top, locality preservation or RepAL already.

    Differs from the paper:
        The paper works on the word vectors of a vocabulary; here the embeddings are those of sentences.

    Example:
        >>> from st_extras.modules import AllButTheTopPostProcessor
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()[:500]
        >>> model = AllButTheTopPostProcessor.attach(encoder, components=3, corpus=corpus)
        >>> model.encode(corpus, convert_to_tensor=True).mean(dim=0).abs().max().item() < 1e-4
        True
    """

    citation = CITATIONS["mu2018allbutthetop"]
    config_keys: list[str] = ["embedding_dimension", "components", "corpus_size"]  # noqa: RUF012

    def __init__(self, embedding_dimension: int, components: int | None = None, corpus_size: int = 0) -> None:
        size = pipeline.check_size(embedding_dimension)
        components = min(size - 1, max(1, round(size / 100))) if components is None else components
        components = check_count("components", components, 0, size - 1)
        super().__init__(size, size, corpus_size)
        self.components = components

    @staticmethod
    def attach(
        model: SentenceTransformer,
        *,
        components: int | None = None,
        corpus: Iterable[str] | None = None,
        statistics: CorpusStatistics | None = None,
        batch_size: int = 32,
        encode_options: Mapping[str, Any] | None = None,
    ) -> SentenceTransformer:
        """Return a new model: ``model`` with this module before a final ``Normalize``. Weights are shared.

        Args:
            model: any model (see "Works with"). It is not changed.
            components: number of directions to remove (k); None: D / 100, at least 1.
            corpus: sentences to fit on, or a data set with one text column; None: call ``fit`` before encoding.
            statistics: of a corpus, in place of ``corpus``.
            batch_size: sentences per forward pass over ``corpus``.
            encode_options: further arguments of ``encode``, as for ``CorpusStatistics.compute``.

        Raises:
            ValueError: if a setting is not allowed, or the model has a linear transform or RepAL already.
        """
        build = partial(AllButTheTopPostProcessor, components=components)
        return attach_transform(model, build, corpus, statistics, batch_size, encode_options)

    def kernel_of(self, statistics: CorpusStatistics) -> Tensor:
        """Return the projection on what stays, (D, D) in float64.

        Raises:
            ValueError: if there are no two different embeddings, or none would be left of what differs in them.
        """
        variances, directions = statistics.principal_directions()
        rank = int((variances > MIN_RELATIVE_VARIANCE * variances[0]).sum())
        if self.components >= rank:
            raise ValueError(
                f"components must be below the number of directions in which the {statistics.count} sentences vary "
                f"({rank}), got {self.components}: remove fewer, or fit on more text."
            )
        top = directions[:, : self.components]  # (D, k)
        return torch.eye(len(top), dtype=torch.float64) - top @ top.T
