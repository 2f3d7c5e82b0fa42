"""What the linear members of the post-processing family share: v' = (v - mu) W, with mu and W from statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_extras.checks import check_count
from st_extras.modules import pipeline, saving
from st_extras.modules.encoding import check_options, part_of_model, prompt_text
from st_extras.modules.masked_pipeline import plain_modules
from st_extras.modules.model_card import renew_card
from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.statistics import CorpusStatistics, gather, given_statistics

MIN_RELATIVE_VARIANCE = 1e-10
"""Directions with less variance, relative to the largest, are rounding noise."""
_Step = TypeVar("_Step", bound="LinearPostProcessor")


class LinearPostProcessor(Module):
    """A fitted linear step on pooled embeddings. Abstract: a member says how W follows from statistics.

    Args:
        embedding_dimension: D, size of the embeddings that come in.
        size_out: size of the embeddings that go out (k).
        corpus_size: number of sentences that mu and W were computed from; 0 if not fitted.
    """

    corpus_mean: Tensor
    kernel: Tensor

    def __init__(self, embedding_dimension: int, size_out: int, corpus_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_dimension = embedding_dimension
        self.corpus_size = check_count("corpus_size", corpus_size)
        self.register_buffer("corpus_mean", torch.zeros(embedding_dimension))
        self.register_buffer("kernel", torch.zeros(embedding_dimension, size_out))

    def kernel_of(self, statistics: CorpusStatistics) -> Tensor:
        """Return W, (D, k) in float64.

        Raises:
            ValueError: if the statistics do not determine it.
        """
        raise NotImplementedError

    def fit(
        self: _Step,
        sentences: Iterable[str] | None = None,
        *,
        statistics: CorpusStatistics | None = None,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        encode_options: Mapping[str, Any] | None = None,
    ) -> _Step:
        """Compute mu and W from ``sentences``, or from statistics of them that were computed before.

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
        statistics = statistics_for(
            self, sentences, statistics, batch_size=batch_size, show_progress_bar=show_progress_bar,
            encode_options=encode_options,
        )  # fmt: skip
        self.set_step(statistics.mean, self.kernel_of(statistics), statistics.count)
        return self

    def set_step(self, mean: Tensor, kernel: Tensor, count: int) -> None:
        """Take over mu (D,) and W (D, k), which were computed from ``count`` sentences."""
        self.corpus_mean.copy_(mean)
        self.kernel.copy_(kernel)
        self.corpus_size = count
        if "_model" in self.__dict__:
            renew_card(pipeline.model_of(self))

    def to_dense(self) -> Module:
        """Export the fitted step as a stock ``Dense`` module, which loads without this package."""
        pipeline.check_fitted(self, "to_dense")
        kernel = self.kernel.float().cpu()
        return pipeline.as_dense(kernel.T, -self.corpus_mean.float().cpu() @ kernel)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Transform ``sentence_embedding``: (B, D) -> (B, k)."""
        pipeline.check_fitted(self, "encoding")
        embedding = features["sentence_embedding"]  # (B, D)
        pipeline.check_dimension(self, embedding, self.embedding_dimension)
        features["sentence_embedding"] = (embedding - self.corpus_mean.to(embedding)) @ self.kernel.to(embedding)
        return features

    @property
    def card_settings(self) -> dict[str, Any]:
        """What the model card says of this module."""
        return self.get_config_dict()

    def check_statistics(self) -> None:
        """Check that W fits ``corpus_size``, after loading.

        Raises:
            ValueError: if it is all zero although the module is fitted.
        """
        if self.corpus_size and not self.kernel.any():
            raise ValueError("kernel must not be all zero, got zeros only: fit the module again.")

    def get_embedding_dimension(self) -> int:
        """Return k, the size of the embeddings that go out."""
        return int(self.kernel.shape[1])

    on_model_ready = pipeline.remember_model  # the model that fit encodes with
    save = saving.save_module

    @classmethod
    def load(cls: type[_Step], *args: Any, **kwargs: Any) -> _Step:
        """Load from a folder or the Hub."""
        return saving.load_module(cls, *args, **kwargs)


def attach(
    model: SentenceTransformer,
    build: Any,
    *,
    corpus: Iterable[str] | None,
    statistics: CorpusStatistics | None,
    batch_size: int,
    encode_options: Mapping[str, Any] | None,
) -> SentenceTransformer:
    """Return a new model: ``model`` with ``build(D)`` before a final ``Normalize``, fitted if there is a corpus.

    Raises:
        ValueError: if a setting is not allowed, or the model has post-processing that must come later.
    """
    pipeline.check_encoding(batch_size)
    check_options(encode_options)
    modules, normalize = pipeline.split_before_normalize(model)
    if any(isinstance(module, (LinearPostProcessor, RepALPostProcessor)) for module in modules):
        raise ValueError(
            "model must not have whitening, all-but-the-top, locality preservation or RepAL attached already: attach "
            "one of the first three to the plain model, then RepAL."
        )
    processor: LinearPostProcessor = build(pipeline.embedding_dimension(modules))
    attached = pipeline.rebuild_model(model, [*modules, processor, *normalize])
    if corpus is not None or statistics is not None:
        processor.fit(corpus, statistics=statistics, batch_size=batch_size, encode_options=encode_options)
    return attached


def statistics_for(
    module: Module,
    sentences: Iterable[str] | None,
    statistics: CorpusStatistics | None,
    *,
    batch_size: int,
    show_progress_bar: bool,
    encode_options: Mapping[str, Any] | None,
) -> CorpusStatistics:
    """Return the statistics to fit ``module`` on: those given, checked, or those of ``sentences``.

    Raises:
        ValueError: if both or neither are given, or the given ones belong to another encoder or prompt.
    """
    pipeline.check_encoding(batch_size, show_progress_bar)
    if statistics is None and sentences is not None:
        modules = plain_modules(pipeline.modules_before(module))
        with part_of_model(pipeline.model_of(module), modules, encode_options) as encoder:
            return gather(encoder, sentences, batch_size=batch_size, show_progress_bar=show_progress_bar)
    if "_model" not in module.__dict__:  # a module outside a model cannot know its encoder
        return given_statistics(module, None, sentences, statistics)
    prompt = prompt_text(pipeline.model_of(module), check_options(encode_options))
    return given_statistics(module, plain_modules(pipeline.modules_before(module)), sentences, statistics, prompt)


def principal_directions(statistics: CorpusStatistics) -> tuple[Tensor, Tensor]:
    """Return the variances (D,) of the embeddings along their principal directions, the columns of (D, D).

    The largest come first, in float64.

    Raises:
        ValueError: if there are no two different embeddings.
    """
    count = statistics.count
    variances, directions = torch.linalg.eigh(statistics.scatter / max(1, count - 1))
    variances, directions = variances.flip(0), directions.flip(1)
    rounding = pipeline.ROUNDING**2 * statistics.mean.square().max()  # equal sentences, batched differently
    if count < 2 or variances[0] <= rounding:
        raise ValueError(
            f"sentences must have at least two different embeddings to fit on, got {count} sentences without."
        )
    return variances, directions
