"""The folder of a training's checkpoints, beside its output: which of them are complete, and what goes at the end.

``NAME.checkpoints`` holds what the trainer saves, and a record of the training, which shows that the folder is ours.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from st_extras.checks import check_bool
from st_extras.files import check_output, listed_files, one_writer, why_unreadable, write_json
from st_extras.training.processes import launched_rank

logger = logging.getLogger(__name__)
RECORD = "st_extras_training.json"
"""What the trained weights depend on, written before the first checkpoint: a resumed training must equal it."""
_PREFIX = "checkpoint-"
_STATE = "trainer_state.json"
_NEEDED = {_STATE, "optimizer.pt", "scheduler.pt"}
"""Files of a checkpoint without which a resumed training would end with other weights."""


def check_training_output(output: str | PathLike[str], *, resume: bool, overwrite: bool) -> Path:
    """Check that a training may save to ``output``, and return the folder of its checkpoints. Nothing is changed.

    Of several processes, only the first looks: it may begin to write before another one does.

    Args:
        output: a new or empty folder.
        resume: whether an interrupted training is to be continued; its result may replace an earlier one.
        overwrite: whether an earlier result may be replaced and, without ``resume``, an interrupted training discarded.

    Raises:
        ValueError: if it may not, see :func:`~st_extras.files.check_output`; or if there is no interrupted training to
            resume, or one that is neither to be resumed nor to be discarded, or a folder of others in its place.
    """
    path = Path(output).resolve()
    folder = path.with_name(f"{path.name}.checkpoints")
    if launched_rank() > 0:
        return folder
    check_output(output, overwrite=overwrite or check_bool("resume", resume))
    recorded = read_record(folder) is not None
    if resume and not recorded:
        raise ValueError(f"resume needs an interrupted training in {str(folder)!r}, got none: train without it.")
    if recorded and not (resume or overwrite):
        raise ValueError(
            f"output must have no interrupted training beside it, got {str(folder)!r}: choose another output, or set "
            "resume=True to continue it, or overwrite=True to discard it."
        )
    if not recorded and (folder.is_symlink() or (folder.exists() and (folder.is_file() or _left(folder)))):
        raise ValueError(
            f"output must have no folder of others beside it, got {str(folder)!r} without {RECORD}: move it, or choose "
            "another output."
        )
    return folder


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a training in the folder of its checkpoints; None if there is none."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def check_same_training(folder: Path, record: Mapping[str, Any]) -> None:
    """Compare a training with the interrupted one that it continues.

    Args:
        folder: the folder of the checkpoints.
        record: what :func:`~st_extras.training.settings.training_record` returned.

    Raises:
        ValueError: if they differ; the message names every difference.
    """
    before = read_record(folder) or {}
    names = {name for name in before.keys() | record.keys() if before.get(name) != record.get(name)}
    differing = [
        f"{name} is {record.get(name)!r} and was {before.get(name)!r}"
        for name in sorted(names)
        if name.split(".")[0] == name or name.split(".")[0] not in names  # not the settings of another loss
    ]
    if differing:
        raise ValueError(
            f"resume needs the settings of the interrupted training, got others: {'; '.join(differing)}; use the "
            "earlier values, or start again with overwrite=True."
        )


def is_complete(checkpoint: Path) -> bool:
    """Whether all files are there that the list of a checkpoint names, which is written last."""
    names = listed_files(checkpoint)
    return bool(names) and all((checkpoint / name).exists() for name in names)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint that a training can continue from; None if there is none.

    An interruption can leave the newest one half-written, and an older one half-deleted; a disk can damage any.
    """
    for checkpoint in reversed(_checkpoints(folder)):
        if is_complete(checkpoint) and set(listed_files(checkpoint)) >= _NEEDED and damage(checkpoint) is None:
            return checkpoint
    return None


def damage(checkpoint: Path) -> str | None:
    """Return why a complete checkpoint cannot be continued from, naming the file; None if it can.

    The weights of the best checkpoint, which is another one, are part of it.
    """
    for name in listed_files(checkpoint):
        if (reason := why_unreadable(checkpoint / name)) is not None:
            return f"{name} cannot be read: {reason}"
    if not (checkpoint / _STATE).exists():
        return None
    state = json.loads((checkpoint / _STATE).read_text(encoding="utf8"))
    if not isinstance(state, dict) or str(state.get("global_step")) != checkpoint.name.removeprefix(_PREFIX):
        return f"{_STATE} is not that of its step"
    best = state.get("best_model_checkpoint")
    if best is None or Path(best) == checkpoint:
        return None
    if not is_complete(Path(best)):
        return f"{best}, which has the best weights, is not complete"
    return None if (reason := damage(Path(best))) is None else f"{best}, which has the best weights: {reason}"


@contextmanager
def keep_checkpoints(folder: Path, record: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
    """Make the folder of the checkpoints for a training in the block, and remove it at the end.

    If the block fails, it stays as soon as there is a checkpoint to continue from; a warning says so.

    Args:
        folder: the folder; without ``resume``, an interrupted training in it is discarded.
        record: what to record.
        resume: whether an interrupted training is continued; a checkpoint that is not complete is removed, and with a
            warning one that cannot be read.

    Raises:
        ValueError: if another process is training there.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with one_writer(folder):
        if resume:
            complete = [checkpoint for checkpoint in _checkpoints(folder) if is_complete(checkpoint)]
            damaged = {checkpoint: reason for checkpoint in complete if (reason := damage(checkpoint)) is not None}
            for checkpoint, reason in damaged.items():
                logger.warning("%s is left out and removed: %s.", checkpoint, reason)
            for checkpoint in {*_checkpoints(folder)} - {*complete} | {*damaged}:
                shutil.rmtree(checkpoint)
        else:
            remove_checkpoints(folder)
            write_json(folder / RECORD, record)
        try:
            yield
        except BaseException as error:
            last = last_checkpoint(folder)
            if last is not None:
                logger.warning(
                    "The training was interrupted (%s): resume=True (--resume) continues it from step %s.",
                    *(type(error).__name__, last.name.removeprefix(_PREFIX)),
                )
            else:
                if not isinstance(error, Exception):  # by the user or the system
                    logger.warning("The training was interrupted before its first checkpoint: nothing was saved.")
                _remove_folder(folder, missing)
            raise
        _remove_folder(folder, [folder])


def _remove_folder(folder: Path, folders: list[Path]) -> None:
    """Remove what a training wrote, and the ``folders``, each in the next, that are empty then; name what is left."""
    remove_checkpoints(folder)
    for partial in folder.glob(f".{RECORD}.*.partial"):
        partial.unlink()
    (folder / RECORD).unlink(missing_ok=True)  # last, so that a kill leaves a folder that is a training's
    if left := _left(folder):
        logger.warning("%s stays, with what no training wrote: %s.", folder, ", ".join(left))
    for empty in folders:
        if any(empty.iterdir()):
            break
        empty.rmdir()


def _left(folder: Path) -> list[str]:
    """Return the names of what is in a folder, but for what a kill leaves while the record is written."""
    paths = [path for path in folder.rglob("*") if not path.match(f".{RECORD}.*.partial")]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints, and what evaluators and TensorBoard write beside them; any other file stays.

    A checkpoint is known by its name: an interruption may leave one that is not complete.
    """
    for checkpoint in reversed(_checkpoints(folder)):  # a kill may come: the last one names the best of those before it
        shutil.rmtree(checkpoint)
    for file in (*folder.glob("eval/*.csv"), *folder.glob("runs/**/events.out.tfevents.*")):
        file.unlink()
    runs = folder / "runs"
    for empty in (*sorted(runs.rglob("*"), reverse=True), runs, folder / "eval"):
        if empty.is_dir() and not empty.is_symlink() and not any(empty.iterdir()):
            empty.rmdir()


def _checkpoints(folder: Path) -> list[Path]:
    """Return the folders of checkpoints, complete or not, in the order of their steps."""
    names = [path.name for path in folder.glob(f"{_PREFIX}*") if path.is_dir() and not path.is_symlink()]
    steps = [name.removeprefix(_PREFIX) for name in names]
    return [folder / f"{_PREFIX}{step}" for step in sorted((step for step in steps if step.isdecimal()), key=int)]
