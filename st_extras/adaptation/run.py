"""What ``adapt`` and ``adapt_search`` share.

Their options, an output folder, a deadline, stored embeddings, the sample of the texts, and saving the model with its
report.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.adaptation.corpus import FEWEST_TEXTS, Sample, TextSummary, sample_texts
from st_extras.adaptation.report import LEFT, Adaptation, CandidateResult, Details
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
from st_extras.encoders.embedding_store import EmbeddingStore
from st_extras.encoders.fingerprint import Route
from st_extras.encoders.structure import check_known, keep_modes
from st_extras.files import write_json
from st_extras.modules import pipeline
from st_extras.training.output import OutputFolder

REPORT = "adaptation.json"
_ENCODING_SHARE = 0.6  # of the time; the rest is for computing and scoring candidates
_CHECKED_TEXTS = 2000  # of the sample, to find out whether the encoder knows any of their tokens


@dataclass(frozen=True)
class AdaptationOptions:
    """How a run goes: its time, its texts, its folder. What is not allowed is refused here, for every job.

    Args:
        minutes: how long it may take, about, above 0 and up to 10,000; encoding the sample stops after 60 % of the
            time, and the texts encoded by then are used. Too few of them are an error. Candidates are computed and
            scored in any case.
        limit: use at most this many texts, 500 to 50,000, drawn at random.
        batch_size: texts per forward pass.
        seed: random seed.
        resume: continue an interrupted run in ``NAME.unfinished`` beside the output folder: what it encoded with this
            encoder and these texts is used.
        overwrite: replace an earlier result in the output folder; without ``resume``, also discard an interrupted run
            beside it.
        show_progress_bar: show how far encoding is and how long it takes.

    Raises:
        ValueError: if a value is not allowed.

    Example:
        >>> from st_extras.adaptation import AdaptationOptions
        >>> AdaptationOptions(minutes=3).limit
        12000
    """

    minutes: float = 10.0
    limit: int = 12_000
    batch_size: int = 64
    seed: int = 42
    resume: bool = False
    overwrite: bool = False
    show_progress_bar: bool = True

    def __post_init__(self) -> None:
        checked = {
            "minutes": check_interval("minutes", self.minutes, 0, 10_000, low_included=False),
            "limit": check_count("limit", self.limit, FEWEST_TEXTS, 50_000),
            "batch_size": check_batch_size(self.batch_size),
            "seed": check_seed("seed", self.seed),
            "resume": check_bool("resume", self.resume),
            "overwrite": check_bool("overwrite", self.overwrite),
            "show_progress_bar": check_bool("show_progress_bar", self.show_progress_bar),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


class AdaptationRun:
    """An adaptation from its checks to its report: what is the same for a domain and a search.

        with AdaptationRun("adapt", model, output, options) as run:
            sample = run.sample(texts)
            embeddings = run.encode_sample(sample.texts, FEWEST_TEXTS)
            ...
            run.save(refined)
            return run.write_report(...)

    Embeddings are stored in ``NAME.unfinished`` beside the output folder, in parts of 500 texts. If the run fails or is
    interrupted when there is a part, they stay there, and a run with ``resume`` finds those of its encoder and texts.
    The end removes them.

    Args:
        job: name of the function that runs: only the same one resumes it.
        model: the encoder. It is not changed; its modules get their training or evaluation modes back at the end.
        output: a new or empty folder, or one that ``resume`` or ``overwrite`` allows to use.
        options: how it goes; None: the defaults.

    Attributes:
        options: as given, or the defaults.
        folder: the output folder; what is written beside the model goes to ``folder.model``.

    Raises:
        ValueError: if ``options`` are none, ``output`` may not be used, or ``model`` cuts its embeddings.
    """

    def __init__(
        self,
        job: str,
        model: SentenceTransformer,
        output: str | os.PathLike[str],
        options: AdaptationOptions | None = None,
    ) -> None:
        self._began = time.perf_counter()
        options = AdaptationOptions() if options is None else options
        self.options: AdaptationOptions = check_instance("options", options, AdaptationOptions)
        self._encoding_deadline = self._began + 60 * options.minutes * _ENCODING_SHARE
        self.folder = OutputFolder(output, job=job, resume=options.resume, overwrite=options.overwrite)
        self.store = EmbeddingStore(self.folder.encoded)
        check_adapters(model)
        if model.truncate_dim is not None:
            raise ValueError(
                f"model.truncate_dim must be None, as all dimensions are adapted, got {model.truncate_dim}."
            )
        self.model = model
        self._contexts = ExitStack()

    def __enter__(self) -> AdaptationRun:
        with ExitStack() as contexts:
            contexts.enter_context(keep_modes(self.model))
            contexts.enter_context(self.folder.unfinished(self.store.holds_parts))
            self._contexts = contexts.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._contexts.__exit__(kind, error, at)

    def sample(self, texts: Any, name: str = "texts") -> Sample:
        """Read the texts once and sample different ones of them.

        Raises:
            ValueError: if one is not a text, or the encoder knows no token of them.
        """
        sample = sample_texts(texts, self.options.limit, self.options.seed, name)
        check_known(self.model, sample.texts[:_CHECKED_TEXTS], name)
        return sample

    def encode(
        self, texts: list[str], *, route: Route = "", label: str = "Encoding", deadline: float = math.inf
    ) -> Tensor:
        """Return (n, D) embeddings in float64, on the CPU, of the texts that could be encoded until the deadline.

        Args:
            texts: N >= n of them.
            route: "query" or "document": by the whole model, with its route and prompt for these; "": without a final
                Normalize module, before which a transform is put.
            label: of the progress bar.
            deadline: see :meth:`EmbeddingStore.encode`.

        Raises:
            ValueError: if an embedding is not finite.
        """
        modules = list(self.model) if route else pipeline.split_before_normalize(self.model)[0]
        embeddings = self.store.encode(
            pipeline.part_of_model(self.model, modules),
            texts,
            route=route,
            batch_size=self.options.batch_size,
            show_progress_bar=self.options.show_progress_bar,
            label=label,
            deadline=deadline,
        )
        check_finite_embeddings(embeddings, texts)
        return embeddings.double()

    def encode_sample(self, texts: list[str], fewest: int, *, route: Route = "", label: str = "Encoding") -> Tensor:
        """Return (n, D) embeddings of the texts that can be encoded in 60 % of the run's time; see :meth:`encode`.

        Args:
            texts: N >= n of them.
            fewest: how many have to be encoded, if there are as many.
            route: see :meth:`encode`.
            label: of the progress bar.

        Raises:
            ValueError: if they are fewer, which keeps an earlier result; or if an embedding is not finite.
        """
        embeddings = self.encode(texts, route=route, label=label, deadline=self._encoding_deadline)
        if len(embeddings) < min(fewest, len(texts)):
            advice = "set resume=True and more minutes" if self.store.holds_parts() else "give more"
            raise ValueError(
                f"minutes must be enough to encode {fewest} texts, got {self.options.minutes:g}, in which "
                f"{len(embeddings)} of {len(texts)} were encoded: {advice}."
            )
        return embeddings

    def save(self, model: SentenceTransformer) -> None:
        """Save the chosen model, to become the output folder at the end of the run."""
        self.folder.save(model)

    def write_report(
        self,
        model: SentenceTransformer,
        chosen: str | None,
        reason: str,
        gain_measure: str,
        candidates: list[CandidateResult],
        texts: TextSummary,
        details: Details,
    ) -> Adaptation[Details]:
        """Write ``adaptation.json`` beside the saved model and return it; see :class:`Adaptation`.

        The reason of an encoder that is left unchanged begins with "Left unchanged".
        """
        reason = reason if chosen is not None else f"{LEFT}{reason}"
        seconds = time.perf_counter() - self._began
        adaptation = Adaptation(model, chosen, reason, gain_measure, candidates, texts, details, seconds)
        write_json(self.folder.model / REPORT, adaptation.as_json())
        return adaptation

    def save_unchanged(
        self,
        reason: str,
        texts: TextSummary,
        details: Details,
        gain_measure: str = "",
        candidates: list[CandidateResult] | None = None,
    ) -> Adaptation[Details]:
        """Save the given model as it is, and :meth:`write_report` with the reason why no candidate was chosen."""
        self.save(self.model)
        return self.write_report(self.model, None, reason, gain_measure, candidates or [], texts, details)
