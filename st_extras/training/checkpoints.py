"""The checkpoints of a training: which of them are complete, and the last one."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from st_extras.files import file_digest, read_checked_json, write_checked_json

logger = logging.getLogger(__name__)
MARKER = "complete.json"
"""Written last into a checkpoint, it lists the files of a complete one."""
_CHECKPOINT = "st-extras checkpoint"
_PREFIX = "checkpoint-"
_NEEDED = ("trainer_state.json", "optimizer.pt", "scheduler.pt")  # to resume


def mark_complete(checkpoint: Path, run: Mapping[str, Any]) -> None:
    """Write the marker: each file of the folder with its size in bytes and digest, and the settings of the ``run``."""
    files = {
        path.relative_to(checkpoint).as_posix(): [path.stat().st_size, file_digest(path)]
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.name != MARKER
    }
    write_checked_json(checkpoint / MARKER, _CHECKPOINT, {"files": files, "run": dict(run)})


def read_marker(checkpoint: Path) -> tuple[dict[str, tuple[int, str]], dict[str, Any]]:
    """Return the files of a checkpoint with their sizes and digests, and the settings of its run.

    Raises:
        ValueError: if there is no marker, or it is damaged.
    """
    try:
        marker = read_checked_json(checkpoint / MARKER, _CHECKPOINT, "take another checkpoint")
    except ValueError:
        raise ValueError(f"{MARKER} is damaged") from None
    if not marker:
        raise ValueError(f"{MARKER} is missing")
    return {name: (size, digest) for name, (size, digest) in marker["files"].items()}, marker["run"]


def fault(checkpoint: Path, needed: Iterable[str] = (), *, read: bool = False) -> str | None:
    """Return why a checkpoint is incomplete; None if its marker exists and all files that this lists.

    Args:
        checkpoint: its folder.
        needed: names of files that the marker must list.
        read: also read the files and compare their digests, which takes seconds for gigabytes.
    """
    try:
        files, _ = read_marker(checkpoint)
    except ValueError as error:
        return str(error)
    for name, (size, digest) in files.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes instead of {size}"
        if read and file_digest(path) != digest:
            return f"{name} is damaged (its checksum differs)"
    return next((f"it was saved without {name}" for name in needed if name not in files), None)


def find_checkpoints(checkpoints: Path) -> list[Path]:
    """Return the folders of checkpoints, complete or not, in the order of their steps."""
    names = [path.name for path in checkpoints.glob(f"{_PREFIX}*") if path.is_dir() and not path.is_symlink()]
    steps = [name.removeprefix(_PREFIX) for name in names]
    return [checkpoints / f"{_PREFIX}{step}" for step in sorted((one for one in steps if one.isdecimal()), key=int)]


def remove_incomplete(checkpoints: Path) -> None:
    """Remove the checkpoints that an interruption left incomplete."""
    for folder in find_checkpoints(checkpoints):
        if fault(folder) is not None:
            shutil.rmtree(folder)


def remove_checkpoints(checkpoints: Path) -> None:
    """Remove all checkpoints, and what evaluators and TensorBoard write beside them; any other file stays.

    An interruption may leave a checkpoint without its marker, so these are known by their names.
    """
    for folder in find_checkpoints(checkpoints):
        shutil.rmtree(folder)
    for file in (*checkpoints.glob("eval/*.csv"), *checkpoints.glob("runs/**/events.out.tfevents.*")):
        file.unlink()
    runs = checkpoints / "runs"
    for folder in (*sorted(runs.rglob("*"), reverse=True), runs, checkpoints / "eval", checkpoints):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def has_checkpoint(checkpoints: Path) -> bool:
    """Whether a training can continue from one of the checkpoints; their files are not read."""
    return any(fault(folder, _NEEDED) is None for folder in find_checkpoints(checkpoints))


def last_checkpoint(checkpoints: Path) -> Path:
    """Return the newest checkpoint that a training can continue from.

    An interruption can leave the newest one half-written, and an older one half-deleted.

    Raises:
        ValueError: if there is none.
    """
    for folder in reversed(find_checkpoints(checkpoints)):
        if (reason := fault(folder, _NEEDED, read=True)) is None:
            return folder
        logger.warning("%s is incomplete and passed over: %s.", folder, reason)
    raise ValueError(
        f"resume needs a complete checkpoint in {str(checkpoints)!r}, got none yet: start again with overwrite=True."
    )
