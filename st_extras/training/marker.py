"""The marker of a checkpoint: written after everything else, it says what a whole checkpoint holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from st_extras.whole_file import whole_file

MARKER = "complete.json"


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON, so that an interruption leaves the earlier file or the new one."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(value, indent=1), encoding="utf8")


def mark_complete(checkpoint: Path, run: Mapping[str, Any]) -> None:
    """Write the marker: each file of the folder with its size in bytes, and the settings of the ``run``."""
    files = {
        path.relative_to(checkpoint).as_posix(): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.name != MARKER
    }
    write_json(checkpoint / MARKER, {"version": 1, "files": files, "run": dict(run)})


def read_marker(checkpoint: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the files of a checkpoint with their sizes in bytes, and the settings of its run.

    Raises:
        ValueError: if there is no marker, or it is not one.
    """
    try:
        marker = json.loads((checkpoint / MARKER).read_text(encoding="utf8"))
        version, files, run = marker["version"], dict(marker["files"]), dict(marker["run"])
    except FileNotFoundError:
        raise ValueError(f"{MARKER} is missing") from None
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{MARKER} is broken") from None
    if version != 1:
        raise ValueError(f"{MARKER} is of another version")
    return files, run


def fault(checkpoint: Path) -> str | None:
    """Say why a checkpoint is not whole; None if it is: the marker is there, and every file that it lists."""
    try:
        files, _ = read_marker(checkpoint)
    except ValueError as error:
        return str(error)
    for name, size in files.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes instead of {size}"
    return None
