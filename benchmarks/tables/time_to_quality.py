"""Seconds of training until STS-B dev is what SimCSE reaches at its best, and STS-B dev over the seconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.records import records
from benchmarks.tables.combinations import OWN
from benchmarks.tables.floors import shown_floors
from benchmarks.tables.markdown import markdown_table
from benchmarks.tables.quality import BASELINES, ROWS, row_records
from benchmarks.tables.verdict import FROZEN, LIVING, SOURCES

BEST_RATE = "SimCSE at the rate the search chose"

MECHANISMS = {
    "SimCSE, positive not in the denominator": "mechanisms_dclr{}/simcse-no-positive",
    "ConSERT, positive not in the denominator": "mechanisms_dclr{}/consert-no-positive",
    "AdCSE, no head, no adversaries": "mechanisms_adversaries{}/no-adversaries",
    "SLT-FAI with an equilibrium": "mechanisms_slt_fai{}/slt-fai-equilibrium-discriminators-1e-3",
    "SLT-FAI without AT": "mechanisms_slt_fai{}/slt-fai-no-at",
}
"""Rows of docs/mechanisms.md by their labels; {}: nothing, or "_own" for BERT-small trained here."""

LAYERS = {label: sources for label, (sources, _) in ROWS.items() if label != "start"}
LAYERS |= {BEST_RATE: "baselines/simcse", **{label: f"baselines/{name}" for name, label in BASELINES.items()}}
LAYERS |= {label: sources.format("") for label, sources in MECHANISMS.items()}
OWN_ENCODER = {"SimCSE": "own_encoder/simcse", **{label: f"own_encoder/{name}" for label, name in OWN.items()}}
OWN_ENCODER |= {BEST_RATE: "baselines_own/simcse"}
OWN_ENCODER |= {label: f"baselines_own/{name}" for name, label in BASELINES.items()}
OWN_ENCODER |= {label: SOURCES[label][1] for label in (LIVING, FROZEN)}
OWN_ENCODER |= {label: sources.format("_own") for label, sources in MECHANISMS.items()}
BETTER_LABELS = {
    "SimCSE": "simcse",
    "SimCSE, lr 1e-3": "simcse-1e-3",
    **OWN,
    "DCLR, no guide": "dclr-no-guide",
    "DCLR on ConSERT's views, no guide": "dclr-consert-views-no-guide",
    **{label: name for name, label in BASELINES.items()},
}
BETTER = {label: f"own_encoder_better/{name}" for label, name in BETTER_LABELS.items()}
ENCODERS = {"layers3": LAYERS, "own": OWN_ENCODER, "better": BETTER}
"""By encoder and label: the records as ``study/method study/method ...``."""
FLOORS = {"layers3": "foundation", "own": "own_encoder", "better": "own_encoder_better"}
"""The studies whose floors stand first."""

SECONDS = (60, 120, 240, 480, 960)

NOTE = (
    "The seconds are those of the training, without its evaluations; if it asks a frozen encoder of the same study, "
    "those of that encoder's training come before. ~: estimated from older records, which hold the time of the whole "
    "cell alone, scoring included, as if every step took the same. One thread, on a machine with other work."
)


def seconds_at(record: dict[str, Any], step: int) -> float:
    """Return the seconds of training until a step was evaluated, with those of its guide's training before it."""
    measured: dict[int, float] = dict(record.get("training_seconds", ()))
    own = measured[step] if measured else record["seconds"] * step / record["steps"]
    guides = (guide_record(record, settings) for settings in (record["settings"], record["settings"].get("base", {})))
    return own + sum(seconds_at(guide, guide["steps"]) for guide in guides if guide is not None)


def guide_record(record: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record of the method of the same study, with the same seed, that ``complementary`` names."""
    if "complementary" not in settings:
        return None  # before any record is read: this is asked for every step of every curve
    wanted = (settings["complementary"], record["seed"])
    found = (other for other in records(record["study"]) if (other["method"], other["seed"]) == wanted)
    return next(found, None)


def is_estimated(found: Sequence[dict[str, Any]]) -> bool:
    """Say whether a record of a row holds no time of each evaluation."""
    return not all("training_seconds" in record for record in found)


def reached(record: dict[str, Any], target: float) -> tuple[int, float] | None:
    """Return the first evaluated step whose STS-B dev is the target at least, and its seconds; None if none is."""
    steps = (step for step, dev in record["curve"] if dev >= target)
    step = next(steps, None)
    return None if step is None else (step, seconds_at(record, step))


def time_table(encoder: str) -> str:
    """Tabulate how soon each method is as good on STS-B dev as SimCSE of the same seed ever was.

    Medians over the seeds that come there.

    Args:
        encoder: a key of ENCODERS.
    """
    shown = ENCODERS[encoder]
    targets = {record["seed"]: max(dev for _, dev in record["curve"]) for record in row_records(shown["SimCSE"])}
    rows = []
    for label, sources in shown.items():
        found = [record for record in row_records(sources) if record["seed"] in targets]
        if not found:
            continue
        times = [time for record in found if (time := reached(record, targets[record["seed"]])) is not None]
        cells = [label, f"{len(times)} of {len(found)}", "", ""]
        if times:
            steps, seconds = (statistics.median(column) for column in zip(*times, strict=True))
            cells[2:] = [f"{steps:.0f}", f"{'~' if is_estimated(found) else ''}{seconds:.0f}"]
        rows.append(cells)
    if not rows:
        return "Not run yet."
    titles = ("method", "seeds that reach SimCSE's best dev", "after steps", "after seconds")
    return f"{markdown_table(titles, rows)}\n\n{NOTE}"


def curve_table(encoder: str) -> str:
    """Tabulate the best STS-B dev of the evaluations until so many seconds: means over the seeds.

    A cell is empty where a seed had no evaluation yet: its guide was still in training. The floors are not trained.

    Args:
        encoder: a key of ENCODERS.
    """
    rows = []
    for label, floor in shown_floors(FLOORS[encoder]).items():
        rows.append([label, *[f"{floor['dev']:.2f}"] * len(SECONDS)])
    for label, sources in ENCODERS[encoder].items():
        found = row_records(sources)
        if not found:
            continue
        mark = "~" if is_estimated(found) else ""
        rows.append([f"{mark}{label}", *(_best_until(found, limit) for limit in SECONDS)])
    if not rows:
        return "Not run yet."
    return f"{markdown_table(('STS-B dev after', *(f'{limit} s' for limit in SECONDS)), rows)}\n\n{NOTE}"


def _best_until(found: Sequence[dict[str, Any]], limit: float) -> str:
    """Write the mean over the records of the best dev score until a time; nothing if one has none by then."""
    best = []
    for record in found:
        values = [dev for step, dev in record["curve"] if seconds_at(record, step) <= limit]
        if not values:
            return ""
        best.append(max(values))
    return f"{statistics.mean(best):.2f}"
