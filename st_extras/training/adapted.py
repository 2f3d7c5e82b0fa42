"""The result of an adaptation: what was chosen, the model with its step, and the report beside it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.modules import pipeline
from st_extras.training.adaptation_report import PICTURE, TEXT_FILE, write_neighbors
from st_extras.training.candidates import CANDIDATES, FORGETS, Row
from st_extras.training.manifest import read_manifest, write_manifest
from st_extras.training.marker import write_json
from st_extras.training.output_folder import save_model
from st_extras.training.short_training import TRAININGS
from st_extras.training.trial import Trial

REPORT = "adaptation.json"
ENOUGH = 0.75
"""Share of the best gain, by the judge, that a gentler candidate needs to be taken instead."""
REPORTS = (REPORT, TEXT_FILE, PICTURE)
"""What is written beside the model."""


@dataclass(frozen=True)
class Adapted:
    """What :func:`adapt` found.

    Attributes:
        model: the chosen model, of stock modules; the given one if ``chosen`` is None.
        chosen: name of the chosen candidate; None: left as it is.
        reason: why, in one sentence.
        rows: the table, without the start.
        facts: of text and encoder, as far as found out: read (texts), drawn (different ones, at most ``limit``), texts
            (those used), judged (those of them that the judge kept), mean_words, near_duplicates (share of the judged),
            mean_cosine (of two different texts: near 0 for most encoders that were tuned for similarity), dropout
            (whether it acts, without which no training is tried), confirmed_share (see
            :class:`~st_extras.evaluation.change.ChangeJudge`), general and dev (scores of the start), and
            "not tried": why a training was left out.
        seconds: how long it took.
    """

    model: SentenceTransformer
    chosen: str | None
    reason: str
    rows: list[Row]
    facts: dict[str, Any]
    seconds: float


def finish(trial: Trial, model: SentenceTransformer, output: Path, began: float, seed: int) -> Adapted:
    """Choose, and save the model and the report."""
    best, reason = picked(trial.rows)
    refined = model
    if best is not None:
        encode, matrix, offset = trial.steps[best.name]
        refined = encode.model if matrix is None or offset is None else with_step(encode.model, matrix, offset)
    name = None if best is None else best.name
    adapted = Adapted(refined, name, trial.reason or reason, trial.rows, trial.facts, time.perf_counter() - began)
    save_model(refined, output)
    write_manifest(output, read_manifest(output) | set(REPORTS))  # first: a run that is killed here may be repeated
    if best is not None:
        write_neighbors(output, trial.judged, *trial.judged_before_and_after(best.name), seed=seed)
    _save_report(adapted, output)
    return adapted


def picked(rows: Sequence[Row]) -> tuple[Row | None, str]:
    """Return the row to choose and why; None: leave the encoder as it is.

    Rows come gentlest and cheapest first. The judge likes strong steps too much, so the first row is taken that gains
    three quarters of what the best one gains. A development set is taken at its word.
    """
    accepted = [row for row in rows if row.accepted]
    if not accepted and any(row.why == FORGETS for row in rows):
        why = "what was better than the start loses too much on general pairs (see max_general_loss)"
        return None, f"Left as it is: {why}."
    if not accepted:
        return None, "Left as it is: no candidate was better than the start."
    best = max(accepted, key=lambda row: row.gain)
    if best.low is None:
        return best, f"{best.name} was best."
    taken = next(row for row in accepted if row.gain >= ENOUGH * best.gain)
    if taken is best:
        return best, f"{best.name} was best."
    return taken, f"{taken.name} was taken: {best.name} gains little more."


def with_step(model: SentenceTransformer, matrix: Tensor, offset: Tensor) -> SentenceTransformer:
    """Return a model with a step v X + b after its pooling, before a Normalize module; weights are shared."""
    modules, normalize = pipeline.split_before_normalize(model)
    with torch.random.fork_rng(devices=[]):  # Dense draws weights before it takes these
        dense = pipeline.as_dense(matrix.T.float(), offset.float())
    return pipeline.rebuild_model(model, [*modules, dense.to(model.device), *normalize])


def _save_report(adapted: Adapted, output: Path) -> None:
    report = {
        "chosen": adapted.chosen,
        "reason": adapted.reason,
        "candidates": [dataclasses.asdict(row) for row in adapted.rows],
        "facts": adapted.facts,
        "settings": {one.name: dataclasses.asdict(one) for one in (*CANDIDATES, *TRAININGS)},
        "seconds": round(adapted.seconds, 1),
    }
    write_json(output / REPORT, report)
