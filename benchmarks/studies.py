"""The studies: configuration files that say what is run.

A study is a TOML file in ``configs/``, read by ``load_study``. ``about`` says in a line what it asks; ``kind`` names
the module of ``benchmarks`` that runs it, "training" unless it is given. That kind trains methods and scores them:

* ``[encoder]``: the base model, as options of ``load_encoder``; the packaged MiniLM unless ``path`` is given.
* ``[training]``: the settings that all methods share.
* ``[methods.NAME]``: adds to the shared settings or replaces them.

Settings of a method:

* ``loss`` and its ``options``; ``base``: the same for the loss inside SLT-FAI or PaSeR.
* ``complementary``: the frozen encoder of DCLR: a method of the study, whose weights with the same
  seed it takes.
* ``corpus``: a file in the data folder, an address (``hf://...``), or ``sts``: the unlabeled sentences of the STS
  sets; ``sentences``: how many of its sentences to take. ``sts-unseen``: short ones that no scored set holds, evenly
  spaced.
* ``masking``: how PaSeR's rows are made: options of ``PhraseMasking``.
* ``frequencies``: a table of token counts.
* ``steps``, ``eval_steps``, ``batch_size``, ``learning_rate``, ``bf16``; ``arguments``: further ones of
  ``train_encoder``; ``seeds``.
* ``post_processing``: variants of ``benchmarks/repal.py`` to score after training.
* ``rows``: options of the function that makes a loss's rows (``building.ROWS``).
* ``pairs``: score so many pairs of each set, evenly spaced, in bfloat16 if ``bf16`` says so.

A first line ``base = "OTHER.toml"`` makes a study an addition to another one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from benchmarks.records import RESULTS, ROOT

CONFIGS = ROOT / "configs"
KEPT = "adapt, keep_index"
"""What ``adapt`` chooses for a search if stored documents stay as they are."""

MNRL = "mnrl, two columns"
"""The measured step that all others are compared with: MultipleNegativesRankingLoss."""

PRETRAINED = {
    "own": "runs/own_encoder/encoder",
    "own2": "runs/own_encoder_2/encoder",
    "better": "runs/own_encoder_better/encoder",
}
"""Where the study ``pretraining`` leaves its encoders."""

TRANSFORMS = {
    "slight neighbour transform": "slight",
    "gentle neighbour transform": "gentle",
    "medium neighbour transform": "medium",
    "whitening neighbour transform": "white",
}
"""What the records call the transforms that ``adapt`` tries, from the gentlest to the strongest."""

BASELINE_TEXTS = {"wiki": "wiki_sentences.txt.gz", "sts": "sts_unlabeled.txt.gz"}
"""The texts that the baselines are fitted on: files of the data folder by their names in the records."""


class Mistake(ValueError):
    """What was asked for is not possible: the entrance prints it as one line."""


@dataclass(frozen=True)
class Options:
    """Where a study reads and writes, and which part of it is run; None: all of it.

    Attributes:
        data: folder with the corpora and the scored sets.
        work: folder for weights, locks and embeddings.
        root: folder for the records of all studies.
        methods: methods or rows.
        seeds: seeds.
        encoders: encoders.
        sets: domains or collections.
        encoder: the encoder that is trained in place of the study's: a folder or a name on the hub.
        only_plan: print what would be run, and stop.
        mini_batch_size: sentences that the encoder sees at a time, where the loss allows it.
    """

    data: Path
    work: Path = Path("runs")
    root: Path = RESULTS
    methods: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    encoders: Sequence[str] | None = None
    sets: Sequence[str] | None = None
    encoder: str | None = None
    only_plan: bool = False
    mini_batch_size: int | None = None


def chosen(given: Sequence[Any] | None, known: Sequence[Any], name: str) -> list[Any]:
    """Return those of ``known`` that are given, or all if none is.

    Raises:
        Mistake: if one is not known.
    """
    unknown = [one for one in given or () if one not in known]
    if unknown:
        raise Mistake(f"{name} must be of {', '.join(map(str, known))}, got {', '.join(map(str, unknown))}.")
    return [one for one in known if given is None or one in given]


def load_study(path: Path) -> dict[str, Any]:
    """Read a configuration. If it names a ``base``, its tables add to those of the base or replace their entries."""
    study = tomllib.loads(path.read_text(encoding="utf8"))
    if "base" in study:
        base = load_study(path.with_name(study.pop("base")))
        del base["name"]
        tables = {name: value | study.get(name, {}) for name, value in base.items() if isinstance(value, dict)}
        study = base | study | tables
    return {"name": path.stem, "kind": "training", **study}


def study_names() -> list[str]:
    """Return the names of all configurations."""
    return sorted(path.stem for path in CONFIGS.glob("*.toml"))


def named_study(name: str) -> dict[str, Any]:
    """Read a study of this repository.

    Raises:
        Mistake: if there is no configuration of this name.
    """
    path = CONFIGS / f"{name}.toml"
    if not path.is_file():
        raise Mistake(f"STUDY must be a name in benchmarks/configs, got {name!r}: see python -m benchmarks list.")
    return load_study(path)


def study_cells(study: dict[str, Any]) -> dict[str, list[int]]:
    """Return the seeds of each method: its own, or those that all methods share."""
    shared = study["training"]["seeds"]
    return {name: method.get("seeds", shared) for name, method in study["methods"].items()}


def methods_needed(method: dict[str, Any], study: dict[str, Any]) -> list[str]:
    """Return the methods of the study whose weights a method uses as its complementary encoder."""
    named = (method.get("complementary"), method.get("base", {}).get("complementary"))
    return [name for name in dict.fromkeys(named) if name in study["methods"]]


SENTENCES = {"wiki1m_for_simcse.txt": 1_000_000, "sts": 89_192, "zh_unlabeled.txt": 65_000}
"""Sentences of the training texts of the papers, for what is planned before the data is there."""


def cell_steps(method: dict[str, Any], rows: float) -> int:
    """Return the steps of a training: as many as it says, or those of its epochs over ``rows`` rows."""
    return (
        method["steps"] if "steps" in method else math.ceil(method["epochs"] * math.ceil(rows / method["batch_size"]))
    )


def is_there(name: str) -> bool:
    """Whether the encoder of this name is there; a line is printed for one of PRETRAINED that was not made yet."""
    path = PRETRAINED.get(name)
    if path is None or Path(path).is_dir():
        return True
    print(f"{name}: left out, there is no {path}: python -m benchmarks run pretraining makes it.", flush=True)
    return False
