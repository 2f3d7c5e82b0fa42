"""The studies: configuration files that say which methods are trained, how, and with which seeds.

A study is a TOML file in ``configs/``, read by ``load_study``:

* ``[encoder]``: where training starts, as options of ``load_encoder``; the packaged MiniLM unless ``path`` is given.
* ``[training]``: the settings that all methods share.
* ``[methods.NAME]``: adds to the shared settings or replaces them.

Settings of a method:

* ``loss`` and its ``options``; ``base``: the same for the loss inside SLT-FAI.
* ``complementary``: the frozen encoder of DCLR: a method of the study (its weights with the same seed), ``minilm``, or
  a folder.
* ``start``: a method of the study whose weights training starts from.
* ``corpus``: a file in the data folder, an address (``hf://...``), or ``sts``: the unlabeled sentences of the STS
  sets; ``sentences``: how many of its sentences to take.
* ``masking``: how PaSeR's rows are made.
* ``frequencies``: a table of token counts; it also turns on the frequency probe.
* ``steps``, ``eval_steps``, ``batch_size``, ``learning_rate``, ``bf16``; ``arguments``: further ones of
  ``train_encoder``; ``length_buckets``: groups of rows with like length; ``seeds``.
* ``signals`` and ``geometry``: how many sentences to compute the label-free signals and the geometry on.
* ``post_processing``: variants of ``benchmarks/variants.py`` to score after training.
* ``test = false``: score STS-B dev only.

``papers/`` holds the papers' own settings (``benchmarks/papers.py``); such a study is called ``papers/NAME``.

A first line ``base = "OTHER.toml"`` makes a study an addition to another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomllib

from benchmarks.records import ROOT
from st_extras.text import read_sentences

CONFIGS = ROOT / "configs"


def load_study(path: Path) -> dict[str, Any]:
    """Read a configuration. If it names a ``base``, its tables add to those of the base or replace their entries."""
    study = tomllib.loads(path.read_text(encoding="utf8"))
    if "base" in study:
        base = load_study(path.with_name(study.pop("base")))
        study = {name: value | study.get(name, {}) for name, value in base.items() if name != "name"}
    name = f"papers/{path.stem}" if path.parent.name == "papers" else path.stem
    return {"name": name, **study}


def named_study(name: str) -> dict[str, Any]:
    """Read a study of this repository."""
    return load_study(CONFIGS / f"{name}.toml")


def all_studies() -> list[dict[str, Any]]:
    """Read every study of this repository, in the order of their names."""
    return [load_study(path) for path in sorted(CONFIGS.glob("*.toml"))]


def study_cells(study: dict[str, Any]) -> dict[str, list[int]]:
    """Return the seeds of each method: its own, or those that all methods share."""
    shared = study["training"]["seeds"]
    return {name: method.get("seeds", shared) for name, method in study["methods"].items()}


def methods_needed(method: dict[str, Any], study: dict[str, Any]) -> list[str]:
    """Return the methods of the study whose weights a method starts from or uses as its complementary encoder."""
    named = (method.get("start"), method.get("complementary"), method.get("base", {}).get("complementary"))
    return [name for name in dict.fromkeys(named) if name in study["methods"]]


def corpus_sentences(settings: dict[str, Any], data: Path) -> list[str]:
    """Read the training text, or its first ``sentences``.

    Args:
        settings: settings of a method or of a study's training.
        data: folder with the corpora and the STS sets.
    """
    corpus, limit = settings["corpus"], settings.get("sentences")
    if corpus == "sts":
        return sts_sentences(data)[:limit]
    return read_sentences(corpus if "://" in corpus else data / corpus, limit=limit)


def sts_sentences(data: Path) -> list[str]:
    """Read ``sts_unlabeled.txt[.gz]``, all sentences of the STS sets; if it is not there, those of the scored pairs."""
    from st_extras.evaluation import SEVEN_STS, load_sts  # here, because the tables import this file without torch

    for name in ("sts_unlabeled.txt", "sts_unlabeled.txt.gz"):
        if (data / name).is_file():
            return read_sentences(data / name)
    sets = [load_sts(name, data) for name in (*SEVEN_STS, "stsb_train", "stsb_dev", "sickr_train", "sickr_trial")]
    return [text for pairs in sets for text in (*pairs.sentences1, *pairs.sentences2)]
