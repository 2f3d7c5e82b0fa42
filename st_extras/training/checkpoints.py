"""The checkpoints of a training: the one to resume from, and removing those that are not whole."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from st_extras.training.marker import MARKER, fault, read_marker

logger = logging.getLogger(__name__)
_PREFIX = "checkpoint-"
_NEEDED = ("trainer_state.json", "optimizer.pt", "scheduler.pt")


def find_checkpoints(checkpoints: Path) -> list[Path]:
    """Return the folders of checkpoints, whole or not, in the order of their steps."""
    names = [folder.name.removeprefix(_PREFIX) for folder in checkpoints.glob(f"{_PREFIX}*")]
    return [checkpoints / f"{_PREFIX}{step}" for step in sorted(int(name) for name in names if name.isdecimal())]


def last_whole(checkpoints: Path) -> Path | None:
    """Return the newest checkpoint that a training can continue from, or None.

    An interruption can leave the newest one half-written, and an older one half-deleted.
    """
    for folder in reversed(find_checkpoints(checkpoints)):
        if (reason := _why_not(folder)) is None:
            return folder
        logger.warning("%s is incomplete and passed over: %s.", folder, reason)
    return None


def has_whole(checkpoints: Path) -> bool:
    """Whether there is a checkpoint that a training can continue from."""
    return any(_why_not(folder) is None for folder in find_checkpoints(checkpoints))


def _why_not(checkpoint: Path) -> str | None:
    reason = fault(checkpoint)
    if reason is None:
        files, _ = read_marker(checkpoint)
        reason = next((f"it was saved without {name}" for name in _NEEDED if name not in files), None)
    return reason


def remove_checkpoints(checkpoints: Path, *, whole: bool = True) -> None:
    """Remove the checkpoints and the evaluations beside them, and the folder if it is empty then.

    Args:
        checkpoints: their folder. Other files in it stay.
        whole: False: remove only the checkpoints that are not whole.
    """
    for folder in find_checkpoints(checkpoints):
        if whole or fault(folder) is not None:
            (folder / MARKER).unlink(missing_ok=True)  # first: what an interruption leaves is not whole
            shutil.rmtree(folder)
    if whole and checkpoints.is_dir():
        shutil.rmtree(checkpoints / "eval", ignore_errors=True)
        if not any(checkpoints.iterdir()):
            checkpoints.rmdir()
