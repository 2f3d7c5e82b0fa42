"""Studies that train: method x seed, keep the best weights by STS-B dev, score the seven STS sets.

Each cell (method and seed) is one record, named ``METHOD-SEED``; the base model's is ``start-0``. A cell that has its
record is skipped, so that a crash loses one cell only. If a cell needs the weights of another one and the work folder
does not hold them, the other cell runs first.

An encoder trained here (``path``) must have the weights that the records were made with: another kind of processor may
make other ones. Several processes may run the same study: each takes cells that no other process is running.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchmarks.cell import run_cell, start_record
from benchmarks.provenance import weights_hash
from benchmarks.records import append, has_run, records, run_once
from benchmarks.studies import Options, chosen, methods_needed, study_cells


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
