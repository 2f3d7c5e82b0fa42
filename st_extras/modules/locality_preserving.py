"""Locality Preserving Projections, softly: keep the directions on which a text and its nearest neighbours agree."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_bool, check_count, check_interval, check_seed, check_weight
from st_extras.citations import CITATIONS
from st_extras.modules import pipeline
from st_extras.modules.corpus_statistics import CorpusStatistics
from st_extras.modules.neighbor_directions import NeighborDirections, fewest_texts, neighbor_directions
from st_extras.modules.post_processor import LinearPostProcessor, attach_transform
from st_extras.text.corpus import distinct_sample, iterate_sentences
from st_extras.text.term_weights import character_tfidf

logger = logging.getLogger(__name__)
_FEW = 1000  # texts: with fewer, a good encoder came out worse on some domains


class LocalityPreservingPostProcessor(LinearPostProcessor):
    """Keep the directions on which a text and its nearest neighbours agree, and shrink those on which they do not.

    Neighbours mostly mean the same, so what differs between them is mostly noise: on text of one domain, this brings
    texts of one meaning together without labels. Use it for clustering, search and classification within a domain,
    fitted on some thousand texts of it: ``recolor=0.5`` or 1 for an encoder trained for similarity, 0 for a raw one. Do
    not use it on few texts (a good encoder comes out worse on some hundred), nor for texts of other kinds than those
    that it was fitted on. ``st-extras adapt`` compares such transforms on held-out texts, and may choose none.

    Paper: Locality Preserving Projections (He and Niyogi, 2003),
    https://papers.nips.cc/paper/2003/hash/d69116f8b0140cdeb1f99a4d5096ffe4-Abstract.html.

    Equation: v' = (v - mu) W, with W = U Lambda^{-1/2} Q diag(rho^power) Q^T Lambda^{recolor/2} U^T;
    z = (e - mu) / |e - mu| over the embeddings e of a corpus, and n the mean z of a text's nearest neighbours;
    C = Z^T Z / N + epsilon (mean eigenvalue) I = U Lambda U^T; M = (Z^T N + N^T Z) / 2N;
    Lambda^{-1/2} U^T M U Lambda^{-1/2} = Q diag(rho) Q^T, with rho as texts show it that Q was not computed from.

    ``attach`` builds the pipeline [Transformer, Pooling, ..., LocalityPreservingPostProcessor(, Normalize)].

    Args:
        embedding_dimension: D, size of the embeddings.
        neighbors: number of nearest texts, 1 to 1000 (k).
        power: how strongly directions are shrunk on which neighbours disagree, 0 to 10; 0: not at all.
        recolor: how far directions get their variance back, 0 to 1; 1: all of it; 0: they stay whitened.
        epsilon: how much of the mean variance is added to that of every direction, >= 0.
        tfidf: whether nearest neighbours are those by embeddings and TF-IDF (of parts of words) together, whose errors
            differ; False: by the embeddings alone.
        max_sentences: most texts to fit on, sampled from the different ones; the time grows with its square.
        seed: random seed of the sample.
        corpus_size: number of texts with different embeddings that mu and W were computed from; 0 if not fitted.

    Attributes:
        agreement: (D,) rho, between 0.001 and 1, descending: how far neighbours agree on each direction, for diagnosis;
            0 where the embeddings do not vary.

    Works with:
        Any SentenceTransformer whose last module before a final ``Normalize`` knows its embedding dimension: every
        encoder and pooling, static embeddings too. RepAL can be attached afterwards. It is linear, so gradients pass
        through it and ``to_dense`` exports it as a stock module. Refused: ``CorpusStatistics``, which hold no
        neighbours; fewer than 50 texts with different embeddings (2 ``neighbors`` + 2, if that is more); a model that
        has a linear transform or RepAL already.

    Differs from the paper:
        All directions stay, with soft weights, in place of a cut to the first k; with ``recolor``, they get variance
        back. Embeddings are centred and of length one before anything is computed. A text's neighbours are the mean of
        its k nearest other texts, found within the corpus, in place of a symmetric graph. The agreement is
        cross-fitted, because the eigenvalues themselves come out too high where there are few texts per dimension.

    Example:
        >>> from st_extras.modules import LocalityPreservingPostProcessor
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()[:1000]
        >>> model = LocalityPreservingPostProcessor.attach(encoder, recolor=0.0, corpus=corpus)
        >>> agreement = model[-1].agreement
        >>> bool(agreement[0] > 5 * agreement[200])
        True
    """

    citation = CITATIONS["he2003locality"]
    config_keys: list[str] = [  # noqa: RUF012
        "embedding_dimension", "neighbors", "power", "recolor", "epsilon", "tfidf", "max_sentences", "seed",
        "corpus_size",
    ]  # fmt: skip
    agreement: Tensor

    def __init__(
        self,
        embedding_dimension: int,
        neighbors: int = 10,
        power: float = 1.0,
        recolor: float = 0.5,
        epsilon: float = 0.1,
        tfidf: bool = True,
        max_sentences: int = 20_000,
        seed: int = 0,
        corpus_size: int = 0,
    ) -> None:
        size = pipeline.check_size(embedding_dimension)
        super().__init__(size, size, corpus_size)
        least = fewest_texts(neighbors)
        self.neighbors = int(neighbors)
        self.power = check_interval("power", power, 0, 10)
        self.recolor = check_interval("recolor", recolor, 0, 1)
        self.epsilon = check_weight("epsilon", epsilon)
        self.tfidf = check_bool("tfidf", tfidf)
        self.max_sentences = check_count("max_sentences", max_sentences, least)
        self.seed = check_seed("seed", seed)
        self.register_buffer("agreement", torch.zeros(size))

    @staticmethod
    def attach(
        model: SentenceTransformer,
        *,
        neighbors: int = 10,
        power: float = 1.0,
        recolor: float = 0.5,
        epsilon: float = 0.1,
        tfidf: bool = True,
        max_sentences: int = 20_000,
        seed: int = 0,
        corpus: Iterable[str] | None = None,
        batch_size: int = 32,
        encode_options: Mapping[str, Any] | None = None,
    ) -> SentenceTransformer:
        """Return a new model: ``model`` with this module before a final ``Normalize``. Weights are shared.

        Args:
            model: any model (see "Works with"). It is not changed.
            neighbors: number of nearest texts (k).
            power: how strongly directions are shrunk on which neighbours disagree.
            recolor: how far directions get their variance back.
            epsilon: how much of the mean variance is added to that of every direction.
            tfidf: whether nearest neighbours are those by embeddings and TF-IDF together.
            max_sentences: most texts to fit on.
            seed: random seed of the sample.
            corpus: sentences to fit on, or a data set with one text column; None: call ``fit`` before encoding.
            batch_size: sentences per forward pass over ``corpus``.
            encode_options: further arguments of ``encode``, as for ``CorpusStatistics.compute``.

        Raises:
            ValueError: if a setting is not allowed, the model has a linear transform or RepAL already, or there are too
                few different sentences.
        """
        settings = neighbors, power, recolor, epsilon, tfidf, max_sentences, seed

        def build(size: int) -> LocalityPreservingPostProcessor:
            return LocalityPreservingPostProcessor(size, *settings)

        return attach_transform(model, build, corpus, None, batch_size, encode_options)

    def gather(
        self, sentences: Any, batch_size: int, show_progress_bar: bool, encode_options: Mapping[str, Any] | None
    ) -> NeighborDirections:
        """Return the directions of ``sentences``, of which at most ``max_sentences`` are kept in memory."""
        pipeline.check_encoding(batch_size, show_progress_bar)
        with self.encoder(encode_options) as encoder:
            texts = distinct_sample(iterate_sentences(sentences), self.max_sentences, self.seed)
            (rows,) = pipeline.stream_embeddings(encoder, texts, batch_size, show_progress_bar, at_once=True)
        vectors = character_tfidf(texts) if self.tfidf else None
        return neighbor_directions(rows, self.neighbors, self.epsilon, tfidf=vectors, seed=self.seed)

    def kernel_of(self, statistics: NeighborDirections | CorpusStatistics) -> Tensor:
        """Return W, (D, D) in float64.

        Raises:
            ValueError: for ``CorpusStatistics``, from which W does not follow.
        """
        if isinstance(statistics, CorpusStatistics):
            raise ValueError(
                "statistics must be None for LocalityPreservingPostProcessor, whose neighbours need the texts "
                f"themselves, got {statistics!r}: give sentences instead."
            )
        return statistics.kernel(self.power, self.recolor)

    def take(self, statistics: NeighborDirections) -> None:
        """Set mu, W and the agreement."""
        super().take(statistics)
        self.agreement.zero_()
        self.agreement[: len(statistics.agreement)] = statistics.agreement
        if statistics.count < _FEW:
            message = "Fitted on %d texts with different embeddings: below about %d, a good encoder can come out worse."
            logger.warning(message, statistics.count, _FEW)
