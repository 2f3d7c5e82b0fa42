"""What post-processing is fitted on: count, mean and scatter of a corpus's embeddings, which can be merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_rows
from st_extras.encoders.fingerprint import PROBES, EncoderFingerprint
from st_extras.files import Expected, read_tensors, write_tensors
from st_extras.modules import pipeline

_METADATA = {"format": "st-extras corpus statistics"}
_TENSORS = {
    "count": Expected((), torch.int64),
    "mean": Expected(("D",), torch.float64),
    "scatter": Expected(("D", "D"), torch.float64),
    "probes": Expected((len(PROBES), "D"), torch.float32),
}

MIN_RELATIVE_VARIANCE = 1e-10
"""Directions with less variance, relative to the largest, are rounding noise."""


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
        fingerprint: the encoder and prompt of the embeddings, if ``compute`` made them; None: unknown.

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
        self.fingerprint: EncoderFingerprint | None = None

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
                f"sentences must have at least two different embeddings to fit on, got {self.count} sentences without."
            )
        variances, directions = torch.linalg.eigh(self.scatter / (self.count - 1))
        return variances.flip(0), directions.flip(1)

    def update(self, embeddings: Tensor | Any) -> CorpusStatistics:
        """Add embeddings by the same encoder, (N, D): a tensor, an array or a list.

        Raises:
            ValueError: as for :func:`~st_extras.checks.check_rows`.
        """
        rows = check_rows("embeddings", embeddings, 0, self.embedding_dimension).detach().to("cpu", torch.float64)
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
        if self.fingerprint is not None and other.fingerprint is not None:
            difference = self.fingerprint.difference(other.fingerprint)
            if difference is not None:
                raise ValueError(f"statistics must come from one encoder and prompt to be merged, got {difference}.")
        whole = CorpusStatistics(self.embedding_dimension)
        whole.count, whole.mean, whole.scatter = self.count, self.mean.clone(), self.scatter.clone()
        whole._merge(other.count, other.mean, other.scatter)
        known = [part.fingerprint for part in (self, other) if part.count]
        whole.fingerprint = known[0] if known and None not in known else None
        return whole

    def __radd__(self, other: Any) -> CorpusStatistics:  # sum() starts from 0
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file; ``path`` appears only when it is complete.

        Raises:
            OSError: if the file cannot be written.
        """
        tensors, metadata = {"count": torch.tensor(self.count), "mean": self.mean, "scatter": self.scatter}, _METADATA
        if self.fingerprint is not None:
            tensors["probes"] = self.fingerprint.probes
            metadata = metadata | {"prompt": self.fingerprint.prompt, "max_seq_length": self.fingerprint.max_seq_length}
        write_tensors(path, tensors, metadata)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> CorpusStatistics:
        """Read a file of :meth:`save`.

        Raises:
            ValueError: if there is no such file, or it is damaged or another one.
        """
        must = {"what": "a file of CorpusStatistics.save", "remedy": "compute it again"}
        tensors, metadata = read_tensors(path, _TENSORS, **must, metadata=_METADATA, optional=("probes",))
        statistics = cls(len(tensors["mean"]))
        statistics.count, statistics.mean = int(tensors["count"]), tensors["mean"]
        statistics.scatter = tensors["scatter"]
        if "probes" in tensors:
            statistics.fingerprint = EncoderFingerprint(
                metadata["prompt"], metadata["max_seq_length"], tensors["probes"]
            )
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
        modules, _ = pipeline.split_before_normalize(model)
        prompt = pipeline.prompt_text(model, encode_options)
        with pipeline.part_of_model(model, modules, encode_options) as encoder:
            fingerprint = EncoderFingerprint.of(encoder, prompt)
            statistics = cls.gather(encoder, sentences, batch_size, show_progress_bar)
        statistics.fingerprint = fingerprint
        return statistics

    @classmethod
    def gather(
        cls, encoder: SentenceTransformer, sentences: Any, batch_size: int, show_progress_bar: bool
    ) -> CorpusStatistics:
        """Return the statistics of the embeddings of ``sentences``, as :meth:`compute` does, without fingerprint."""
        chunks = pipeline.stream_embeddings(encoder, sentences, batch_size, show_progress_bar)
        first = next(chunks)
        statistics = cls(first.shape[1]).update(first)
        for embeddings in chunks:
            statistics.update(embeddings)
        return statistics

    def check_fingerprint(self, encoder: SentenceTransformer, prompt: str) -> None:
        """Check that these are statistics of embeddings by ``encoder`` with ``prompt``, where that is known.

        Raises:
            ValueError: if they came from another encoder or prompt; the message names the difference.
        """
        if self.fingerprint is None:
            return
        difference = self.fingerprint.difference(EncoderFingerprint.of(encoder, prompt))
        if difference is None:
            return
        own, remedy = self.fingerprint.prompt, ""
        if prompt != own:
            remedy = f": give prompt={own!r} here too (in Python by encode_options), if encode will get that prompt"
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
