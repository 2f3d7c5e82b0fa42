"""Studies that train: method x seed, keep the best weights by STS-B dev, score the seven STS sets.

Each cell (method and seed) is one record, named ``METHOD-SEED``; the base model's is ``start-0``. A cell that has its
record is skipped, so that a crash loses one cell only. If a cell needs the weights of another one and the work folder
does not hold them, the other cell runs first.

An encoder trained here (``path``) must have the weights that the records were made with: another kind of processor may
make other ones. Several processes may run the same study: each takes cells that no other process is running.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator

from benchmarks.building import has_negatives, make_loss, starting_encoder, training_rows
from benchmarks.records import append, has_run, provenance, records, run_once, weights_hash
from benchmarks.repal import run_after
from benchmarks.studies import Options, chosen, methods_needed, study_cells
from benchmarks.texts import DEV, corpus_sentences, thinned
from st_extras.evaluation import SEVEN_STS, STSEvaluator, load_sts
from st_extras.training import TrainingRun, train_encoder


def run(study: dict[str, Any], options: Options) -> None:
    """Run the cells of a study that have no record yet.

    Args:
        study: as ``load_study`` returns it.
        options: which methods and seeds, and the folders.

    Raises:
        FileNotFoundError: if the study's own encoder was not made yet.
        ValueError: if the records were made with another encoder than the study's folder holds.
    """
    check_same_encoder(study, options.root)
    work = options.work / study["name"]
    work.mkdir(parents=True, exist_ok=True)
    if study["training"].get("test", True):
        run_once(study["name"], "start-0", lambda: start_record(study, options.data), root=options.root)
    cells = study_cells(study)
    methods = chosen(options.methods, list(study["methods"]), "--methods")
    for seed in options.seeds or sorted({seed for name in methods for seed in cells[name]}):
        for name in methods:
            if seed not in cells[name]:
                continue
            lock = FileLock(work / f"{name}-{seed}.lock")  # the system releases it when a process is killed
            try:
                held = lock.acquire(timeout=0)
            except Timeout:
                print(f"{name}, seed {seed}: skipped, another process is running it.", flush=True)
                continue
            with held:
                if not has_run(study["name"], f"{name}-{seed}", root=options.root):
                    finish_cell(study, name, seed, options)


def check_same_encoder(study: dict[str, Any], root: Path) -> None:
    """Raise unless a study's own encoder is there, with the weights whose making ``root`` records, if it does."""
    path = study["encoder"].get("path")
    recorded = records("pretraining", Path(path).parent.name, root=root) if path else []
    if not recorded:
        return
    if not (Path(path) / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"{path} must hold an encoder, got no model.safetensors: python -m benchmarks run pretraining makes it."
        )
    known, found = recorded[0]["sha256"], weights_hash(Path(path))
    if found != known:
        raise ValueError(
            f"{path} must hold the weights that the records in {root} were made with (sha256 {known[:16]}), got "
            f"{found[:16]}: write records of another encoder to another folder, with --results."
        )


def finish_cell(study: dict[str, Any], name: str, seed: int, options: Options) -> None:
    """Run a cell and append its record; first the cells whose weights it needs, unless the work folder holds them."""
    work = options.work / study["name"]
    for other in methods_needed(study["methods"][name], study):
        with FileLock(work / f"{other}-{seed}.lock"):  # waits if another process is running that cell
            if not (work / f"{other}-{seed}" / "modules.json").exists():
                finish_cell(study, other, seed, options)
    record = run_cell(study, name, seed, options.data, work)
    if not has_run(study["name"], f"{name}-{seed}", root=options.root):  # it is there if only weights were missing
        append(study["name"], f"{name}-{seed}", record, root=options.root)
    line = f"dev {record['dev']:.2f} at step {record['best_step']}, average {record['average']}"
    print(f"{name}, seed {seed}: {line}, {record['seconds']:.0f} s", flush=True)


class InPrecision(BaseEvaluator):
    """STS-B dev, under bfloat16 autocast if the training is.

    Args:
        dev: chooses the weights that are kept.
        bf16: whether to use autocast.
    """

    def __init__(self, dev: BaseEvaluator, bf16: bool) -> None:
        super().__init__()
        self.dev, self.bf16 = dev, bf16
        self.primary_metric, self.greater_is_better = dev.primary_metric, dev.greater_is_better

    def __call__(self, model: SentenceTransformer, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self.bf16):
            return self.dev(model, *args, **kwargs)


def run_cell(study: dict[str, Any], name: str, seed: int, data: Path, work: Path) -> dict[str, Any]:
    """Train a method of a study and return its record.

    Args:
        study: the study, as ``load_study`` returns it.
        name: the method.
        seed: random seed for the training.
        data: folder with the corpora and the STS sets.
        work: folder for the weights of the study, one folder for each method and seed.
    """
    method = study["training"] | study["methods"][name]
    sentences = corpus_sentences(method, data)
    encoder = study["encoder"] | method.get("encoder", {})
    weights = {other: work / f"{other}-{seed}" for other in study["methods"]}
    model = starting_encoder(encoder)
    rows = training_rows(model, method, sentences, seed)
    dev = STSEvaluator([thinned(load_sts(DEV, data), method.get("pairs", {}))])
    evaluator = InPrecision(dev, method["bf16"])
    began, origin = time.perf_counter(), provenance()
    run = train_encoder(
        model,
        lambda trained: make_loss(trained, method, sentences, weights, data),
        rows,
        weights[name],
        evaluator=evaluator,
        batch_size=method["batch_size"],
        learning_rate=method["learning_rate"],
        max_steps=method["steps"],
        eval_steps=method["eval_steps"],
        bf16=method["bf16"],
        seed=seed,
        no_duplicates=has_negatives(method),
        overwrite=True,
        show_progress_bar=False,
        **method.get("arguments", {}),
    )
    scores = score_sets(model, data, method)
    sets = {key: 100 * scores[f"{key}_spearman_cosine"] for key in SEVEN_STS}
    return {
        "study": study["name"],
        **{key: study[key] for key in ("weights",) if key in study},
        "encoder": encoder,
        "method": name,
        "settings": method,
        "seed": seed,
        **training_figures(run),
        "scores": sets,
        "average": statistics.mean(sets.values()),
        "seconds": round(time.perf_counter() - began, 1),
        **post_processed(model, data, method),
        **origin,
    }


def start_record(study: dict[str, Any], data: Path) -> dict[str, Any]:
    """Score the encoder of a study before training and return its record."""
    model = starting_encoder(study["encoder"])
    settings = study["training"]
    scores = score_sets(model, data, settings, (*SEVEN_STS, DEV))
    sets = {key: 100 * scores[f"{key}_spearman_cosine"] for key in SEVEN_STS}
    return {
        "study": study["name"],
        **{key: study[key] for key in ("weights",) if key in study},
        "encoder": study["encoder"],
        "method": "start",
        "seed": 0,
        "steps": 0,
        "best_step": 0,
        "dev": 100 * scores["stsb_dev_spearman_cosine"],
        "scores": sets,
        "average": statistics.mean(sets.values()),
        **post_processed(model, data, settings),
    }


def score_sets(
    model: SentenceTransformer, data: Path, settings: dict[str, Any], names: Sequence[str] = SEVEN_STS
) -> dict[str, float]:
    """Return the metrics of the named sets, on as many pairs as the settings say."""
    counts = settings.get("pairs", {})
    evaluator = STSEvaluator([thinned(load_sts(name, data), counts) for name in names])
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bool(counts) and settings["bf16"]):
        scores: dict[str, float] = evaluator(model)
    return scores


def post_processed(model: SentenceTransformer, data: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Score the seven sets after each post-processing that the settings name."""
    variants = settings.get("post_processing")
    return {"post_processing": run_after(model, data, variants, bf16=settings["bf16"])} if variants else {}


def training_figures(run: TrainingRun) -> dict[str, Any]:
    """Return the steps of a training and its curve on STS-B dev."""
    return {
        "steps": run.steps,
        "best_step": run.best_step,
        "dev": 100 * (run.best or 0),
        "curve": [[step, round(100 * value, 3)] for step, value in run.curve],
        "log": logged(run),
    }


def logged(run: TrainingRun) -> list[list[Any]]:
    """Return [step, {name: value}] of each entry of the log: training loss, its terms, the loss's instruments."""
    others = {"step", "epoch", "grad_norm", "learning_rate"}
    return [
        [entry["step"], {name: float(f"{value:.5g}") for name, value in entry.items() if name not in others}]
        for entry in run.trainer.state.log_history
        if "loss" in entry
    ]
