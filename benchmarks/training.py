"""Studies that train: method x seed, keep the best weights by STS-B dev, score the seven STS sets.

Each cell (method and seed) is one record, named ``METHOD-SEED``; the base model's is ``start-0``. A cell that has its
record is skipped, and one that was interrupted resumes from its last checkpoint. A cell that fails is recorded as
``METHOD-SEED-failed-NUMBER`` with its reason, and the others run. If a cell needs the weights of another one and the
work folder does not hold them, the other cell runs first.

An encoder trained here (``path``) must have the weights that the records were made with: another kind of processor may
make other ones. Several processes may run the same study: each takes cells that no other process is running.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import distributed as dist

from benchmarks.building import (
    has_negatives,
    is_pair_loss,
    make_loss,
    processes,
    share_of_a_process,
    starting_encoder,
    training_rows,
)
from benchmarks.domains import adapted
from benchmarks.pairs import shared_pairs
from benchmarks.records import append, has_run, provenance, records, run_once, weights_hash
from benchmarks.repal import run_after
from benchmarks.studies import Options, chosen, methods_needed, study_cells
from benchmarks.texts import corpus_sentences, scored_sets, sts_sentences
from benchmarks.word_baselines import fitted_baseline
from st_extras.correlation import spearman
from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.training import TrainingRun, train_encoder
from st_extras.training.checkpoints import read_record
from st_extras.training.processes import launched_rank

ADAPT = "adapt"
"""A post-processing: what ``adapt`` chooses for the sentences of the STS sets, without labels."""


def run(study: dict[str, Any], options: Options) -> None:
    """Run the cells of a study that have no record yet.

    Args:
        study: as ``load_study`` returns it.
        options: which methods and seeds, and the folders.

    Raises:
        FileNotFoundError: if the study's own encoder was not made yet.
        ValueError: if the records were made with another encoder than the study's folder holds.
        SystemExit: if a cell failed; the others ran.
    """
    check_same_encoder(study, options.root)
    if study["training"].get("test", True):
        run_once(study["name"], "start-0", lambda: start_record(study, options.data), root=options.root)
    run_cells(study, options)


def wanted_cells(study: dict[str, Any], options: Options) -> list[tuple[str, int]]:
    """Return the (method, seed) that are chosen, seed by seed.

    Raises:
        Mistake: if a method or a seed is not of the study.
    """
    cells = study_cells(study)
    methods = chosen(options.methods, list(study["methods"]), "--methods")
    seeds = chosen(options.seeds, sorted({seed for name in cells for seed in cells[name]}), "--seeds")
    return [(name, seed) for seed in seeds for name in methods if seed in cells[name]]


def run_cells(study: dict[str, Any], options: Options, expected: Mapping[str, float] | None = None) -> None:
    """Run the chosen cells that have no record; a line for each says what it does and how much time is left.

    Args:
        study: as ``load_study`` returns it.
        options: which methods and seeds, and the folders.
        expected: seconds of a cell, by method; None: all take as long.

    Raises:
        SystemExit: if a cell failed; its reason is in the records, and the others ran.
    """
    work = options.work / study["name"]
    work.mkdir(parents=True, exist_ok=True)
    cells = [cell for cell in wanted_cells(study, options) if not has_cell(study, *cell, options)]
    clock = TimeLeft([(expected or {}).get(name, 1.0) for name, _ in cells])
    failed = []
    for place, (name, seed) in enumerate(cells):
        with only_process(work / f"{name}-{seed}.lock") as is_free:
            if not is_free:
                print(f"{name}, seed {seed}: skipped, another process is running it.", flush=True)
            elif not has_cell(study, name, seed, options):
                say(f"{place + 1} of {len(cells)}: {name}, seed {seed}{clock.left(place)}")
                try:
                    finish_cell(study, name, seed, options)
                except Exception as error:  # whatever it is, the other cells can run
                    reason = reason_of(error, study["training"] | study["methods"][name])
                    failed.append(f"{name}, seed {seed}: {reason}")
                    append_failure(study, name, seed, reason, options)
                    if processes() > 1:  # the others wait for this one
                        raise
                    release_memory()
    if failed:
        sys.exit("\n".join(["Failed, with the reason in the records; the same command tries again:", *failed]))


def has_cell(study: dict[str, Any], name: str, seed: int, options: Options) -> bool:
    """Return whether a cell has its record."""
    return has_run(study["name"], f"{name}-{seed}", root=options.root)


def say(line: str) -> None:
    """Print a line, of several processes once."""
    if launched_rank() == 0:
        print(line, flush=True)


@contextmanager
def only_process(lock: Path) -> Iterator[bool]:
    """Hold a lock in the block, and say whether it was free; processes that train together hold it once."""
    if launched_rank() > 0:
        yield True
        return
    held = FileLock(lock)  # the system releases it when a process is killed
    try:
        held.acquire(timeout=0)
    except Timeout:
        if processes() > 1:
            sys.exit(f"{lock.stem} must not run in another process: end that one, or choose other --methods.")
        yield False
        return
    try:
        yield True
    finally:
        held.release()


class TimeLeft:
    """How long the cells that are left will take, by how long those before took.

    Args:
        expected: seconds of each cell, or any numbers in their proportion.
    """

    def __init__(self, expected: Sequence[float]) -> None:
        self.expected, self.began = list(expected), time.perf_counter()

    def left(self, done: int) -> str:
        """Return the time left after ``done`` cells, ready to follow a line; nothing before the first one."""
        if not done:
            return ""
        seconds = (time.perf_counter() - self.began) * sum(self.expected[done:]) / sum(self.expected[:done])
        return f", {hours(seconds)} left"


def hours(seconds: float) -> str:
    """Write a time in minutes or hours."""
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def reason_of(error: Exception, method: Mapping[str, Any]) -> str:
    """Return why a cell failed, in a line, and what helps if memory ran out."""
    text = " ".join(str(error).split())
    out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "not enough memory" in text
    if not out_of_memory:
        return f"{type(error).__name__}: {text}"
    if "loss" in method and is_pair_loss(method["loss"]):
        size = method["options"]["mini_batch_size"] // 2 if "mini_batch_size" in method.get("options", {}) else 32
        return f"out of memory: --mini-batch-size {max(size, 1)} needs less, for the same gradients"
    return "out of memory: this loss encodes the whole batch at once, so take a device with more memory"


def append_failure(study: dict[str, Any], name: str, seed: int, reason: str, options: Options) -> None:
    """Record why a cell failed, beside its earlier failures."""
    if launched_rank() > 0:
        return
    number = len(records(study["name"], f"{name}-{seed}-failed-*", root=options.root)) + 1
    record = {"study": study["name"], "encoder": study["encoder"], "method": name, "seed": seed, "failed": reason}
    append(study["name"], f"{name}-{seed}-failed-{number}", record | provenance(), root=options.root)


def release_memory() -> None:
    """Free what a failed cell left on the GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


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
    if record is None:
        return
    if not has_cell(study, name, seed, options):  # it is there if only weights were missing
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


def run_cell(study: dict[str, Any], name: str, seed: int, data: Path, work: Path) -> dict[str, Any] | None:
    """Train a method of a study, unless it has no loss, and return its record.

    A training that was interrupted continues from its last checkpoint.

    Args:
        study: the study, as ``load_study`` returns it.
        name: the method.
        seed: random seed for the training.
        data: folder with the corpora and the sets.
        work: folder for the weights of the study, one folder for each method and seed.

    Returns:
        The record; None in all but the first of several processes.
    """
    method = study["training"] | study["methods"][name]
    encoder = study["encoder"] | method.get("encoder", {})
    began, origin = time.perf_counter(), provenance()
    dev, tests = scored_sets(study, data)
    sentences = corpus_sentences(method, data) if "loss" in method or "baseline" in method else []
    model = starting_encoder(encoder)
    figures: dict[str, Any] = {"steps": 0, "best_step": 0}
    if "loss" in method:
        figures = trained(study, method, model, seed, sentences, dev, data, work / f"{name}-{seed}")
    if launched_rank() == 0:
        found = {
            "study": study["name"],
            **{key: study[key] for key in ("weights",) if key in study},
            "encoder": encoder,
            "method": name,
            "settings": method,
            "seed": seed,
            **({"processes": processes()} if processes() > 1 else {}),
            **scores_of(model, method, dev, tests, sentences),
            **figures,
            **post_processed(model, method, dev, tests, data, seed),
            **origin,
        }
    if dist.is_initialized():
        dist.barrier()  # until the first has scored the weights
    return found | {"seconds": round(time.perf_counter() - began, 1)} if launched_rank() == 0 else None


def trained(
    study: dict[str, Any],
    method: dict[str, Any],
    model: SentenceTransformer,
    seed: int,
    sentences: list[str],
    dev: STSDataset,
    data: Path,
    output: Path,
) -> dict[str, Any]:
    """Train the model by a method, keep the weights that are best on ``dev``, and return the figures of the training.

    Args:
        study: the study.
        method: settings of the method, those of the study's training included.
        model: the encoder.
        seed: random seed for the training.
        sentences: the training text.
        dev: the set that chooses the weights.
        data: folder with the token counts.
        output: folder for the weights.
    """
    weights = {other: output.with_name(f"{other}-{seed}") for other in study["methods"]}
    share = share_of_a_process(method, processes())
    rows = training_rows(model, method, sentences, seed)

    def train(*, resume: bool) -> TrainingRun:
        return train_encoder(
            model,
            lambda new: make_loss(new, share, sentences, weights, data),
            rows,
            output,
            evaluator=InPrecision(STSEvaluator([dev]), method["bf16"]),
            batch_size=share["batch_size"],
            learning_rate=method["learning_rate"],
            max_steps=method.get("steps", -1),
            epochs=method.get("epochs", 1.0),
            eval_steps=method["eval_steps"],
            bf16=method["bf16"],
            seed=seed,
            no_duplicates=method.get("no_duplicates", has_negatives(method)),
            resume=resume,
            overwrite=True,
            show_progress_bar=False,
            **method.get("arguments", {}),
        )

    interrupted = read_record(output.with_name(f"{output.name}.checkpoints")) is not None
    try:
        run = train(resume=interrupted)
    except ValueError as error:
        if not (interrupted and str(error).startswith("resume needs")):
            raise
        say(f"{output.name}: its checkpoints are of other settings, so it starts anew.")
        run = train(resume=False)
    return training_figures(run)


def start_record(study: dict[str, Any], data: Path) -> dict[str, Any]:
    """Score the encoder of a study before training and return its record."""
    model = starting_encoder(study["encoder"])
    settings = study["training"]
    dev, tests = scored_sets(study, data)
    return {
        "study": study["name"],
        **{key: study[key] for key in ("weights",) if key in study},
        "encoder": study["encoder"],
        "method": "start",
        "seed": 0,
        "steps": 0,
        "best_step": 0,
        **scores_of(model, settings, dev, tests, []),
        **post_processed(model, settings, dev, tests, data, 0),
    }


def scores_of(
    model: SentenceTransformer,
    method: dict[str, Any],
    dev: STSDataset,
    tests: list[STSDataset],
    sentences: Sequence[str],
) -> dict[str, Any]:
    """Return Spearman times 100 on ``dev`` and on each test set, their mean, and the same without the pairs of ``dev``.

    Args:
        model: the encoder; a ``baseline`` of the method stands in its place.
        method: its settings.
        dev: the development set.
        tests: the test sets.
        sentences: what the baseline is fitted on.
    """
    evaluator = STSEvaluator([dev, *tests])
    if "baseline" in method:
        cosines = fitted_baseline(method["baseline"], model, sentences)
        similarities = [cosines(pairs.sentences1, pairs.sentences2) for pairs in (dev, *tests)]
    else:
        with torch.autocast(model.device.type, torch.bfloat16, enabled="pairs" in method and method["bf16"]):
            similarities = evaluator.similarities(model)
    scores = {name: 100 * value for name, value in evaluator.metrics(similarities).items()}
    sets = {pairs.name: scores[f"{pairs.name}_spearman_cosine"] for pairs in tests}
    new = {}
    for pairs, found in zip(tests, similarities[1:], strict=True):
        kept = np.flatnonzero(~shared_pairs(pairs, dev))
        golds = np.asarray(pairs.scores)[kept]
        if len(set(golds.tolist())) > 1:
            new[pairs.name] = 100 * float(spearman(found[kept], golds))
    without = {"without_dev": new | {"average": statistics.mean(new.values())}} if len(new) == len(sets) else {}
    dev_score = scores[f"{dev.name}_spearman_cosine"]
    return {"dev": dev_score, "scores": sets, "average": statistics.mean(sets.values()), **without}


def post_processed(
    model: SentenceTransformer,
    method: dict[str, Any],
    dev: STSDataset,
    tests: list[STSDataset],
    data: Path,
    seed: int,
) -> dict[str, Any]:
    """Score the sets after each post-processing that the settings name: of ``repal.VARIANTS``, or "adapt"."""
    wanted = method.get("post_processing", [])
    if not wanted:
        return {}
    variants = [name for name in wanted if name != ADAPT]
    found = run_after(model, dev, tests, variants, bf16=method["bf16"])
    if ADAPT in wanted:
        facts: dict[str, Any] = {}
        after = adapted({}, model, list(dict.fromkeys(sts_sentences(data))), seed, facts)
        scores = scores_of(after, method, dev, tests, [])
        found[ADAPT] = {"chosen": facts["chosen"], dev.name: scores["dev"], **scores["scores"]}
        found[ADAPT]["average"] = scores["average"]
    return {"post_processing": found}


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
