"""The papers' tables: the study ``papers``, its plan, and its encoder.

Before anything is downloaded, the encoder's name, the methods and the records are checked. Then the plan is printed:
what will be run and downloaded, and how long it takes on this device, by timed steps of each loss on the encoder's
shape with random weights. Cells run as in every study that trains (``benchmarks/training.py``).
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from nltk.data import find
from sentence_transformers.util import batch_to_device
from tqdm.std import tqdm
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

from benchmarks import hub
from benchmarks.building import COUNTED, is_pair_loss, make_loss, processes, starting_encoder, training_rows
from benchmarks.records import RESULTS, records
from benchmarks.studies import SENTENCES, Mistake, Options, cell_steps
from benchmarks.tables.render import of_texts
from benchmarks.texts import corpus_sentences, read_counts
from benchmarks.training import has_cell, hours, run_cells, say, wanted_cells
from st_extras.encoder_names import find_encoder
from st_extras.samples import sample_sentences
from st_extras.text import PhraseMasking
from st_extras.training.processes import launched_rank

HUB = "hub"
"""In place of the data folder: take the data from the Hugging Face hub."""
STEPS, PATIENCE = 20, 30.0
"""Steps of each loss that are timed, and the seconds after which fewer are enough."""
SCORED, DEV = 50_000, 3_000
"""Sentences of the scored sets and of STS-B dev, which each evaluation encodes."""


def run(study: dict[str, Any], options: Options) -> None:
    """Print the plan and, unless it is all that is asked for, run the cells that have no record yet.

    Args:
        study: as ``load_study`` returns it.
        options: what to run, and where; ``data`` may be "hub".

    Raises:
        Mistake: if the encoder, a method, a seed or the records do not fit, before anything is downloaded.
        SystemExit: if a cell failed; the others ran.
    """
    if options.encoder is not None and options.encoder != study["encoder"]["path"]:
        study = study | {"encoder": study["encoder"] | {"path": options.encoder}}
        options = replace(options, **own_folders(options, options.encoder))
    if options.mini_batch_size is not None and options.mini_batch_size < 1:
        raise Mistake(f"--mini-batch-size must be at least 1, got {options.mini_batch_size}.")
    if processes() > 1 and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    chinese = study["name"].endswith("_zh")
    wanted_cells(study, options)  # for its errors alone, before an encoder or a record is looked for
    check_records(study, options)
    downloads = hub.check_encoder(study["encoder"]["path"])
    left = [cell for cell in wanted_cells(study, options) if not has_cell(study, *cell, options)]
    if not left:
        say(f"All cells have a record in {options.root}.")
        return
    guides = [study["methods"][name].get("guide") for name, _ in left]
    for guide in sorted({guide["path"] for guide in guides if guide is not None}):
        downloads += hub.check_encoder(guide, "guide")
    from_hub = str(options.data) == HUB
    folder = options.work / f"{study['name']}-data" if from_hub else options.data
    if from_hub and not (folder / "complete").is_file():
        downloads += hub.data_downloads(chinese=chinese)
    elif not from_hub:
        check_data(study, left, folder)
    study = for_device(study, options.mini_batch_size)
    expected = print_plan(study, left, downloads, folder)
    if options.only_plan:
        return
    if from_hub:
        hub.data_folder(folder, chinese=chinese)
    options = replace(options, data=folder)
    run_cells(with_frequencies(study, folder), options, expected)


# --- checks ---


def own_folders(options: Options, encoder: str) -> dict[str, Path]:
    """Return the folders of another encoder than the study's: for its records, unless one is named, and its weights.

    Each encoder has its own: what can be read of the name may be that of another one, the digest is not.
    """
    encoder = encoder.rstrip("/")
    readable = re.sub(r"[^\w.-]+", "_", encoder)[-60:].strip("._-")
    name = f"{readable or 'encoder'}-{hashlib.sha256(encoder.encode()).hexdigest()[:8]}"
    root = options.root / "encoders" / name if options.root == RESULTS else options.root
    return {"root": root, "work": options.work / name}


def check_records(study: dict[str, Any], options: Options) -> None:
    """Raise unless all records in the folder are of the study's encoder.

    Raises:
        Mistake: if one is of another encoder.
    """
    own = study["encoder"]["path"]
    others = {record["encoder"]["path"] for record in records(study["name"], root=options.root)} - {own}
    if others:
        raise Mistake(
            f"--results must hold records of {own!r} alone, got some of {min(others)!r} in {options.root}: name "
            "another folder."
        )


def check_data(study: dict[str, Any], cells: Sequence[tuple[str, int]], folder: Path) -> None:
    """Raise unless the data folder has the texts that the cells train on.

    Raises:
        Mistake: if the folder or a text is not there.
    """
    if not folder.is_dir():
        raise Mistake(f"--data must be a folder or {HUB!r}, got {str(folder)!r}: with {HUB!r}, it is downloaded.")
    corpora = {(study["training"] | study["methods"][name])["corpus"] for name, _ in cells if trains(study, name)}
    for corpus in sorted(corpora - {"sts"}):
        if not (folder / corpus).is_file():
            raise Mistake(f"--data must hold {corpus}, got {str(folder)!r} without: --data {HUB} downloads it.")


def trains(study: dict[str, Any], name: str) -> bool:
    """Return whether a method of the study is trained."""
    return "loss" in study["methods"][name]


# --- what depends on the device and the data ---


def for_device(study: dict[str, Any], mini_batch_size: int | None) -> dict[str, Any]:
    """Return the study with bfloat16 where the device has it, and with mini-batches where they are asked for."""
    study = copy.deepcopy(study)
    study["training"].setdefault("bf16", torch.cuda.is_available() and torch.cuda.is_bf16_supported())
    for method in study["methods"].values():
        if mini_batch_size is not None and is_pair_loss(method.get("loss", "SLTFAILoss")):
            method["options"] = method.get("options", {}) | {"mini_batch_size": mini_batch_size}
    return study


def with_frequencies(study: dict[str, Any], data: Path) -> dict[str, Any]:
    """Return the study with counts of the training text where the folder has none of this encoder's tokenizer."""
    file = data / study["training"].get("frequencies", "")
    tokenizer = AutoTokenizer.from_pretrained(find_encoder(study["encoder"]["path"]))
    fits = file.is_file()
    try:
        if fits:
            read_counts(file, tokenizer)
    except ValueError:  # of another tokenizer
        fits = False
    return study if fits else study | {"training": study["training"] | {"frequencies": COUNTED}}


# --- the plan ---


@dataclass(frozen=True)
class Cost:
    """What the cells of a method take.

    Attributes:
        steps: of one cell.
        step_seconds: of one step; 0 without training.
        other_seconds: of the evaluations and of the scoring at the end.
        timed: how many steps were timed.
        memory: peak bytes on the GPU; None on a CPU.
    """

    steps: int = 0
    step_seconds: float = 0.0
    other_seconds: float = 0.0
    timed: int = 0
    memory: int | None = None

    @property
    def seconds(self) -> float:
        """Seconds of one cell."""
        return self.steps * self.step_seconds + self.other_seconds


def print_plan(
    study: dict[str, Any], cells: Sequence[tuple[str, int]], downloads: Sequence[hub.Download], data: Path
) -> dict[str, float]:
    """Print what will be run, downloaded and used, and return the seconds of a cell by its method.

    Of several processes, the first times its share of each step on its own device.
    """
    if launched_rank() > 0:
        return {}
    costs = timed_costs(study, [name for name in study["methods"] if any(name == one for one, _ in cells)], data)
    rows = {}
    for name, cost in costs.items():
        count = sum(one == name for one, _ in cells)
        rows[name] = {
            "cells": str(count),
            "steps of each": f"{cost.steps:,}" if cost.steps else "",
            "ms a step": f"{1000 * cost.step_seconds:.0f} ({cost.timed} timed)" if cost.steps else "",
            "GPU memory": "" if cost.memory is None or not cost.steps else f"{cost.memory / 2**30:.1f} GiB",
            "time": hours(count * cost.seconds),
        }
    total = sum(costs[name].seconds for name, _ in cells)
    rows["all"] = {"cells": str(len(cells)), "time": hours(total)}
    say(of_texts("method", rows).written())
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    precision = "bfloat16" if study["training"]["bf16"] else "float32"
    say(f"\nOn this device: {processes()} x {device}, {precision}. Encoder: {study['encoder']['path']}.")
    for download in downloads:
        state = "in the cache" if download.is_cached else "to download"
        say(f"{download.name}: {download.size / 1e6:,.0f} MB, {state}")
    if any("synonym_ratio" in study["methods"][name].get("masking", {}) for name in costs) and not has_wordnet():
        say("WordNet: 11 MB, not there: python -m nltk.downloader wordnet (without it, cells with synonyms fail)")
    return {name: cost.seconds for name, cost in costs.items()}


def has_wordnet() -> bool:
    """Return whether NLTK finds WordNet, packed or not."""
    for place in ("corpora/wordnet", "corpora/wordnet.zip"):
        try:
            find(place)
        except LookupError:
            continue
        return True
    return False


def timed_costs(study: dict[str, Any], methods: Sequence[str], data: Path) -> dict[str, Cost]:
    """Return what a cell of each method takes on this device, by ``STEPS`` timed steps, or as many as fit PATIENCE.

    The encoder has the study's shape and random weights, so that nothing but its configuration and tokenizer is loaded.
    """
    costs: dict[str, Cost] = {}
    with random_encoder(study["encoder"]["path"]) as path:
        encoding = seconds_to_encode(study["encoder"] | {"path": path})
        known: dict[str, Cost] = {}  # of the same step
        for name in tqdm(methods, desc="timing", leave=False, disable=len(methods) < 2):
            method = study["training"] | study["methods"][name]
            passes = 1 + 2 * len(method.get("post_processing", []))
            if not trains(study, name):
                costs[name] = Cost(other_seconds=passes * SCORED * encoding)
                continue
            method = without_downloads(method, path)
            parts = ("loss", "options", "base", "encoder", "batch_size", "guide", "masking", "rows")
            key = json.dumps([method.get(part) for part in parts])
            if key not in known:
                known[key] = timed_step(study["encoder"] | method.get("encoder", {}) | {"path": path}, method)
            steps = steps_of(method, data)
            evaluations = steps / method["eval_steps"] * DEV + passes * SCORED
            costs[name] = replace(known[key], steps=steps, other_seconds=evaluations * encoding)
    return costs


def without_downloads(method: dict[str, Any], encoder: str) -> dict[str, Any]:
    """Return a method whose guide has the encoder's shape, and that needs neither token counts nor synonyms.

    A step costs the same.
    """
    found = {**method, "frequencies": COUNTED}
    if "guide" in method:
        found["guide"] = method["guide"] | {"path": encoder}
    if "masking" in method:
        found["masking"] = {key: value for key, value in method["masking"].items() if key != "synonym_ratio"}
    return found


def steps_of(method: dict[str, Any], data: Path) -> int:
    """Return the steps of a cell, of the data where it is there; PaSeR's rows by those of the sample sentences."""
    rows = float(sentence_count(method["corpus"], data))
    if "masking" in method:
        sample = sample_sentences()
        rows *= len(PhraseMasking(**method["masking"])(sample)["sentence"]) / len(sample)
    return cell_steps(method, rows)


@cache
def sentence_count(corpus: str, data: Path) -> int:
    """Return how many sentences a training text has, as its authors say where it is not there yet."""
    if data.is_dir() and (corpus == "sts" or (data / corpus).is_file()):
        return len(corpus_sentences({"corpus": corpus}, data))
    return SENTENCES[corpus]


@contextmanager
def random_encoder(name: str) -> Iterator[str]:
    """Write an encoder of the same shape with random weights, and its tokenizer, to a folder for the block."""
    name = find_encoder(name)
    config = AutoConfig.from_pretrained(name)
    masked = any("MaskedLM" in architecture for architecture in config.architectures or [])
    with tempfile.TemporaryDirectory() as folder:
        make: Any = AutoModelForMaskedLM if masked else AutoModel
        make.from_config(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(name).save_pretrained(folder)
        yield folder


def seconds_to_encode(encoder: dict[str, Any], count: int = 256) -> float:
    """Return the seconds to encode a sentence, on average of ``count``."""
    model, texts = starting_encoder(encoder), sample_sentences()[:count]
    model.encode(texts[:32], show_progress_bar=False)
    began = time.perf_counter()
    model.encode(texts, batch_size=64, show_progress_bar=False)
    return (time.perf_counter() - began) / len(texts)


def timed_step(encoder: dict[str, Any], method: dict[str, Any]) -> Cost:
    """Return the seconds and the memory of a step of a method: loss, gradients and optimizer, as in its training."""
    share = method["batch_size"] // processes()
    model = starting_encoder(encoder)
    texts = sample_sentences()
    loss = make_loss(model, method, texts, {}, Path())
    rows = training_rows(model, method, texts, 0)
    columns = [texts] if rows is texts else [list(rows[name]) for name in rows.column_names]
    drawn = [cycle(column) for column in columns]
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-6)
    loss.to(model.device).train()
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds: list[float] = []
    while len(seconds) <= STEPS and (len(seconds) < 2 or sum(seconds) < PATIENCE):  # the first one warms up
        batch = [list(islice(column, share)) for column in drawn]
        began = time.perf_counter()
        features = [batch_to_device(model.preprocess(column), model.device) for column in batch]
        with torch.autocast(model.device.type, torch.bfloat16, enabled=method["bf16"]):
            value = loss(features, None)
        sum(value.values()).backward() if isinstance(value, dict) else value.backward()
        optimizer.step()
        optimizer.zero_grad()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    timed = seconds[1:]
    memory = torch.cuda.max_memory_allocated() if on_gpu else None
    return Cost(step_seconds=sum(timed) / len(timed), timed=len(timed), memory=memory)
