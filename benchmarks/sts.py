"""Train encoder x method x seed, keep the best weights by STS-B dev, score the seven STS sets.

    python -m benchmarks.sts benchmarks/configs/foundation.toml --data DATA_FOLDER [--methods simcse --seeds 0 1]
    python -m benchmarks.sts benchmarks/configs/own_encoder.toml benchmarks/configs/recipes.toml --data DATA_FOLDER
    python -m benchmarks.sts benchmarks/configs/foundation.toml --table

``benchmarks/studies.py`` describes the configuration files. Several of them are run one after another.

Each cell (method and seed) is one file in ``benchmarks/results/STUDY/``. A cell that has its file is skipped, so a
crash loses one cell only. To repeat cells that already have a record here, write elsewhere with ``--results FOLDER``.
If a cell needs the weights of another one and ``--work`` does not hold them, the other cell runs first.

An encoder of one's own (``path``) must have the weights that the records of ``--results`` were made with: another kind
of processor may make other ones.

Several processes may run the same study: each takes cells that no other process is running.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchmarks.cell import run_cell, start_record
from benchmarks.provenance import weights_hash
from benchmarks.records import RESULTS, records, write_json
from benchmarks.studies import load_study, methods_needed, study_cells
from benchmarks.tables.quality import study_table


def run_study(
    study: dict[str, Any], methods: list[str], only: list[int] | None, data: Path, work: Path, root: Path = RESULTS
) -> None:
    """Run the cells of a study that have no record yet.

    Args:
        study: the study, as ``load_study`` returns it.
        methods: the methods to run.
        only: the seeds to run; None: those of the methods.
        data: folder with the corpora and the STS sets.
        work: folder for weights and locks.
        root: folder for the records of all studies.

    Raises:
        FileNotFoundError: if the study's own encoder was not made yet.
        ValueError: if the records of ``root`` were made with another encoder than the study's folder holds.
    """
    check_same_encoder(study, root)
    results = root / study["name"]
    if study["training"].get("test", True) and not (results / "start-0.json").exists():
        write_json(results / "start-0.json", start_record(study, data))
    cells = study_cells(study)
    work.mkdir(parents=True, exist_ok=True)
    for seed in only or sorted({seed for name in methods for seed in cells[name]}):
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
                if not (results / f"{name}-{seed}.json").exists():
                    finish_cell(study, name, seed, data, work, results)


def check_same_encoder(study: dict[str, Any], root: Path) -> None:
    """Raise unless a study's own encoder is there, with the weights whose making ``root`` records, if it does."""
    path = study["encoder"].get("path")
    recorded = records("pretraining", f"{Path(path).parent.name}", root=root) if path else []
    if not recorded:
        return
    if not (Path(path) / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"{path} must hold an encoder, got no model.safetensors: python -m benchmarks.pretrain_encoder makes it."
        )
    known, found = recorded[0]["sha256"], weights_hash(Path(path))
    if found != known:
        raise ValueError(
            f"{path} must hold the weights that the records in {root} were made with (sha256 {known[:16]}), got "
            f"{found[:16]}: write records of another encoder to another folder, with --results."
        )


def finish_cell(study: dict[str, Any], name: str, seed: int, data: Path, work: Path, results: Path) -> None:
    """Run a cell and write its record; first the cells whose weights it needs, unless ``work`` holds them."""
    for other in methods_needed(study["methods"][name], study):
        with FileLock(work / f"{other}-{seed}.lock"):  # waits if another process is running that cell
            if not (work / f"{other}-{seed}" / "modules.json").exists():
                finish_cell(study, other, seed, data, work, results)
    record = run_cell(study, name, seed, data, work)
    target = results / f"{name}-{seed}.json"
    if not target.exists():  # it exists if only the weights were missing
        write_json(target, record)
    line = f"dev {record['dev']:.2f} at step {record['best_step']}, average {record['average']}"
    print(f"{name}, seed {seed}: {line}, {record['seconds']:.0f} s", flush=True)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which cells of a study to run, and where weights and records go."""
    parser.add_argument("--methods", nargs="+", help="methods to run (default: all of the study)")
    parser.add_argument("--seeds", nargs="+", type=int, help="seeds to run (default: those of the study)")
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder for weights (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for records (default: %(default)s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path, nargs="+", metavar="CONFIG", help="configuration files of the studies")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("ST_EXTRAS_DATA"),
        help="folder with the corpora and the STS sets (default: $ST_EXTRAS_DATA)",
    )
    add_run_options(parser)
    parser.add_argument("--table", action="store_true", help="run nothing, print the results so far")
    options = parser.parse_args()
    if options.data is None and not options.table:
        parser.error("--data FOLDER (or ST_EXTRAS_DATA) must name the folder with the STS sets.")
    for study in map(load_study, options.configs):
        if not options.table:
            methods = options.methods or list(study["methods"])
            run_study(study, methods, options.seeds, Path(options.data), options.work / study["name"], options.results)
        print(study_table(study["name"], options.results))


if __name__ == "__main__":
    main()
