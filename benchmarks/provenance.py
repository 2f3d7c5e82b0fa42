"""What a result file says about its origin: package versions, the machine, the git revision."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from benchmarks.records import ROOT

PACKAGES = ("st-extras", "sentence-transformers", "transformers", "torch", "datasets", "accelerate")


def provenance() -> dict[str, Any]:
    """Return versions, machine and git revision, for a result file."""
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
