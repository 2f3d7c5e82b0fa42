"""The studies: configuration files that say what is run.

A study is a TOML file in ``configs/``, read by ``load_study``. ``about`` says in a line what it asks; ``kind`` names
the module of ``benchmarks`` that runs it, "training" unless it is given. That kind trains methods and scores them:

* ``[encoder]``: the base model, as options of ``load_encoder``; the packaged MiniLM unless ``path`` is given.
* ``[training]``: the settings that all methods share.
* ``[methods.NAME]``: adds to the shared settings or replaces them.

Settings of a method:

* ``loss`` and its ``options``; ``base``: the same for the loss inside SLT-FAI or PaSeR.
* ``complementary``: the frozen encoder of DCLR: a method of the study (its weights with the same seed), ``minilm``,
  ``whitened`` (the untrained encoder, softly whitened on the training text), or a folder.
* ``start``: a method of the study whose weights training starts from.
* ``corpus``: a file in the data folder, an address (``hf://...``), or ``sts``: the unlabeled sentences of the STS
  sets; ``sentences``: how many of its sentences to take. ``sts-unseen``: short ones that no scored set holds, evenly
  spaced.
* ``masking``: how PaSeR's rows are made (``building.phrase_rows``).
* ``frequencies``: a table of token counts; it also turns on the frequency probe, unless ``probe = false``.
* ``steps``, ``eval_steps``, ``batch_size``, ``learning_rate``, ``bf16``; ``arguments``: further ones of
  ``train_encoder``; ``length_buckets``: groups of rows with like length; ``seeds``.
* ``eval_at``: further steps to evaluate at, beside every ``eval_steps``.
* ``signals`` and ``geometry``: how many sentences to compute the label-free signals and the geometry on.
* ``post_processing``: variants of ``benchmarks/variants.py`` to score after training.
* ``rows``: options of a baseline's rows (``benchmarks/baselines.py``).
* ``test = false``: score STS-B dev only.
* ``pairs``: score so many pairs of each set, evenly spaced, as ``benchmarks/decoders.py`` does; with ``bf16`` in it.
* ``chosen_in``: a study that searched settings. The method has those of its rows named ``METHOD-...`` that STS-B dev
  scored best, as ``chosen`` then says, with what is set here on top; before all of them have a record, it cannot run.

``papers/`` holds the papers' own settings, for a GPU; such a study is called ``papers/NAME``.

A first line ``base = "OTHER.toml"`` makes a study an addition to another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from benchmarks.records import RESULTS, ROOT, records
from st_extras.text import read_sentences

CONFIGS = ROOT / "configs"
SHORT = 100  # characters of a sentence of "sts-unseen"


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
    """

    data: Path
    work: Path = Path("runs")
    root: Path = RESULTS
    methods: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    encoders: Sequence[str] | None = None
    sets: Sequence[str] | None = None


def chosen(given: Sequence[Any] | None, known: Sequence[Any], name: str) -> list[Any]:
    """Return those of ``known`` that are given, or all if none is.

    Raises:
        ValueError: if one is not known.
    """
    unknown = [one for one in given or () if one not in known]
    if unknown:
        raise ValueError(f"{name} must be of {', '.join(map(str, known))}, got {', '.join(map(str, unknown))}.")
    return [one for one in known if given is None or one in given]


def load_study(path: Path) -> dict[str, Any]:
    """Read a configuration. If it names a ``base``, its tables add to those of the base or replace their entries."""
    study = tomllib.loads(path.read_text(encoding="utf8"))
    if "base" in study:
        base = load_study(path.with_name(study.pop("base")))
        del base["name"]
        tables = {name: value | study.get(name, {}) for name, value in base.items() if isinstance(value, dict)}
        study = base | study | tables
    for method, settings in study.get("methods", {}).items():
        if "chosen_in" in settings:
            study["methods"][method] = chosen_settings(method, settings["chosen_in"]) | settings
    name = f"papers/{path.stem}" if path.parent.name == "papers" else path.stem
    return {"name": name, "kind": "training", **study}


def chosen_settings(method: str, search: str) -> dict[str, Any]:
    """Return the settings that STS-B dev chose for a method in a study of searched settings.

    The first ones that the study lists stand in, without ``chosen``, until all of them have a record.
    """
    study = named_study(search)
    rate = {"learning_rate": study["training"]["learning_rate"]}
    listed = {name: rate | own for name, own in study["methods"].items() if name.startswith(f"{method}-")}
    dev = {record["method"]: record["dev"] for record in records(search) if record["method"] in listed}
    if dev.keys() != listed.keys():
        return next(iter(listed.values()))
    best = max(dev, key=dev.__getitem__)
    return listed[best] | {"chosen": best}


def check_chosen(name: str, method: dict[str, Any]) -> None:
    """Refuse to run a method before its settings were chosen.

    Raises:
        ValueError: if the study that searches them is not complete.
    """
    if "chosen_in" in method and "chosen" not in method:
        raise ValueError(
            f"{name} must have its settings chosen, got {method['chosen_in']!r} without the records of all of them: "
            "run that study first."
        )


def study_names() -> list[str]:
    """Return the names of all configurations."""
    return sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.toml"))


def named_study(name: str) -> dict[str, Any]:
    """Read a study of this repository.

    Raises:
        ValueError: if there is no configuration of this name.
    """
    path = CONFIGS / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"STUDY must be a name in benchmarks/configs, got {name!r}: see python -m benchmarks list.")
    return load_study(path)


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
    if corpus == "sts-unseen":
        return unseen_sentences(data, limit)
    return read_sentences(corpus if "://" in corpus else data / corpus, limit=limit)


def unseen_sentences(data: Path, count: int) -> list[str]:
    """Return sentences of the STS sets of at most SHORT characters that none of the scored ones holds."""
    from benchmarks.fitted_text import spaced, without_sentences  # here, because the tables import this file
    from st_extras.evaluation import SEVEN_STS, load_sts

    scored = [load_sts(name, data) for name in ("stsb_dev", *SEVEN_STS)]
    return spaced([s for s in without_sentences(sts_sentences(data), scored) if len(s) <= SHORT], count)


def sts_sentences(data: Path) -> list[str]:
    """Read ``sts_unlabeled.txt[.gz]``, all sentences of the STS sets; if it is not there, those of the scored pairs."""
    from st_extras.evaluation import SEVEN_STS, load_sts  # here, because the tables import this file without torch

    for name in ("sts_unlabeled.txt", "sts_unlabeled.txt.gz"):
        if (data / name).is_file():
            return read_sentences(data / name)
    sets = [load_sts(name, data) for name in (*SEVEN_STS, "stsb_train", "stsb_dev", "sickr_train", "sickr_trial")]
    return [text for pairs in sets for text in (*pairs.sentences1, *pairs.sentences2)]
