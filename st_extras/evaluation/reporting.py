"""Shared by the evaluators: checks and encoding of sentences, names of metrics, the row of the CSV file."""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import Tensor

from st_extras.checks import check_batch_size, check_bool, check_finite_embeddings, check_rows, shown
from st_extras.text.corpus import different_texts, iterate_sentences

logger = logging.getLogger(__name__)
Rows = NDArray[np.int64]
"""Numbers of items, such as those of a sample."""


class ReportingEvaluator(BaseEvaluator):
    """An evaluator that encodes in batches, and reports to a CSV file, the model card and the log.

    A subclass has ``measure(model)``, which returns the metrics by name.

    Args:
        kind: beginning of the CSV file's name.
        primary: name of the metric to choose by.
        name: prefix of the metrics and part of the CSV file's name.
        batch_size: sentences per forward pass.
        show_progress_bar: whether to show the progress of encoding.
        write_csv: whether to append a row to ``KIND[_NAME]_results.csv`` in the output path.

    Raises:
        ValueError: if an option is not allowed, see :func:`check_options`.
    """

    def __init__(
        self,
        kind: str,
        primary: str,
        name: str = "",
        batch_size: int = 64,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        check_options(name, batch_size, show_progress_bar, write_csv)
        self.name = name
        self.primary_metric = join_name(name, primary)
        self.batch_size = int(batch_size)
        self.show_progress_bar = show_progress_bar
        self.csv_file = join_name(kind, name, "results.csv") if write_csv else None

    def encode(self, model: SentenceTransformer, sentences: Sequence[str]) -> Tensor:
        """Return the (N, D) embeddings of the sentences, on the model's device; each different one is encoded once.

        Raises:
            ValueError: if an embedding is not finite.
        """
        different, places = different_texts(sentences)
        embeddings = model.encode(
            different, batch_size=self.batch_size, show_progress_bar=self.show_progress_bar, convert_to_tensor=True
        )
        check_finite_embeddings(embeddings, different)
        return embeddings.detach()[places]

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        """Return the metrics by name, without prefix."""
        raise NotImplementedError

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Put the evaluator's name before the metrics, and pass them to the model card, the log and the CSV file.

        Args:
            model: the model to measure.
            output_path: folder of the CSV file, which gets the row ``epoch, steps, *metrics``. None writes no file.
            epoch: -1 outside of training.
            steps: -1 outside of training.

        Returns:
            The metrics by prefixed name.

        Raises:
            ValueError: if an embedding is zero or not finite.
            OSError: if the row cannot be written; the metrics are then in the log.
        """
        metrics = self.measure(model)
        prefixed: dict[str, float] = self.prefix_name_to_metrics(metrics.copy(), self.name)
        self.store_metrics_in_model_card_data(model, prefixed, int(epoch), steps)
        values = ", ".join(f"{key} {value:.4f}" for key, value in prefixed.items())
        logger.info("%s at epoch %s, step %s: %s", type(self).__name__, epoch, steps, values)
        if output_path is not None and self.csv_file is not None:  # last: what it fails to write is in the log
            _append_row(Path(output_path) / self.csv_file, {"epoch": epoch, "steps": steps, **metrics})
        return prefixed


def check_sentences(name: str, sentences: Any, at_least: int) -> list[str]:
    """Return the sentences, an iterable of strings or a data set with a text column, as a list.

    Raises:
        ValueError: if ``sentences`` is neither, holds an item that is not a string, or has fewer than ``at_least``
            items.
    """
    listed = list(iterate_sentences(sentences, name=name))
    if len(listed) < at_least:
        plural = "" if at_least == 1 else "s"
        raise ValueError(f"{name} must hold at least {at_least} sentence{plural}, got {len(listed)}.")
    return listed


def check_options(name: Any, batch_size: Any = 32, show_progress_bar: Any = False, write_csv: Any = True) -> None:
    """Check the options that all evaluators have.

    Raises:
        ValueError: if ``name`` cannot be part of a file's name, the batch size is not a whole number from 1 to 2^20, or
            one of the others is neither True nor False.
    """
    if not isinstance(name, str) or name in (".", "..") or any(sign in name for sign in "/\\\0"):
        raise ValueError(f"name must be a string without path separators, got {shown(name)}.")
    check_batch_size(batch_size)
    check_bool("show_progress_bar", show_progress_bar)
    check_bool("write_csv", write_csv)


def check_embeddings(name: str, embeddings: Any, at_least: int = 1) -> Tensor:
    """Return the rows of a tensor, an array or lists scaled to length one, in float64, on the CPU.

    Some accelerators have no float64, and in float32 rounding would order cosines that lie close together.

    Raises:
        ValueError: as for :func:`~st_extras.checks.check_rows`, or if a row is zero.
    """
    x = check_rows(name, embeddings, at_least).detach().cpu().double()
    norms = x.norm(dim=1, keepdim=True)
    if bool((norms == 0).any()):
        row = int((norms == 0).flatten().nonzero()[0])
        raise ValueError(f"{name} must have a direction in each row, got a row of length zero (row {row}).")
    unit: Tensor = x / norms
    return unit


def resampled(
    score: Callable[[Sequence[Rows]], float], sizes: Sequence[int], resamples: int = 1000, seed: int = 0
) -> list[float]:
    """Return the scores of samples that are drawn with repetition (bootstrap); the same ones for the same sizes.

    Args:
        score: takes a sample of the items of each data set, by their numbers.
        sizes: of the data sets.
        resamples: number of samples.
        seed: of the draws.
    """
    draw = np.random.default_rng(seed % 2**64)
    return [float(score([draw.integers(0, size, size) for size in sizes])) for _ in range(resamples)]


def bootstrap_interval(values: Any, resamples: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the mean of N values, over which of them were drawn (bootstrap); NaN of one value."""
    if len(values) < 2:
        return math.nan, math.nan
    means = resampled(lambda drawn: values[drawn[0]].mean(), [len(values)], resamples, seed)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def join_name(*parts: str) -> str:
    """Join the parts that are not empty with "_", for the name of a metric or of a CSV file."""
    return "_".join(filter(None, parts))


def _append_row(path: Path, row: Mapping[str, float]) -> None:
    """Append a row to a CSV file, which begins with the names of the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf8") as file:
        csv.writer(file).writerows([row, row.values()] if is_new else [row.values()])
