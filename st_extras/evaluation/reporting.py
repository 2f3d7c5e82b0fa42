"""How the evaluators of this package report: a CSV row for each call, as Sentence Transformers' own write them."""

from __future__ import annotations

import csv
import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import Tensor

from st_extras.functional import full_precision

logger = logging.getLogger(__name__)


def encode_sentences(
    model: SentenceTransformer, sentences: Sequence[str], *, batch_size: int, show_progress_bar: bool
) -> Tensor:
    """(N, D) embeddings of the sentences, on the model's device."""
    embeddings = model.encode(
        list(sentences), batch_size=batch_size, show_progress_bar=show_progress_bar, convert_to_tensor=True
    )
    return embeddings.detach()


def check_sentences(name: str, sentences: Sequence[str], at_least: int) -> list[str]:
    """The sentences as a list, or a ValueError that names the argument.

    Raises:
        ValueError: a single string was given, an item is no string, or there are fewer than ``at_least``.
    """
    if isinstance(sentences, str):
        raise ValueError(f"{name} must be a sequence of sentences, got one string: {sentences!r}.")
    listed = list(sentences)
    wrong = [item for item in listed if not isinstance(item, str)]
    if wrong:
        raise ValueError(f"{name} must hold strings, got {wrong[0]!r}.")
    if len(listed) < at_least:
        raise ValueError(f"{name} must hold at least {at_least} sentences, got {len(listed)}.")
    return listed


def report(
    evaluator: BaseEvaluator,
    model: SentenceTransformer,
    metrics: Mapping[str, float],
    *,
    name: str,
    csv_path: Path | None,
    epoch: float,
    steps: int,
) -> dict[str, float]:
    """Writes the CSV row, puts ``name`` before the metrics and hands them to the model card and the log.

    Args:
        evaluator: the one that measured; its primary metric gets the prefix too.
        model: the model measured.
        metrics: the values by their names without prefix.
        name: the evaluator's name, "" for none.
        csv_path: the file that gets the row ``epoch, steps, *metrics``; where it has other columns, NAME_2.csv and
            so on. None writes nothing.
        epoch: -1 outside of training.
        steps: -1 outside of training.

    Returns:
        The metrics under their prefixed names.
    """
    if csv_path is not None:
        csv_path.parent.mkdir(parents=True, exist_ok=True)
        header = ["epoch", "steps", *metrics]
        csv_path = _with_columns(csv_path, header)
        is_new = not csv_path.is_file()
        with csv_path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(header)
            writer.writerow([epoch, steps, *metrics.values()])
    prefixed: dict[str, float] = evaluator.prefix_name_to_metrics(dict(metrics), name)
    evaluator.store_metrics_in_model_card_data(model, prefixed, int(epoch), steps)
    shown = ", ".join(f"{key} {value:.4f}" for key, value in prefixed.items())
    logger.info("%s at epoch %s, step %s: %s", type(evaluator).__name__, epoch, steps, shown)
    return prefixed


def _with_columns(path: Path, header: list[str]) -> Path:
    """The first of PATH, PATH_2, ... that is not there yet or has these columns."""

    def fits(candidate: Path) -> bool:
        if not candidate.is_file():
            return True
        with candidate.open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), None) == header

    others = (path.with_stem(f"{path.stem}_{number}") for number in itertools.count(2))
    return next(filter(fits, itertools.chain([path], others)))


def check_embeddings(name: str, embeddings: Tensor, at_least: int = 1) -> Tensor:
    """The rows scaled to length one, in float32 or better.

    Raises:
        ValueError: not (N, D) with N >= ``at_least``, a NaN or infinite value, or a row that is zero.
    """
    if embeddings.ndim != 2 or embeddings.size(0) < at_least or embeddings.size(1) == 0:
        raise ValueError(f"{name} must be (N, D) with N >= {at_least}, got the shape {tuple(embeddings.shape)}.")
    x = full_precision(embeddings)
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} holds NaN or infinite values: did the training diverge?")
    norms = x.norm(dim=1, keepdim=True)
    if bool((norms == 0).any()):
        row = int((norms == 0).flatten().nonzero()[0])
        raise ValueError(f"{name} has rows of length zero (row {row}), which have no direction.")
    unit: Tensor = x / norms
    return unit
