"""Which cells of the studies have a record, which do not, and what those cost."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.records import records
from benchmarks.studies import all_studies, study_cells
from benchmarks.tables.markdown import markdown_table

MECHANISMS = tuple(f"mechanisms_{name}" for name in ("heads", "adversaries", "dclr", "rates", "slt_fai", "paser"))
TIMED = (
    *("foundation", "adcse", "slt_fai", "paser", "recipes", "own_encoder", *MECHANISMS),
    *(f"{name}_own" for name in MECHANISMS),
    *("own_encoder_better", "own_encoder_better_search"),
    *("baselines", "baselines_search", "baselines_own", "baselines_own_search"),
)


def unrun_table() -> str:
    """Tabulate the cells that the configurations ask for and no record covers: the methods of a study, with seeds.

    The hours are of one core, by the records of the same loss.
    """
    rows, timed = [], timed_records()
    for study in all_studies():
        cells = sum(map(len, study_cells(study).values()))
        if study["name"] == "smoke" or not cells:  # or only its start is scored
            continue
        missing = unrun_seeds(study)
        left = sum(map(len, missing.values()))
        words = [f"{name} ({', '.join(map(str, seeds))})" for name, seeds in missing.items()]
        hours = sum(cell_seconds(study, name, timed) * len(seeds) for name, seeds in missing.items()) / 3600
        cost = f"{hours:.1f}" if missing else ""
        rows.append([study["name"], f"{cells - left} of {cells}", cost, ", ".join(words)])
    return markdown_table(("study", "cells run", "hours left", "not run"), rows, left=(0, 3))


def unrun_seeds(study: dict[str, Any]) -> dict[str, list[int]]:
    """Return the seeds of each method that no record covers; a method without such seeds is left out.

    Args:
        study: the study, as ``load_study`` returns it.
    """
    done = {(record["method"], record["seed"]) for record in records(study["name"])}
    missing = {
        name: [seed for seed in sorted(seeds) if (name, seed) not in done] for name, seeds in study_cells(study).items()
    }
    return {name: seeds for name, seeds in missing.items() if seeds}


def timed_records() -> list[dict[str, Any]]:
    """Read the trainings that say how long the step of a loss takes."""
    return [record for study in TIMED for record in records(study) if record["steps"]]


def cell_seconds(study: dict[str, Any], method: str, timed: list[dict[str, Any]]) -> float:
    """Estimate the seconds of a cell: its steps times those that a step of its loss took in the records.

    Records of the loss on the same encoder count if there are any, else those of the loss, else those of the encoder,
    else all.

    Args:
        study: the study, as ``load_study`` returns it.
        method: the method of the study.
        timed: what ``timed_records`` returns.
    """
    settings = study["training"] | study["methods"][method]
    same_loss = [record for record in timed if record["settings"]["loss"] == settings["loss"]]
    same_encoder = [record for record in timed if _weights(record) == _weights(study)]
    both = [record for record in same_encoder if record["settings"]["loss"] == settings["loss"]]
    pace = [record["seconds"] / record["steps"] for record in both or same_loss or same_encoder or timed]
    return float(settings["batch_size"] / 64 * settings["steps"] * statistics.median(pace or [0.0]))


def _weights(study: dict[str, Any]) -> tuple[Any, Any]:
    """Return what tells the weights of an encoder from those of another: its folder, and how many layers are kept."""
    encoder = study.get("encoder", {})
    return encoder.get("path"), encoder.get("layers")
