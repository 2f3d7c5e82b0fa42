"""The records of all studies: one file per study, one line per run with its provenance, and one long table over them.

``results/STUDY.jsonl`` holds a JSON object per run: ``run``, a name that no other line of the file has; what was run
(``encoder``, ``method``, ``settings``, ``seed``, the data); its values, nested as the study likes; and its provenance.

A study appends a run when it is complete and skips runs that are there, so that a study that was stopped resumes::

    run_once("domains", "minilm-banking77-adapt-seed0", lambda: {"encoder": "minilm", "domain": "banking77", ...})

``long_table`` reads values into one row each. A metric is a path of keys; ``{name}`` stands for a key or a part of one,
and becomes a column::

    long_table(["recipes"], "post_processing/{step}/average")  # columns: ..., method, seed, metric, value, step
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
SAME = {"method": ("method", "row", "way", "analysis"), "data": ("domain", "collection", "set")}
"""Columns of the long table, and the keys that stand for them in the records of one study or another."""
UNTRAINED = ("start",)
"""Methods that no seed changes: the base model."""
PACKAGES = ("st-extras", "sentence-transformers", "transformers", "torch", "datasets", "accelerate")
ENCODERS = {"own_encoder": "own", "own_encoder_better": "better", "minilm, 3 layers": "layers3"}
"""Short names of encoders: of those trained here, by the folder of ``runs`` that holds them, and of MiniLM's layers."""


def file_of(study: str, root: Path | None = None) -> Path:
    """Return the file of a study's records; ``root`` is the folder of all, None: that of the repository."""
    return (root or RESULTS) / f"{study}.jsonl"


def studies(root: Path | None = None) -> list[str]:
    """Return the names of the studies that have records."""
    return sorted(path.stem for path in (root or RESULTS).glob("*.jsonl"))


def records(study: str, runs: str = "*", *, root: Path | None = None) -> list[dict[str, Any]]:
    """Read the records of a study, in the order of their runs' names; none if it has no file.

    A last line that a killed process left unfinished is not read.

    Args:
        study: name of the study.
        runs: which of them, as a pattern of file names: ``"memory-*"``.
        root: folder of all records; None: that of the repository.

    Raises:
        ValueError: if a line is no JSON object with a ``run``, or two lines have the same run.
    """
    path = file_of(study, root)
    found: dict[str, dict[str, Any]] = {}
    lines = path.read_text(encoding="utf8").split("\n") if path.is_file() else [""]
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line or "{}")
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise ValueError(f"Line {number} of {path} must be a JSON object, got: {error}.") from None
        if not line:
            continue
        run = record.get("run") if isinstance(record, dict) else None
        if not isinstance(run, str) or run in found:
            raise ValueError(f"Line {number} of {path} must have a run that no line before it has, got {run!r}.")
        found[run] = record
    return [found[run] for run in sorted(found) if fnmatch.fnmatchcase(run, runs)]


def has_run(study: str, run: str, *, root: Path | None = None) -> bool:
    """Return whether a study has a record of this run."""
    return any(record["run"] == run for record in records(study, root=root))


def append(study: str, run: str, record: dict[str, Any], *, root: Path | None = None) -> None:
    """Append the record of a run to its study's file, as a whole line. Several processes may do so at once.

    Args:
        study: name of the file, which is made with the first record.
        run: name of the run, which no record of the study may have yet.
        record: what JSON can hold, without ``run``.
        root: folder of all records; None: that of the repository.

    Raises:
        ValueError: if the study has a record of this run.
    """
    path = file_of(study, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"run": run, **record}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    with FileLock(path.with_name(f".{path.name}.lock")):
        if has_run(study, run, root=root):
            raise ValueError(f"run must be one that {path.name} has no record of, got {run!r}: remove its line first.")
        with path.open("a+b") as file:
            _end_last_line(file)
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())


def run_once(
    study: str, run: str, make: Callable[[], dict[str, Any]], *, root: Path | None = None
) -> dict[str, Any] | None:
    """Append what ``make`` returns, with its provenance, unless the study has a record of this run.

    Returns:
        The new record; None if it was there.
    """
    if has_run(study, run, root=root):
        return None
    record = make() | provenance()
    append(study, run, {"study": study, **record}, root=root)
    return record


def provenance() -> dict[str, Any]:
    """Return versions, machine and git revision, for a record."""
    import torch  # here, because the tables need none

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    return {
        "versions": {package: _version(package) for package in PACKAGES} | {"python": platform.python_version()},
        "machine": f"{platform.machine()}, {device}, {torch.get_num_threads()} threads",
        "revision": _revision(),
    }


def weights_hash(folder: Path) -> str:
    """Return the sha256 of the weights file of a checkpoint."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _revision() -> str:
    """Return the commit, with "-dirty" if a tracked file differs from it, other than a record: runs write those."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "..", ":!results")
    return f"{commit}-dirty" if changed else commit or "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip()


def _end_last_line(file: Any) -> None:
    """Complete a last line that has no line end, or drop it if a killed process left it unfinished."""
    file.seek(0)
    content = file.read()
    last = content.rpartition(b"\n")[2]
    if not last:
        return
    try:
        json.loads(last)
        file.write(b"\n")
    except ValueError:
        file.truncate(len(content) - len(last))


Metric = str | Callable[[dict[str, Any]], Any]
"""A path of keys, in which ``{name}`` stands for a key or a part of one; or a function of a record (None: no value)."""


def long_table(names: Iterable[str], *metrics: Metric, root: Path | None = None) -> pd.DataFrame:
    """Read values of several studies, one row each.

    Args:
        names: of the studies.
        metrics: paths of keys in a record, such as ``scores/sts12``, or functions of a record.
        root: folder of all records; None: that of the repository.

    Returns:
        Columns study, run, encoder, method, data, seed, metric, value, one for each ``{name}``, and one for each other
        string of the records. ``seed`` is missing where nothing was trained: such a value holds for every seed.
    """
    rows = []
    for study in names:
        for record in records(study, root=root):
            keys = header(study, record)
            for metric in metrics:
                found = [([], {}, metric(record))] if callable(metric) else _values(record, metric.split("/"))
                called = metric.__name__ if callable(metric) else metric
                for _, captured, value in found:
                    if value is not None:
                        rows.append(keys | {"metric": called, "value": value} | captured)
    return pd.DataFrame(rows, columns=None if rows else [*header("", {"run": ""}), "metric", "value"])


def header(study: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return what a record is of: study, run, encoder, method, data and seed (None without), and its other strings."""
    same = {name: next((record[key] for key in keys if key in record), None) for name, keys in SAME.items()}
    encoder = record.get("encoder")
    name = encoder_name(encoder) if isinstance(encoder, dict) else encoder
    seed = None if same["method"] in UNTRAINED else record.get("seed")
    own = {"study": study, "run": record["run"], "encoder": name, **same, "seed": seed}
    return own | {key: value for key, value in record.items() if isinstance(value, str) and key not in own}


def encoder_name(settings: dict[str, Any]) -> str:
    """Name an encoder by the options of ``load_encoder``: its folder, or minilm, then how many layers were kept."""
    parts = [part for part in Path(settings.get("path", "minilm")).parts if part not in ("runs", "encoder", "encoders")]
    name = parts[-1] + (f", {settings['layers']} layers" if "layers" in settings else "")
    return ENCODERS.get(name, name)


def _values(value: Any, keys: list[str]) -> Iterator[tuple[list[str], dict[str, str], Any]]:
    """Yield the path, what its ``{name}`` stand for, and the value of each place that the keys lead to.

    The places of a list are keys too: ``0``, ``1``, ...
    """
    if not keys:
        yield [], {}, value
        return
    if isinstance(value, list):
        value = {str(number): one for number, one in enumerate(value)}
    if not isinstance(value, dict):
        return
    pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(keys[0])))
    matches = {key: match.groupdict() for key in value if (match := pattern.fullmatch(key))}
    for key, captured in matches.items():
        for path, others, found in _values(value[key], keys[1:]):
            yield [key, *path], captured | others, found
