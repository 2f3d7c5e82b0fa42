"""Modules after the pooling: attached before a final ``Normalize``, fitted on a corpus, saved with their model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from torch import Tensor, nn

from st_extras.checks import check_count, check_instance
from st_extras.encoders.structure import embedding_dimension
from st_extras.modules import pipeline, saving
from st_extras.modules.corpus_statistics import CorpusStatistics
from st_extras.modules.model_card import renew_card
from st_extras.modules.partial_mask import plain_modules

_Processor = TypeVar("_Processor", bound="PostProcessor")


class PostProcessor(Module):
    """A module that is fitted on the embeddings that reach it. Abstract: a subclass sets its tensors from statistics.

    Args:
        embedding_dimension: D, size of the embeddings that come in.
        corpus_size: number of sentences that it was fitted on; 0 if not fitted.

    Attributes:
        corpus_mean: (D,), the mean embedding of those sentences.
    """

    corpus_mean: Tensor

    def __init__(self, embedding_dimension: int, corpus_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_dimension = pipeline.check_size(embedding_dimension)
        self.corpus_size = check_count("corpus_size", corpus_size)
        self.register_buffer("corpus_mean", torch.zeros(self.embedding_dimension))

    @abstractmethod
    def take(self, statistics: Any) -> None:
        """Set the module's tensors from ``CorpusStatistics``, or from what :meth:`gather` returns.

        Raises:
            ValueError: if they do not determine the tensors, none of which is then changed.
        """

    def gather(
        self, sentences: Any, batch_size: int, show_progress_bar: bool, encode_options: Mapping[str, Any] | None
    ) -> Any:
        """Return what :meth:`take` needs of sentences; it has a ``count``."""
        with self.encoder(encode_options) as encoder:
            return CorpusStatistics.gather(encoder, sentences, batch_size, show_progress_bar)

    def encoder(self, encode_options: Mapping[str, Any] | None = None) -> Any:
        """Return the context of the part of the model before this module, without masked copies."""
        modules = plain_modules(pipeline.modules_before(self))
        return pipeline.part_of_model(pipeline.model_of(self), modules, encode_options)

    def fit(
        self: _Processor,
        sentences: Iterable[str] | None = None,
        *,
        statistics: CorpusStatistics | None = None,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        encode_options: Mapping[str, Any] | None = None,
    ) -> _Processor:
        """Fit this module on ``sentences``, or on statistics of them that were computed before.

        Args:
            sentences: any iterable or data set with one text column, of any size, read once in flat memory.
            statistics: of the embeddings that reach this module; in place of ``sentences``.
            batch_size: sentences per forward pass.
            show_progress_bar: whether to show the progress of encoding.
            encode_options: further arguments of ``encode``, as for :meth:`CorpusStatistics.compute`. Statistics have
                to be those of its prompt.

        Raises:
            ValueError: if both or neither are given, the statistics came from another encoder or prompt, there are too
                few different sentences, or an embedding is not finite (the error names the sentence).
        """
        pipeline.check_one_given(sentences, statistics)
        if statistics is not None:
            self._check_statistics(statistics, encode_options)
        found = statistics or self.gather(sentences, batch_size, show_progress_bar, encode_options)
        self.take(found)
        self.finish(found.count)
        return self

    def finish(self, corpus_size: int) -> None:
        """Record the number of sentences that this module was fitted on, and renew a loaded model's card."""
        self.corpus_size = corpus_size
        if "_model" in self.__dict__:
            renew_card(pipeline.model_of(self))

    def _check_statistics(self, statistics: Any, encode_options: Mapping[str, Any] | None) -> None:
        """Check that given statistics are of the embeddings that reach this module.

        Raises:
            ValueError: if they hold no sentences or are of another dimension, encoder or prompt. A module outside a
                model does not know its encoder.
        """
        check_instance("statistics", statistics, CorpusStatistics)
        if statistics.embedding_dimension != self.embedding_dimension:
            raise ValueError(
                f"statistics must have embedding_dimension={self.embedding_dimension}, as this {type(self).__name__} "
                f"has, got {statistics.embedding_dimension}."
            )
        if not statistics.count:
            raise ValueError("statistics must hold at least one sentence, got none.")
        if "_model" in self.__dict__:
            with self.encoder() as encoder:
                statistics.check_fingerprint(encoder, pipeline.prompt_text(pipeline.model_of(self), encode_options))

    def get_embedding_dimension(self) -> int:
        """Return the size of the embeddings that go out."""
        return self.embedding_dimension

    on_model_ready = pipeline.remember_model  # the model that fit encodes with
    save = saving.save_module

    @classmethod
    def load(cls: type[_Processor], *args: Any, **kwargs: Any) -> _Processor:
        """Load from a folder or the Hub."""
        return saving.load_module(cls, *args, **kwargs)


class LinearPostProcessor(PostProcessor):
    """A fitted linear transform of pooled embeddings. Abstract: a subclass computes W from statistics.

    Args:
        embedding_dimension: D, size of the embeddings that come in.
        size_out: size of the embeddings that go out (k).
        corpus_size: number of sentences that mu and W were computed from; 0 if not fitted.
    """

    kernel: Tensor

    def __init__(self, embedding_dimension: int, size_out: int, corpus_size: int) -> None:
        super().__init__(embedding_dimension, corpus_size)
        self.register_buffer("kernel", torch.zeros(embedding_dimension, size_out))

    @abstractmethod
    def kernel_of(self, statistics: Any) -> Tensor:
        """Return W, (D, k) in float64.

        Raises:
            ValueError: if the statistics do not determine it.
        """

    def take(self, statistics: Any) -> None:
        """Set mu and W."""
        self.kernel.copy_(self.kernel_of(statistics))
        self.corpus_mean.copy_(statistics.mean)

    def to_dense(self) -> Module:
        """Export the fitted transform as a stock ``Dense`` module, which loads without this package."""
        pipeline.check_fitted(self, "to_dense")
        kernel = self.kernel.float().cpu()
        return pipeline.as_dense(kernel.T, -self.corpus_mean.float().cpu() @ kernel)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Transform ``sentence_embedding``: (B, D) -> (B, k)."""
        pipeline.check_fitted(self, "encoding")
        embedding = features["sentence_embedding"]  # (B, D)
        features["sentence_embedding"] = (embedding - self.corpus_mean.to(embedding)) @ self.kernel.to(embedding)
        return features

    def get_embedding_dimension(self) -> int:
        """Return k, the size of the embeddings that go out."""
        return int(self.kernel.shape[1])


def attach_transform(
    model: SentenceTransformer,
    build: Callable[[int], PostProcessor],
    corpus: Iterable[str] | None,
    statistics: CorpusStatistics | None,
    batch_size: int,
    encode_options: Mapping[str, Any] | None,
    *,
    above: tuple[type[PostProcessor], ...] = (),
    change: Callable[[list[nn.Module]], list[nn.Module]] = list,
) -> SentenceTransformer:
    """Return a new model: ``model`` with a module before a final ``Normalize``, fitted if there is a corpus.

    Args:
        model: it is not changed; weights are shared.
        build: makes the module for embeddings of size D.
        corpus: sentences to fit on, or None.
        statistics: of sentences, or None.
        batch_size: sentences per forward pass over ``corpus``.
        encode_options: further arguments of ``encode``.
        above: kinds of modules that the model may have already.
        change: replaces the modules before it.

    Raises:
        ValueError: if a setting is not allowed, or the model has another such module already.
    """
    pipeline.check_encode_options(encode_options)
    modules, normalize = pipeline.split_before_normalize(model)
    for module in modules:
        if isinstance(module, PostProcessor) and not isinstance(module, above):
            raise ValueError(
                f"model must not have {type(module).__name__} attached already: attach one linear transform "
                "(whitening, all-but-the-top, locality preservation) to the plain model, then RepAL, which "
                "RepALPostProcessor.detach removes."
            )
    module = build(embedding_dimension(model))
    attached = pipeline.rebuild_model(model, [*change(modules), module, *normalize])
    if corpus is not None or statistics is not None:
        module.fit(corpus, statistics=statistics, batch_size=batch_size, encode_options=encode_options)
    return attached
