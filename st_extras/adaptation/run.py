"""What ``adapt`` and ``adapt_search`` share: options, the sample of the texts, encoding, the saved result."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from st_extras.adaptation.report import Adaptation, CandidateResult, Details, TextSummary
from st_extras.checks import (
    check_batch_size,
    check_bool,
    check_count,
    check_finite_embeddings,
    check_instance,
    check_interval,
    check_seed,
)
from st_extras.encoders.adapters import check_adapters
from st_extras.encoders.prompts import Role, encode_as
from st_extras.encoders.structure import check_known, embedding_dimension, keep_modes, warn_if_poorly_read
from st_extras.evaluation.label_free import FEWEST_COMPARED
from st_extras.files import replace_folder, write_json
from st_extras.modules import pipeline
from st_extras.text.corpus import different_texts, sampled_texts
from st_extras.text.words import SPACED_WORD

FEWEST_TEXTS = 2 * FEWEST_COMPARED
"""An encoder is left unchanged with fewer different texts: they are compared in two parts."""
REPORT = "adaptation.json"
PART = 500
"""Texts that are encoded at a time: the clock is read between two parts."""
_ENCODING_SHARE = 0.6  # of the time; the rest is for computing and scoring candidates
_CHECKED_TEXTS = 2000  # of the sample, to find out whether the encoder knows any of their tokens


@dataclass(frozen=True)
class AdaptationOptions:
    """How a run goes: its time, its texts, its folder. What is not allowed is refused here, for every job.

    Args:
        minutes: how long it may take, about, above 0 and up to 10,000; encoding the sample stops after 60 % of the
            time, and the texts encoded by then are used, which the result says first. Too few of them leave the encoder
            unchanged; from enough, candidates are computed and scored in any case. None: as long as it takes.
        limit: use at most this many texts, 200 to 50,000, drawn at random.
        batch_size: texts per forward pass.
        seed: random seed.
        overwrite: replace an earlier result in the output folder.
        show_progress_bar: show how far encoding is and how long it takes.

    Raises:
        ValueError: if a value is not allowed.

    Example:
        >>> from st_extras.adaptation import AdaptationOptions
        >>> AdaptationOptions(minutes=3).limit
        12000
    """

    minutes: float | None = None
    limit: int = 12_000
    batch_size: int = 64
    seed: int = 42
    overwrite: bool = False
    show_progress_bar: bool = True

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "limit": check_count("limit", self.limit, FEWEST_TEXTS, 50_000),
            "batch_size": check_batch_size(self.batch_size),
            "seed": check_seed("seed", self.seed),
            "overwrite": check_bool("overwrite", self.overwrite),
            "show_progress_bar": check_bool("show_progress_bar", self.show_progress_bar),
        }
        if self.minutes is not None:
            checked["minutes"] = check_interval("minutes", self.minutes, 0, 10_000, low_included=False)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Sample:
    """Different texts of a corpus.

    Attributes:
        texts: in random order.
        read: number of texts that were read, without blank ones.
        poorly_read: why the encoder hardly reads them; None: it does, or that was not looked at.
    """

    texts: list[str] = field(repr=False)
    read: int
    poorly_read: str | None = None

    def summary(self, encoded: int, used: Sequence[str], near_duplicates: float | None = None) -> TextSummary:
        """Return the sample in numbers: how many of its texts were encoded, and which ones are used."""
        words = sum(len(SPACED_WORD.findall(text)) for text in used) / max(1, len(used))
        return TextSummary(
            self.read, len(self.texts), encoded, len(used), round(words, 1), near_duplicates=near_duplicates
        )


def sample_texts(texts: Any, limit: int, seed: int, name: str = "texts") -> Sample:
    """Return what :func:`~st_extras.text.corpus.sampled_texts` samples."""
    return Sample(*sampled_texts(texts, limit, seed, name))


def with_embedding(texts: Sequence[str], embeddings: Tensor) -> tuple[list[str], Tensor]:
    """Return those of the first n texts whose embedding (n, D) is not 0, as a table of words gives to unknown ones."""
    rows = (embeddings != 0).any(dim=1).nonzero().flatten()
    return [texts[row] for row in rows.tolist()], embeddings[rows]


@contextmanager
def start_run(
    model: SentenceTransformer, output: str | os.PathLike[str], options: AdaptationOptions | None = None
) -> Iterator[AdaptationRun]:
    """Yield an :class:`AdaptationRun`; what it saves becomes the output folder if nothing is raised.

    Args:
        model: the encoder. It is not changed; its modules get their training or evaluation modes back at the end.
        output: a new or empty folder, or one that ``overwrite`` allows to use.
        options: how it goes; None: the defaults.

    Raises:
        ValueError: if ``options`` are none, ``output`` may not be used, or ``model`` has no Pooling or cuts its
            embeddings.
    """
    began = time.perf_counter()
    options = AdaptationOptions() if options is None else check_instance("options", options, AdaptationOptions)
    check_adapters(model)
    embedding_dimension(model)  # raises for an encoder without Pooling, which transforms cannot follow
    if model.truncate_dim is not None:
        raise ValueError(f"model.truncate_dim must be None, as all dimensions are adapted, got {model.truncate_dim}.")
    with replace_folder(output, overwrite=options.overwrite) as folder, keep_modes(model):
        yield AdaptationRun(model, options, folder, began)


@dataclass(frozen=True)
class AdaptationRun:
    """An adaptation from its sample to its report: what is the same for a domain and a search.

        with start_run(model, output, options) as run:
            sample = run.sample(texts)
            embeddings = run.encode_sample(sample.texts, "Encoding")
            ...
            return run.finish(...)

    Attributes:
        model: the encoder.
        options: as given, or the defaults.
        folder: where the result is written; it becomes the output folder at the end.
        began: when, by ``time.perf_counter``.
    """

    model: SentenceTransformer
    options: AdaptationOptions
    folder: Path
    began: float

    def sample(self, texts: Any, name: str = "texts") -> Sample:
        """Read the texts once and sample different ones of them.

        Raises:
            ValueError: if one is not a text, or the encoder knows no token of them.
        """
        sample = sample_texts(texts, self.options.limit, self.options.seed, name)
        check_known(self.model, sample.texts[:_CHECKED_TEXTS], name)
        return replace(sample, poorly_read=warn_if_poorly_read(self.model, sample.texts))

    def encode(
        self, texts: Sequence[str], label: str, *, role: Role | None = None, deadline: float = math.inf
    ) -> Tensor:
        """Return (n, D) embeddings in float64, on the model's device, of the first n of N texts.

        Args:
            texts: N >= n of them.
            label: of the progress bar: what is encoded.
            role: how: by the whole model, with its route and prompt for queries or documents. None: without a final
                Normalize module, before which a transform is put.
            deadline: no part of 500 texts is begun after this time of ``time.perf_counter``: then n < N.

        Raises:
            ValueError: if an embedding is not finite.
        """
        modules = list(self.model) if role else pipeline.split_before_normalize(self.model)[0]
        part = pipeline.part_of_model(self.model, modules)
        encode = partial(encode_as, part, role) if role else part.encode
        # MPS has no float64
        device = torch.device("cpu") if self.model.device.type == "mps" else self.model.device
        encoded = [torch.zeros(0, 0, dtype=torch.float64, device=device)]
        hidden = not self.options.show_progress_bar
        different, places = different_texts(texts)
        with tqdm(total=len(different), unit=" texts", desc=label, disable=hidden) as bar:
            for first in range(0, len(different), PART):
                if time.perf_counter() > deadline:
                    break
                chunk = different[first : first + PART]
                embeddings = encode(
                    chunk, batch_size=self.options.batch_size, convert_to_tensor=True, show_progress_bar=False
                )
                check_finite_embeddings(embeddings, chunk)
                encoded.append(embeddings.to(device).double())
                bar.update(len(chunk))
        embeddings = torch.cat(encoded[1:] or encoded)
        if len(different) == len(texts):
            return embeddings
        return embeddings[list(takewhile(lambda place: place < len(embeddings), places))]

    def encode_sample(self, texts: Sequence[str], label: str, *, role: Role | None = None) -> Tensor:
        """Return (n, D) embeddings of the first n of N texts: what is encoded in 60 % of the run's time, perhaps none.

        Arguments and errors are those of :meth:`encode`.
        """
        minutes = self.options.minutes
        deadline = math.inf if minutes is None else self.began + 60 * minutes * _ENCODING_SHARE
        return self.encode(texts, label, role=role, deadline=deadline)

    def finish(
        self,
        refined: SentenceTransformer,
        chosen: str | None,
        reason: str,
        gain_measure: str,
        candidates: list[CandidateResult],
        texts: TextSummary,
        details: Details,
    ) -> Adaptation[Details]:
        """Save the model with ``adaptation.json``, and return the result; for the arguments see :class:`Adaptation`.

        The reason of an encoder that is left unchanged begins with "Left unchanged".
        """
        refined.save(str(self.folder))
        reason = reason if chosen is not None else f"Left unchanged: {reason}"
        seconds = time.perf_counter() - self.began
        adaptation = Adaptation(refined, chosen, reason, gain_measure, candidates, texts, details, seconds)
        write_json(self.folder / REPORT, adaptation.as_json())
        return adaptation
