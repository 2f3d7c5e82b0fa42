"""The result of an adaptation: what was chosen, the model with its step, and the report beside it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_extras.modules import LocalityPreservingPostProcessor, pipeline
from st_extras.training.adaptation_report import PICTURE, TEXT_FILE, write_neighbors
from st_extras.training.candidates import CANDIDATES, Row
from st_extras.training.manifest import read_manifest, write_manifest
from st_extras.training.marker import write_json
from st_extras.training.output_folder import save_model
from st_extras.training.short_training import TRAININGS
from st_extras.training.trial import Trial

REPORT = "adaptation.json"
_ALLOWED = "see max_general_loss, --max-general-loss"
COLUMNS = ("candidate", "gain", "interval", "general", "seconds", "accepted")
"""Of the table: the gain over the start and its 95 % interval, Spearman correlation x 100 on general pairs."""
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

    model: SentenceTransformer = field(repr=False)
    chosen: str | None
    reason: str
    rows: list[Row]
    facts: dict[str, Any]
    seconds: float

    def __str__(self) -> str:
        """Return the reason and the table."""
        lines = [list(COLUMNS), *self.cells()] if self.rows else []
        return "\n".join([self.reason, *("  ".join(cells).rstrip() for cells in _aligned(lines))])

    def cells(self) -> list[list[str]]:
        """Return the table with the start, as texts in the columns ``COLUMNS``; no rows if nothing was tried."""
        general = self.facts.get("general")
        start = ["as it is", "", "", "-" if general is None else f"{general:.2f}", "", ""]
        return [start, *map(_cells, self.rows)] if self.rows else []


def _cells(row: Row) -> list[str]:
    interval = "-" if row.low is None or row.high is None else f"{row.low:+.4f} to {row.high:+.4f}"
    general = "-" if row.general is None else f"{row.general:.2f}"
    accepted = "yes" if row.accepted else f"no: {row.why}"
    return [row.name, f"{row.gain:+.4f}", interval, general, f"{row.seconds:.0f}", accepted]


def _aligned(lines: list[list[str]]) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]


def finish(trial: Trial, model: SentenceTransformer, output: Path, began: float, seed: int) -> Adapted:
    """Choose, and save the model and the report."""
    best, reason = picked(trial.rows)
    refined = model
    if best is not None:
        encode, matrix, offset = trial.steps[best.name]
        refined = encode.model
        if matrix is not None and offset is not None:
            refined = pipeline.with_dense(encode.model, matrix, offset)
            _describe_step(refined, best, trial.facts)
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
    if not accepted and any(row.better for row in rows):
        return None, f"Left as it is: what was better than the start loses too much on general pairs ({_ALLOWED})."
    if not accepted:
        return None, "Left as it is: no candidate was better than the start."
    best = max(accepted, key=lambda row: row.gain)
    forgetful = max(
        (row for row in rows if row.better and row.gain > best.gain), key=lambda row: row.gain, default=None
    )
    reason = f"{best.name} was best."
    if forgetful is not None:
        reason = (
            f"{best.name} was best of what is accepted: {forgetful.name} gains more and forgets too much ({_ALLOWED})."
        )
    if best.low is None:
        return best, reason
    taken = next(row for row in accepted if row.gain >= ENOUGH * best.gain)
    return (best, reason) if taken is best else (taken, f"{taken.name} was taken: {best.name} gains little more.")


def _describe_step(model: SentenceTransformer, row: Row, facts: dict[str, Any]) -> None:
    """Let the model card say what was put behind the encoder."""
    general = "" if row.general is None else f", general English pairs {facts['general']:.2f} -> {row.general:.2f}"
    line = (
        f"* **st-extras adapt**, {row.name}: computed from {facts['texts'] - facts['judged']:,} unlabelled texts of a "
        f"domain{general}. The embeddings are not comparable with those of the encoder without it."
    )
    card: Any = model.model_card_data
    card.exported = card.exported | {
        "Locality Preserving Projections": (line, LocalityPreservingPostProcessor(1).citation)
    }


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
