"""What the evaluators of this package share: checking and encoding sentences, names of metrics, the CSV row."""

from __future__ import annotations

import csv
import io
import itertools
import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_bool, shown
from st_extras.functional import full_precision
from st_extras.modules.pipeline import check_encoding
from st_extras.text.corpus import iterate_sentences

logger = logging.getLogger(__name__)

LARGEST_SEED = 2**32 - 1
"""Largest seed that all libraries take."""


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


def check_options(name: Any, batch_size: Any, show_progress_bar: Any = False, write_csv: Any = True) -> None:
    """Check the options that all evaluators have.

    Raises:
        ValueError: if ``name`` cannot be part of a file's name, the batch size is not a whole number from 1 to 2^20, or
            one of the others is neither True nor False.
    """
    if not isinstance(name, str) or name in (".", "..") or any(sign in name for sign in "/\\\0"):
        raise ValueError(f"name must be a string without path separators, got {shown(name)}.")
    check_encoding(batch_size, show_progress_bar)
    check_bool("write_csv", write_csv)


def check_further_options(name: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a Sentence Transformers evaluator, those that ``check_options`` knows checked.

    Raises:
        ValueError: as for ``check_options``.
    """
    usual = {"batch_size": 32, "show_progress_bar": False, "write_csv": True}
    check_options(name, **{key: options.get(key, value) for key, value in usual.items()})
    return {key: int(value) if key == "batch_size" else value for key, value in options.items()}


def encode_sentences(
    model: SentenceTransformer, sentences: Sequence[str], *, batch_size: int, show_progress_bar: bool
) -> Tensor:
    """Return the (N, D) embeddings of the sentences, on the model's device."""
    embeddings = model.encode(
        list(sentences), batch_size=batch_size, show_progress_bar=show_progress_bar, convert_to_tensor=True
    )
    return embeddings.detach()


def check_embeddings(name: str, embeddings: Any, at_least: int = 1) -> Tensor:
    """Return the rows of a tensor, an array or lists scaled to length one, in float32 or better.

    Raises:
        ValueError: if they are not numbers, the shape is not (N, D) with N >= ``at_least``, a value is NaN or infinite,
            or a row is zero.
    """
    given = embeddings
    try:
        embeddings = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be numbers of the shape (N, D), got {shown(given)}.") from None
    if embeddings.ndim == 0:
        raise ValueError(f"{name} must be numbers of the shape (N, D), got {shown(given)}.")
    if embeddings.is_complex():
        raise ValueError(f"{name} must be real numbers, got {embeddings.dtype}.")
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

    Raises:
        ValueError: if the row cannot be written; the metrics are then in the log.
    """
    prefixed = evaluator.prefix_name_to_metrics(dict(metrics), evaluator.name)
    evaluator.store_metrics_in_model_card_data(model, prefixed, int(epoch), steps)
    values = ", ".join(f"{key} {value:.4f}" for key, value in prefixed.items())
    logger.info("%s at epoch %s, step %s: %s", type(evaluator).__name__, epoch, steps, values)
    if output_path is not None and evaluator.csv_file is not None:  # last: what it fails to write is in the log
        _append_row(Path(output_path) / evaluator.csv_file, {"epoch": epoch, "steps": steps, **metrics})
    return prefixed


def _append_row(path: Path, row: Mapping[str, float]) -> None:
    """Append a row in one write; a row that a kill has cut short keeps its own line.

    Raises:
        ValueError: if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path = _with_columns(path, list(row))
        before = path.read_bytes() if path.is_file() else b""
        text = io.StringIO()
        if before and not before.endswith(b"\n"):
            logger.warning("%s: the last line is not whole; it is kept, and the new row follows it.", path)
            text.write("\r\n")
        csv.writer(text).writerows([row.values()] if before else [row, row.values()])
        with path.open("ab") as file:
            file.write(text.getvalue().encode("utf8"))
    except OSError as error:
        raise ValueError(
            f"output_path must be a folder that can be written to, got {str(path.parent)!r} for {path.name} "
            f"({error.strerror}): the metrics are in the log."
        ) from None


def _with_columns(path: Path, header: list[str]) -> Path:
    """Return the first of PATH, PATH_2, ... that does not exist yet, is empty, or has these columns."""

    def fits(candidate: Path) -> bool:
        if not candidate.exists():
            return True
        if not candidate.is_file():
            return False
        try:
            with candidate.open(newline="", encoding="utf8") as file:
                return next(csv.reader(file), header) == header
        except (UnicodeDecodeError, csv.Error):
            return False

    others = (path.with_stem(f"{path.stem}_{number}") for number in itertools.count(2))
    return next(filter(fits, itertools.chain([path], others)))
