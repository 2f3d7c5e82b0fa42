"""What post-processing is fitted on: count, mean and scatter of a corpus's embeddings, which can be merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_instance, shown
from st_extras.encoders.source import Source
from st_extras.modules import pipeline
from st_extras.modules.encoding import check_options, part_of_model, prompt_text
from st_extras.modules.statistics_file import read_statistics, write_statistics


class CorpusStatistics:
    """Count, mean and scatter of the embeddings of a corpus: all that whitening and its family are fitted on.

    A corpus of any size is read once in flat memory. It can be split into shards that are encoded on different
    machines: the sum of their statistics is that of the whole corpus, to rounding.

    Equation: n; mu = sum v / n; S = sum (v - mu)(v - mu)^T. Two parts a and b are merged by Chan's update, which loses
    no digits however far mu is from 0: mu = mu_a + d n_b / n and S = S_a + S_b + d d^T n_a n_b / n, d = mu_b - mu_a.

    Args:
        embedding_dimension: D, size of the embeddings.

    Attributes:
        embedding_dimension: D.
        count: number of embeddings (n).
        mean: (D,) float64 (mu).
        scatter: (D, D) float64, about the mean (S); divided by n - 1 it is the covariance.
        source: which encoder and prompt the embeddings came from, if ``compute`` made them; None: unknown.

    Works with:
        Every SentenceTransformer. Statistics of different encoders or prompts are neither merged nor fitted on: two
        probe texts are embedded by ``compute`` and compared, up to 5 % of their length, so that other hardware or
        precision is no other encoder.

    Example:
        >>> from st_extras.modules import CorpusStatistics, WhiteningPostProcessor
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()
        >>> CorpusStatistics.compute(encoder, corpus[:300]).save("a.safetensors")  # on one machine
        >>> CorpusStatistics.compute(encoder, corpus[300:600]).save("b.safetensors")  # on another
        >>> whole = CorpusStatistics.load("a.safetensors") + CorpusStatistics.load("b.safetensors")
        >>> whole
        CorpusStatistics(count=600, embedding_dimension=384)
        >>> model = WhiteningPostProcessor.attach(encoder, dimensions=64, statistics=whole)
        >>> model.get_embedding_dimension()
        64
    """

    def __init__(self, embedding_dimension: int) -> None:
        self.embedding_dimension = pipeline.check_size(embedding_dimension)
        self.count = 0
        self.mean = torch.zeros(self.embedding_dimension, dtype=torch.float64)
        self.scatter = torch.zeros(self.embedding_dimension, self.embedding_dimension, dtype=torch.float64)
        self.source: Source | None = None

    def __repr__(self) -> str:
        return f"CorpusStatistics(count={self.count}, embedding_dimension={self.embedding_dimension})"

    def update(self, embeddings: Tensor | Any) -> CorpusStatistics:
        """Add embeddings, (N, D): a tensor, an array or a list. They are those of this object's encoder.

        Raises:
            ValueError: if they have another shape, are not real numbers, or one is not finite.
        """
        rows = embedding_rows(embeddings, self.embedding_dimension)
        if len(rows):
            mean = rows.mean(dim=0)
            centred = rows - mean
            self._merge(len(rows), mean, centred.T @ centred)
        return self

    def __add__(self, other: Any) -> CorpusStatistics:
        """Return the statistics of both corpora together.

        Raises:
            ValueError: if the other ones have another dimension, or came from another encoder or prompt.
        """
        if not isinstance(other, CorpusStatistics):
            return NotImplemented
        if other.embedding_dimension != self.embedding_dimension:
            raise ValueError(
                "statistics must have one embedding dimension to be merged, got "
                f"{self.embedding_dimension} and {other.embedding_dimension}."
            )
        if self.source is not None and other.source is not None:
            difference = self.source.difference(other.source)
            if difference is not None:
                raise ValueError(f"statistics must come from one encoder and prompt to be merged, got {difference}.")
        whole = CorpusStatistics(self.embedding_dimension)
        whole.count, whole.mean, whole.scatter = self.count, self.mean.clone(), self.scatter.clone()
        whole._merge(other.count, other.mean, other.scatter)
        known = [part.source for part in (self, other) if part.count]
        whole.source = known[0] if known and None not in known else None
        return whole

    def __radd__(self, other: Any) -> CorpusStatistics:  # sum() starts from 0
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file; ``path`` appears only when it is complete.

        Raises:
            ValueError: if the file's folder does not exist.
        """
        write_statistics(path, self.count, self.mean, self.scatter, self.source)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> CorpusStatistics:
        """Read a file of :meth:`save`.

        Raises:
            ValueError: if there is no such file, or it is damaged, of another version or another file.
        """
        count, mean, scatter, source = read_statistics(path)
        try:
            statistics = cls(len(mean))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        statistics.count, statistics.mean, statistics.scatter, statistics.source = count, mean, scatter, source
        return statistics

    @classmethod
    def compute(
        cls,
        model: SentenceTransformer,
        sentences: Iterable[str],
        *,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        encode_options: Mapping[str, Any] | None = None,
    ) -> CorpusStatistics:
        """Encode ``sentences`` and return the statistics of their embeddings, before a final ``Normalize``.

        Args:
            model: the encoder, as it is before the post-processing that is to be fitted.
            sentences: any iterable, or a data set (or stream of one) with one text column; read once, in flat memory.
            batch_size: sentences per forward pass.
            show_progress_bar: whether to show the progress of encoding.
            encode_options: further arguments of ``encode``: ``{"device": ["cuda:0", "cuda:1"]}`` encodes in one process
                a device; pool, chunk_size, prompt and prompt_name too.

        Raises:
            ValueError: if there are no sentences, an item is not a string, an embedding is not finite (the error names
                the sentence), or a setting is not allowed.
        """
        pipeline.check_encoding(batch_size, show_progress_bar)
        modules, _ = pipeline.split_before_normalize(model)
        prompt = prompt_text(model, check_options(encode_options))
        with part_of_model(model, modules, encode_options) as encoder:
            source = Source.of(encoder, prompt)
            statistics = gather(encoder, sentences, batch_size=batch_size, show_progress_bar=show_progress_bar)
        statistics.source = source
        return statistics

    def check_source(self, model: SentenceTransformer, modules: Sequence[nn.Module], prompt: str | None = None) -> None:
        """Check that these are statistics of the embeddings that leave ``modules`` of ``model``, where that is known.

        Args:
            model: the encoder that the statistics are used for.
            modules: its modules before the one that is fitted.
            prompt: text put before every sentence. None: the statistics' own, whatever it is.

        Raises:
            ValueError: if they came from another encoder or prompt; the error says how it differs.
        """
        if self.source is None:
            return
        with part_of_model(model, modules) as encoder:
            difference = self.source.difference(Source.of(encoder, self.source.prompt if prompt is None else prompt))
        if difference is None:
            return
        remedy = ""
        if prompt not in (None, self.source.prompt):
            own = self.source.prompt
            remedy = f": give encode_options={{'prompt': {own!r}}} (--prompt) here too, if encode will get that prompt"
        raise ValueError(f"statistics must come from the encoder that they are used for, got {difference}{remedy}.")

    def _merge(self, count: int, mean: Tensor, scatter: Tensor) -> None:
        """Add ``count`` embeddings by Chan's update, without the cancellation of E[vv] - E[v]E[v]."""
        if not count:
            return
        shift, total = mean - self.mean, self.count + count
        between = torch.outer(shift, shift) * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.scatter = self.scatter + scatter + between
        self.count = total


def embedding_rows(embeddings: Any, size: int) -> Tensor:
    """Return embeddings given as a tensor, an array or a list as (N, ``size``) float64 on the CPU.

    Raises:
        ValueError: if they have another shape, are not real numbers, or one is not finite.
    """
    try:
        rows = torch.as_tensor(embeddings).detach()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"embeddings must be a tensor or an array (N, D), got {shown(embeddings)}.") from None
    if rows.ndim != 2 or rows.shape[1] != size or rows.is_complex() or rows.dtype == torch.bool:
        raise ValueError(
            f"embeddings must be real numbers of the shape (N, {size}), got {rows.dtype} of the shape "
            f"{tuple(rows.shape)}."
        )
    finite = rows.isfinite().all(dim=1)
    if not finite.all():
        raise ValueError(f"embeddings must be finite, got NaN or infinity in row {int((~finite).int().argmax())}.")
    return rows.to("cpu", torch.float64)


def given_statistics(
    module: Any, modules: Sequence[nn.Module] | None, sentences: Any, statistics: Any, prompt: str | None = None
) -> CorpusStatistics:
    """Return the statistics that ``module`` is to be fitted on, checked against the ``modules`` before it (None: not).

    Raises:
        ValueError: if ``sentences`` are given as well, there are no statistics, they hold no sentences or are of
            another dimension, or they came from another encoder or ``prompt`` (None: any prompt).
    """
    if sentences is not None or statistics is None:
        both = "neither" if statistics is None else "both"
        raise ValueError(f"sentences or statistics must be given, and only one of them, got {both}.")
    given: CorpusStatistics = check_instance("statistics", statistics, CorpusStatistics)
    if given.embedding_dimension != module.embedding_dimension:
        raise ValueError(
            f"statistics must have embedding_dimension={module.embedding_dimension}, as this {type(module).__name__} "
            f"has, got {given.embedding_dimension}."
        )
    if not given.count:
        raise ValueError("statistics must hold at least one sentence, got none.")
    if modules is not None:
        given.check_source(pipeline.model_of(module), modules, prompt)
    return given


def gather(
    encoder: SentenceTransformer, sentences: Iterable[str], *, batch_size: int, show_progress_bar: bool
) -> CorpusStatistics:
    """Return the statistics of what ``encoder`` makes of ``sentences``, as :meth:`CorpusStatistics.compute` does."""
    statistics = None
    for embeddings in pipeline.stream_embeddings(
        encoder, sentences, batch_size=batch_size, show_progress_bar=show_progress_bar
    ):
        statistics = statistics or CorpusStatistics(embeddings.shape[1])
        statistics.update(embeddings)
    return check_instance("statistics", statistics, CorpusStatistics)  # type: ignore[no-any-return]
