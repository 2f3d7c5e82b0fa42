"""What ``adapt``, ``adapt_search`` and ``adapt_language_model`` share.

An output folder, a deadline, stored embeddings, the sample of the texts, and saving the model with its report.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.adaptation.corpus import FEWEST_TEXTS, Sample, TextSummary, sample_texts
from st_extras.adaptation.neighbors import PICTURE, SEARCHES, TEXT_FILE
from st_extras.adaptation.report import LEFT, Adaptation, CandidateResult, Details
from st_extras.checks import check_bool, check_count, check_interval, check_seed
from st_extras.encoders.adapters import check_adapters
from st_extras.encoders.embedding_store import EmbeddingStore, Route
from st_extras.encoders.structure import modes_kept
from st_extras.files import write_json
from st_extras.modules import pipeline
from st_extras.training.arguments import check_known
from st_extras.training.run_folder import check_output, claim, is_claimed, release, save_model, undone_if_it_fails

REPORT = "adaptation.json"
REPORTS = (REPORT, TEXT_FILE, PICTURE, SEARCHES)
"""What is written beside the model."""
WORK = "adapting"
"""Folder in the output folder for what an interrupted run leaves: stored embeddings and an unfinished training."""
_TRAINING = "training"
_ENCODING_SHARE = 0.6  # of the time; the rest is for computing and scoring candidates
_CHECKED_TEXTS = 2000  # of the sample, to find out whether the encoder knows any of their tokens
_RESUMABLE = (OSError, MemoryError, torch.OutOfMemoryError)
"""Failures of the machine, after which a run can be resumed as after an interruption."""


def check_adaptation_output(output: str | os.PathLike[str], *, resume: bool, overwrite: bool) -> None:
    """Check that an adaptation may write to ``output``. Nothing is created or deleted.

    Raises:
        ValueError: if it may not be used, such as with files that no earlier run wrote, or there is nothing to resume.
    """
    check_bool("resume", resume)
    check_bool("overwrite", overwrite)
    if resume and not is_claimed(Path(output), WORK):
        raise ValueError(f"resume needs an interrupted adaptation in {str(output)!r}, got none: run it without.")
    check_output(output, resume=resume, overwrite=overwrite, unfinished=WORK, reports=REPORTS)


class AdaptationRun:
    """An adaptation from its checks to its report: what is the same for a domain, a search and a language model.

        with AdaptationRun(model, output, ...) as run:
            sample = run.sample(texts)
            embeddings = run.encode(model, sample.texts, deadline=run.encoding_deadline)
            ...
            run.save(refined)
            return run.report(...)

    Embeddings are stored in the folder ``adapting`` of the output folder. They stay there if the run is interrupted,
    or fails for want of disk space or memory; a run with ``resume`` then finds those of its encoder and texts. Any
    other error removes them, and so does :meth:`report`.

    Args:
        model: the encoder. It is not changed; its modules get their training or evaluation modes back at the end.
        output: a new or empty folder, or one that ``resume`` or ``overwrite`` allows to use.
        minutes: how long all may take, about.
        limit: most texts to sample.
        batch_size: texts per forward pass.
        seed: of all that is drawn.
        resume: use what an interrupted run stored.
        overwrite: replace what an earlier run wrote, and remove what an interrupted one stored.
        show_progress_bar: show the progress of encoding.

    Attributes:
        work: folder for what an interruption leaves.
        encoding_deadline: when encoding the sample has to stop, after 60 % of the time, as a time of
            ``time.perf_counter``. What candidates are scored on is encoded without a deadline.
        deadline: when all has to be done, likewise.

    Raises:
        ValueError: if a setting is not allowed, ``output`` may not be used, or ``model`` cuts its embeddings.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        output: str | os.PathLike[str],
        *,
        minutes: float,
        limit: int,
        batch_size: int,
        seed: int,
        resume: bool,
        overwrite: bool,
        show_progress_bar: bool,
    ) -> None:
        self._began = time.perf_counter()
        check_interval("minutes", minutes, 0, 10_000, low_included=False)
        self.encoding_deadline = self._began + 60 * minutes * _ENCODING_SHARE
        self.deadline = self._began + 60 * minutes
        self._limit = check_count("limit", limit, FEWEST_TEXTS, 50_000)
        self.seed = check_seed("seed", seed)
        pipeline.check_encoding(batch_size, show_progress_bar)
        self.batch_size, self.show_progress_bar = int(batch_size), show_progress_bar
        check_adaptation_output(output, resume=resume, overwrite=overwrite)
        self.output, self._resume = Path(output), resume
        self.work = self.output / WORK
        self.store = EmbeddingStore(self.work)
        check_adapters(model)
        if model.truncate_dim is not None:
            raise ValueError(
                f"model.truncate_dim must be None, as all dimensions are adapted, got {model.truncate_dim}."
            )
        self.model = model
        self._contexts = ExitStack()

    def __enter__(self) -> AdaptationRun:
        with ExitStack() as contexts:
            contexts.enter_context(modes_kept(self.model))
            contexts.enter_context(undone_if_it_fails(self.output))
            if not self._resume:
                self._remove_work()
            claim(self.output, WORK)
            self._contexts = contexts.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, _RESUMABLE):
            self._remove_work()  # first: after an error, the contexts remove the output folder if it is empty
        self._contexts.__exit__(kind, error, at)

    def _remove_work(self) -> None:
        """Remove the stored embeddings and an unfinished training; files of others stay."""
        shutil.rmtree(self.work / _TRAINING, ignore_errors=True)
        self.store.remove()
        release(self.output, WORK)

    @property
    def training_folder(self) -> Path:
        """Where a short training saves its copy of the encoder."""
        return self.work / _TRAINING

    def sample(self, texts: Any, name: str = "texts") -> Sample:
        """Read the texts once and sample different ones of them.

        Raises:
            ValueError: if one is not a text, or the encoder knows no token of them.
        """
        sample = sample_texts(texts, self._limit, self.seed, name)
        check_known(self.model, sample.texts[:_CHECKED_TEXTS], name)
        return sample

    def encode(
        self,
        model: SentenceTransformer,
        texts: list[str],
        *,
        route: Route = "",
        label: str = "Encoding",
        deadline: float = math.inf,
    ) -> Tensor:
        """Return (n, D) embeddings in float64, on the CPU, of the texts that could be encoded until the deadline.

        Args:
            model: the given encoder, or another one made from it.
            texts: N >= n of them.
            route: "query" or "document": by the whole model, with its route and prompt for these; "": without a final
                Normalize module, before which a transform is put.
            label: of the progress bar.
            deadline: see :meth:`EmbeddingStore.encode`.

        Raises:
            ValueError: if an embedding is not finite.
        """
        modules = list(model) if route else pipeline.split_before_normalize(model)[0]
        with pipeline.part_of_model(model, modules) as encoder:
            embeddings = self.store.encode(
                encoder,
                texts,
                route=route,
                batch_size=self.batch_size,
                show_progress_bar=self.show_progress_bar,
                label=label,
                deadline=deadline,
            )
        pipeline.check_finite_embeddings(embeddings, texts)
        return embeddings.double()

    def save(self, model: SentenceTransformer) -> None:
        """Save the chosen model to the output folder, in the place of an earlier one."""
        save_model(model, self.output, reports=REPORTS)

    def report(
        self,
        model: SentenceTransformer,
        chosen: str | None,
        reason: str,
        gain_measure: str,
        candidates: list[CandidateResult],
        texts: TextSummary,
        details: Details,
    ) -> Adaptation:
        """Write ``adaptation.json``, remove the stored embeddings, and return the result; see :class:`Adaptation`."""
        reason = reason if chosen is not None else f"{LEFT}{reason}"
        seconds = time.perf_counter() - self._began
        adaptation = Adaptation(model, chosen, reason, gain_measure, candidates, texts, details, seconds)
        write_json(self.output / REPORT, adaptation.written())
        self._remove_work()
        return adaptation

    def save_unchanged(
        self,
        reason: str,
        texts: TextSummary,
        details: Details,
        gain_measure: str = "",
        candidates: list[CandidateResult] | None = None,
    ) -> Adaptation:
        """Save the given model as it is, and return :meth:`report` with the reason why no candidate was chosen."""
        self.save(self.model)
        return self.report(self.model, None, reason, gain_measure, candidates or [], texts, details)
