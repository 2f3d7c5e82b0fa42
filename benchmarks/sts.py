"""Train encoder x method x seed, keep the best weights by STS-B dev, score the seven STS sets.

    python -m benchmarks.sts benchmarks/configs/foundation.toml --data DATA_FOLDER [--methods simcse --seeds 0 1]
    python -m benchmarks.sts benchmarks/configs/own_encoder.toml benchmarks/configs/recipes.toml --data DATA_FOLDER
    python -m benchmarks.sts benchmarks/configs/foundation.toml --table
    python -m benchmarks.sts --smoke

A study is a TOML file. ``[encoder]`` is where training starts, ``[training]`` holds what all methods share, and each
``[methods.NAME]`` adds to it or replaces it: ``loss`` and its ``options``, further ``arguments`` of ``train_encoder``,
``base`` (a loss within SLT-FAI), ``complementary`` (DCLR's other encoder: a method, whose weights of the same seed it
takes, ``minilm`` or a folder), ``start`` (a method whose weights it starts from), ``masking`` (PaSeR's rows),
``frequencies`` (a table of counts, which also has the frequency probe run), ``sentences`` (so many of the corpus),
``signals`` and ``geometry`` (so many sentences to watch), ``post_processing`` (variants of ``benchmarks.repal`` to
score after training), ``test = false`` (STS-B dev alone). A first line ``base = "OTHER.toml"`` makes it an addition to
another study. Several files are run one after another.

Each cell is one file under ``benchmarks/results/STUDY/``: a finished cell is not run again, a crash loses one. To run
again what this repository holds records of, send the new ones elsewhere: ``--results FOLDER``. A cell that needs
another's weights, which ``runs/`` lacks, has that one run first.
Several runs of this command may share a grid: each takes the cells that no other is at.
``--smoke`` runs every method for a few steps on the sample sentences and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import tomllib
import torch
from filelock import FileLock, Timeout
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn

import st_extras.losses
from benchmarks.common import provenance, write_json
from benchmarks.distillation import DistillationLoss
from benchmarks.records import RESULTS, table
from benchmarks.repal import run_after
from st_extras.complementary import EmbeddingTable
from st_extras.demo import packaged_minilm
from st_extras.evaluation import (
    SEVEN_STS,
    FrequencyBiasEvaluator,
    GeometryEvaluator,
    UnlabeledSelectionEvaluator,
    sts_evaluator,
)
from st_extras.losses import AdCSELoss
from st_extras.modules.length_buckets import use_length_buckets
from st_extras.modules.loading import load_encoder
from st_extras.runs import TrainingRun, train_encoder
from st_extras.text.augmentation import EDA
from st_extras.text.corpus import read_sentences
from st_extras.text.frequency import FrequencyTable
from st_extras.text.phrases import PhraseMasking


def load_study(path: Path) -> dict[str, Any]:
    """A configuration; each of its tables adds to, or replaces entries of, that of the file which ``base`` names."""
    study = tomllib.loads(path.read_text(encoding="utf8"))
    if "base" in study:
        base = load_study(path.with_name(study.pop("base")))
        study = {name: value | study.get(name, {}) for name, value in base.items() if name != "name"}
    return {"name": path.stem, **study}


def study_cells(study: dict[str, Any]) -> dict[str, list[int]]:
    """The seeds of each method: its own, or those that all methods share."""
    shared = study["training"]["seeds"]
    return {name: method.get("seeds", shared) for name, method in study["methods"].items()}


def starting_encoder(settings: dict[str, Any]) -> SentenceTransformer:
    options = dict(settings)
    return load_encoder(options.pop("path", None) or packaged_minilm(), **options)


def loss_class(name: str) -> Any:
    """A class of st_extras.losses, or of the benchmarks where it is a paper's comparison and no method."""
    return DistillationLoss if name == "DistillationLoss" else getattr(st_extras.losses, name)


def phrase_rows(model: SentenceTransformer, masking: dict[str, Any], sentences: list[str]) -> Any:
    """PaSeR's data set; ``augmentation`` in ``masking`` holds the ratios of EDA."""
    options = dict(masking)
    if "augmentation" in options:
        options["augmentation"] = EDA(**options["augmentation"])
    return PhraseMasking(mask_token=model.tokenizer.mask_token, **options).dataset(sentences)


def complementary_weights(name: str, weights: dict[str, Path]) -> Path:
    """Those of a method of the study, of the whole packaged all-MiniLM-L6-v2 ("minilm"), or of a folder."""
    if name in weights:
        return weights[name]
    return packaged_minilm() if name == "minilm" else Path(name)


def make_loss(
    model: SentenceTransformer, method: dict[str, Any], sentences: list[str], weights: dict[str, Path], data: Path
) -> nn.Module:
    """The loss of a method: its class, its options, and what has to be built for it."""
    options = dict(method.get("options", {}))
    if method["loss"] == "SLTFAILoss":
        options["frequency_table"] = frequency_table(model, method, data)
        options["base_loss"] = make_loss(model, method["base"], sentences, weights, data)
    if "complementary" in method:
        guide = load_encoder(complementary_weights(method["complementary"], weights))
        options["complementary_table"] = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    loss: nn.Module = loss_class(method["loss"])(model, **options)
    return loss


class Watched(BaseEvaluator):
    """STS-B dev, and beside it every signal that needs no labels, under bfloat16 autocast where the training is."""

    def __init__(self, dev: BaseEvaluator, signals: BaseEvaluator | None, bf16: bool) -> None:
        super().__init__()
        self.dev, self.signals, self.bf16 = dev, signals, bf16
        self.primary_metric, self.greater_is_better = dev.primary_metric, dev.greater_is_better
        self.seen: list[dict[str, float]] = []

    def __call__(self, model: SentenceTransformer, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self.bf16):
            if self.signals is not None:
                self.seen.append(self.signals(model))
            return self.dev(model, *args, **kwargs)


def checkpoints(run: TrainingRun, watched: Watched) -> list[dict[str, Any]]:
    """What the run showed at every evaluation, for ``benchmarks/selection.py``."""
    losses = {entry["step"]: entry["loss"] for entry in run.trainer.state.log_history if "loss" in entry}
    return [
        {"step": step, "dev_spearman": value, "training_loss": losses.get(step), "signals": signals}
        for (step, value), signals in zip(run.curve, watched.seen, strict=True)
    ]


def run_cell(study: dict[str, Any], name: str, seed: int, data: Path, work: Path) -> dict[str, Any]:
    method = study["training"] | study["methods"][name]
    sentences = corpus_sentences(method, data)
    encoder = study["encoder"] | method.get("encoder", {})
    weights = {other: work / f"{other}-{seed}" for other in study["methods"]}
    model = load_encoder(weights[method["start"]]) if "start" in method else starting_encoder(encoder)
    rows: Any = sentences
    if "masking" in method:  # PaSeR's rows; no in-batch negatives, so equal sentences may meet
        rows = phrase_rows(model, method["masking"], sentences)
    if method.get("length_buckets"):
        use_length_buckets(model, method["length_buckets"])
    size = method.get("signals", 0)
    signals = UnlabeledSelectionEvaluator(sentences, size=size, write_csv=False) if size else None
    watched = Watched(sts_evaluator("stsb_dev", data), signals, method["bf16"])
    began, origin = time.perf_counter(), provenance()
    run = train_encoder(
        model,
        lambda trained: make_loss(trained, method, sentences, weights, data),
        rows,
        weights[name],
        evaluator=watched,
        batch_size=method["batch_size"],
        learning_rate=method["learning_rate"],
        max_steps=method["steps"],
        eval_steps=method["eval_steps"],
        bf16=method["bf16"],
        seed=seed,
        no_duplicates="masking" not in method,
        overwrite=True,
        show_progress_bar=False,
        **method.get("arguments", {}),
    )
    scores = sts_evaluator(SEVEN_STS, data)(model) if method.get("test", True) else {}  # an exploration sees dev alone
    extra: dict[str, Any] = {"checkpoints": checkpoints(run, watched)} if size else {}
    if isinstance(run.trainer.loss, AdCSELoss):
        extra["adversary_share"] = float(run.trainer.loss.adversary_share)
        extra["adversary_similarity"] = float(run.trainer.loss.adversary_similarity)
    extra |= post_processed(model, method, sentences, data) | watched_space(model, method, sentences, data)
    if "masking" in method:
        extra["reconstructed"] = reconstructed(run.trainer.loss, rows)
    shutil.rmtree(weights[name] / "checkpoints", ignore_errors=True)
    return {
        "study": study["name"],
        "encoder": encoder,
        "method": name,
        "settings": method,
        "seed": seed,
        "steps": run.steps,
        "best_step": run.best_step,
        "dev": 100 * (run.best or 0),
        "curve": [[step, round(100 * value, 3)] for step, value in run.curve],
        "scores": {key: 100 * scores[f"{key}_spearman_cosine"] for key in SEVEN_STS if scores},
        "average": 100 * scores["average_spearman_cosine"] if scores else None,
        "seconds": round(time.perf_counter() - began, 1),
        **extra,
        **origin,
    }


def corpus_sentences(settings: dict[str, Any], data: Path) -> list[str]:
    """The training text, or the first ``sentences`` of it."""
    return read_sentences(data / settings["corpus"], limit=settings.get("sentences"))


def post_processed(
    model: SentenceTransformer, settings: dict[str, Any], sentences: list[str], data: Path
) -> dict[str, Any]:
    """The seven sets again, behind each post-processing that the settings name; what is fitted on the training text is
    on 20,000 of its sentences.
    """
    variants, text = settings.get("post_processing"), spaced(sentences, 20_000)
    return {"post_processing": run_after(model, data, variants, text, bf16=settings["bf16"])} if variants else {}


def watched_space(
    model: SentenceTransformer, settings: dict[str, Any], sentences: list[str], data: Path
) -> dict[str, dict[str, float]]:
    """What the settings ask to know of the embedding space: the frequency probe on 2,000 of the sentences, and the
    geometry of so many of them.
    """
    found: dict[str, dict[str, float]] = {}
    if "frequencies" in settings:
        table = frequency_table(model, settings, data)
        found["frequency_bias"] = FrequencyBiasEvaluator(spaced(sentences, 2000), frequency_table=table)(model)
    if "geometry" in settings:
        found["geometry"] = GeometryEvaluator(spaced(sentences, settings["geometry"]), write_csv=False)(model)
    return found


def spaced(sentences: list[str], count: int) -> list[str]:
    """``count`` of the sentences, evenly spaced."""
    return sentences[:: max(len(sentences) // count, 1)][:count]


def frequency_table(model: SentenceTransformer, settings: dict[str, Any], data: Path) -> FrequencyTable:
    """The counts that ``frequencies`` names: a file of the data folder, or one that a pre-training left."""
    file = data / settings["frequencies"]
    return FrequencyTable.from_file(file if file.exists() else Path(settings["frequencies"]), model.tokenizer)


def reconstructed(loss: Any, rows: Any) -> list[dict[str, str]]:
    """Ten phrases and what the kept weights decode in their place; the corpus's sentences are not the record's."""
    chosen = rows.select(range(0, len(rows), len(rows) // 10)).select(range(10))
    phrases = loss.reconstruct(list(chosen["sentence"]), list(chosen["masked"]))
    return [{"phrase": row["phrase"], "reconstructed": phrase} for row, phrase in zip(chosen, phrases, strict=True)]


def score_start(study: dict[str, Any], data: Path) -> dict[str, Any]:
    """The encoder before any training, as a record."""
    model = starting_encoder(study["encoder"])
    scores = sts_evaluator((*SEVEN_STS, "stsb_dev"), data)(model)
    sets = {key: 100 * scores[f"{key}_spearman_cosine"] for key in SEVEN_STS}
    sentences = corpus_sentences(study["training"], data)
    return {
        "study": study["name"],
        "encoder": study["encoder"],
        "method": "start",
        "seed": 0,
        "steps": 0,
        "best_step": 0,
        "dev": 100 * scores["stsb_dev_spearman_cosine"],
        "scores": sets,
        "average": statistics.mean(sets.values()),
        **post_processed(model, study["training"], sentences, data),
        **watched_space(model, study["training"], sentences, data),
        **provenance(),
    }


def run_study(
    study: dict[str, Any], methods: list[str], only: list[int] | None, data: Path, work: Path, root: Path = RESULTS
) -> None:
    results = root / study["name"]
    if study["training"].get("test", True) and not (results / "start-0.json").exists():
        write_json(results / "start-0.json", score_start(study, data))
    cells = study_cells(study)
    work.mkdir(parents=True, exist_ok=True)
    for seed in only or study["training"]["seeds"]:
        for name in methods:
            if seed not in cells[name]:
                continue
            lock = FileLock(work / f"{name}-{seed}.lock")  # a run that is killed lets go of it
            try:
                held = lock.acquire(timeout=0)
            except Timeout:
                print(f"{name}, seed {seed}: another run is at it.", flush=True)
                continue
            with held:
                if not (results / f"{name}-{seed}.json").exists():
                    finish_cell(study, name, seed, data, work, results)


def finish_cell(study: dict[str, Any], name: str, seed: int, data: Path, work: Path, results: Path) -> None:
    """Run a cell and write its record, after the cells whose weights it needs where ``work`` lacks these."""
    for other in methods_needed(study["methods"][name], study):
        with FileLock(work / f"{other}-{seed}.lock"):  # where another run is at it, its end is waited for
            if not (work / f"{other}-{seed}" / "modules.json").exists():
                finish_cell(study, other, seed, data, work, results)
    record = run_cell(study, name, seed, data, work)
    target = results / f"{name}-{seed}.json"
    if not target.exists():  # it does where only the weights were missing
        write_json(target, record)
    line = f"dev {record['dev']:.2f} at step {record['best_step']}, average {record['average']}"
    print(f"{name}, seed {seed}: {line}, {record['seconds']:.0f} s", flush=True)


def methods_needed(method: dict[str, Any], study: dict[str, Any]) -> list[str]:
    """The methods of the study whose weights a method starts from or takes for its complementary encoder."""
    named = (method.get("start"), method.get("complementary"), method.get("base", {}).get("complementary"))
    return [name for name in dict.fromkeys(named) if name in study["methods"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path, nargs="*", metavar="CONFIG")
    parser.add_argument("--data", type=Path, default=os.environ.get("ST_EXTRAS_DATA"))
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--work", type=Path, default=Path("runs"), help="weights and checkpoints go here")
    parser.add_argument("--results", type=Path, default=RESULTS, help="records go here (default: %(default)s)")
    parser.add_argument("--table", action="store_true", help="print the results so far and end")
    parser.add_argument("--smoke", action="store_true", help="a few steps of every method, on the sample sentences")
    options = parser.parse_args()
    if options.smoke:
        from benchmarks.smoke import run_smoke  # which runs this module's studies

        with tempfile.TemporaryDirectory() as folder:
            run_smoke(Path(folder))
        return
    if not options.configs:
        parser.error("CONFIG, the study's file, is missing.")
    if options.data is None and not options.table:
        parser.error("--data FOLDER (or ST_EXTRAS_DATA) must name the folder with the STS sets.")
    for study in map(load_study, options.configs):
        if not options.table:
            methods = options.methods or list(study["methods"])
            run_study(study, methods, options.seeds, Path(options.data), options.work / study["name"], options.results)
        print(table(study["name"], options.results))


if __name__ == "__main__":
    main()
