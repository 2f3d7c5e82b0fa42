"""What the studies share: the packaged encoder, what a record says of the machine, and atomic writing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent
PACKAGES = ("st-extras", "sentence-transformers", "transformers", "torch", "datasets", "accelerate")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.strip() or "unknown"


def provenance() -> dict[str, Any]:
    """Versions, machine and git revision, for a result file."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    return {
        "versions": {package: _version(package) for package in PACKAGES} | {"python": platform.python_version()},
        "machine": f"{platform.machine()}, {device}, {torch.get_num_threads()} threads",
        "revision": _revision(),
    }


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf8")
    os.replace(partial, path)
