"""What the evaluators of this package share: checking and encoding sentences, names of metrics, the CSV row."""

from __future__ import annotations

import csv
import itertools
import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.functional import full_precision

logger = logging.getLogger(__name__)


def check_sentences(name: str, sentences: Sequence[str], at_least: int) -> list[str]:
    """Return the sentences as a list.

    Raises:
        ValueError: if ``sentences`` is a single string, holds an item that is not a string, or has fewer than
            ``at_least`` items.
    """
    if isinstance(sentences, str):
        raise ValueError(f"{name} must be a list of sentences, got one string: {sentences!r:.80}.")
    listed = list(sentences)
    wrong = [item for item in listed if not isinstance(item, str)]
    if wrong:
        raise ValueError(f"{name} must hold strings, got {wrong[0]!r}.")
    if len(listed) < at_least:
        plural = "" if at_least == 1 else "s"
        raise ValueError(f"{name} must hold at least {at_least} sentence{plural}, got {len(listed)}.")
    return listed


def encode_sentences(
    model: SentenceTransformer, sentences: Sequence[str], *, batch_size: int, show_progress_bar: bool
) -> Tensor:
    """Return the (N, D) embeddings of the sentences, on the model's device."""
    embeddings = model.encode(
        list(sentences), batch_size=batch_size, show_progress_bar=show_progress_bar, convert_to_tensor=True
    )
    return embeddings.detach()


def check_embeddings(name: str, embeddings: Tensor, at_least: int = 1) -> Tensor:
    """Return the rows scaled to length one, in float32 or better.

    Raises:
        ValueError: if the shape is not (N, D) with N >= ``at_least``, a value is NaN or infinite, or a row is zero.
    """
    if embeddings.ndim != 2 or embeddings.size(0) < at_least or embeddings.size(1) == 0:
        raise ValueError(f"{name} must be (N, D) with N >= {at_least}, got the shape {tuple(embeddings.shape)}.")
    x = full_precision(embeddings)
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} must be finite, got NaN or infinite values: did the training diverge?")
    norms = x.norm(dim=1, keepdim=True)
    if bool((norms == 0).any()):
        row = int((norms == 0).flatten().nonzero()[0])
        raise ValueError(f"{name} must have a direction in each row, got a row of length zero (row {row}).")
    unit: Tensor = x / norms
    return unit


def join_name(*parts: str) -> str:
    """Join the parts that are not empty with "_", for the name of a metric or of a CSV file."""
    return "_".join(filter(None, parts))


class ReportingEvaluator(Protocol):
    """What ``report`` needs of a Sentence Transformers evaluator.

    Attributes:
        name: prefix of the metrics, "" for none.
        csv_file: name of the CSV file; None writes no file.
    """

    name: str
    csv_file: str | None

    def prefix_name_to_metrics(self, metrics: dict[str, float], name: str) -> dict[str, float]:
        """Put the name before each metric, and before the primary metric."""
        ...

    def store_metrics_in_model_card_data(self, model: Any, metrics: dict[str, Any], epoch: int, step: int) -> None:
        """Put the metrics on the model card."""
        ...


def report(
    evaluator: ReportingEvaluator,
    model: SentenceTransformer,
    metrics: Mapping[str, float],
    output_path: str | PathLike[str] | None,
    epoch: float,
    steps: int,
) -> dict[str, float]:
    """Write the CSV row, put the evaluator's name before the metrics, and pass them to the model card and the log.

    Args:
        evaluator: the evaluator that measured.
        model: the model measured.
        metrics: the values by name, without prefix.
        output_path: folder of the CSV file, which gets the row ``epoch, steps, *metrics``. If the file has other
            columns, the row goes to NAME_2.csv, and so on. None writes no file.
        epoch: -1 outside of training.
        steps: -1 outside of training.

    Returns:
        The metrics by prefixed name.
    """
    if output_path is not None and evaluator.csv_file is not None:
        _append_row(Path(output_path) / evaluator.csv_file, {"epoch": epoch, "steps": steps, **metrics})
    prefixed = evaluator.prefix_name_to_metrics(dict(metrics), evaluator.name)
    evaluator.store_metrics_in_model_card_data(model, prefixed, int(epoch), steps)
    shown = ", ".join(f"{key} {value:.4f}" for key, value in prefixed.items())
    logger.info("%s at epoch %s, step %s: %s", type(evaluator).__name__, epoch, steps, shown)
    return prefixed


def _append_row(path: Path, row: Mapping[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path = _with_columns(path, list(row))
    is_new = not path.is_file()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(row)
        writer.writerow(row.values())


def _with_columns(path: Path, header: list[str]) -> Path:
    """Return the first of PATH, PATH_2, ... that does not exist yet or has these columns."""

    def fits(candidate: Path) -> bool:
        if not candidate.is_file():
            return True
        with candidate.open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), None) == header

    others = (path.with_stem(f"{path.stem}_{number}") for number in itertools.count(2))
    return next(filter(fits, itertools.chain([path], others)))
