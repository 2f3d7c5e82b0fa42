"""The folder of a run: what this package wrote into it, its checkpoints, and saving the model beside them."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util import get_rank
from torch import distributed as dist

from st_extras.files import file_digest, follow_umask, read_checked_json, write_checked_json, write_errors

logger = logging.getLogger(__name__)
MANIFEST = "st_extras_files.json"
"""Lists the files that this package wrote into the folder, so that the next run replaces no others."""
MARKER = "complete.json"
"""Written last into a checkpoint, it lists the files of a complete one."""
CHECKPOINTS = "checkpoints"
_FILES, _CHECKPOINT = "st-extras list of files", "st-extras checkpoint"
_STAGING = ".saving"
_PREFIX = "checkpoint-"
_NEEDED = ("trainer_state.json", "optimizer.pt", "scheduler.pt")  # to resume
_OF_A_MODEL = re.compile(
    r"\d+_\w+|README\.md|vocab\.\w+|merges\.txt|.*\.(safetensors|bin|jinja)|spiece\.model|sentencepiece.*\.model|"
    r"(modules|router_config|config|config_\w+|sentence_\w+_config|tokenizer|tokenizer_config|special_tokens_map|"
    r"added_tokens|preprocessor_config|processor_config)\.json"
)


# --- the files that this package wrote ---


def read_manifest(folder: Path) -> set[str]:
    """Return the paths below ``folder`` that this package wrote; none without a manifest.

    Raises:
        ValueError: if the manifest is damaged, or lists a path that is not below the folder.
    """
    path, remedy = folder / MANIFEST, "remove the folder"
    names = read_checked_json(path, _FILES, remedy).get("files", [])
    if any(Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).parts for name in names):
        raise ValueError(f"{str(path)!r} must list files of its folder, got others: {remedy}.")
    return set(names)


def _write_manifest(folder: Path, names: Iterable[str]) -> None:
    write_checked_json(folder / MANIFEST, _FILES, {"files": sorted(names)})


def _remove_written(folder: Path, names: Iterable[str]) -> None:
    """Remove these files of ``folder``, and folders that then are empty."""
    for name in sorted(names, reverse=True):
        path = folder / name
        if path.is_file() or path.is_symlink():
            path.unlink()
        _remove_empty(path.parent, folder)


def _remove_empty(folder: Path, top: Path) -> None:
    """Remove ``folder`` and those above it, below ``top``, as far as they are empty."""
    while folder != top and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


# --- checkpoints ---


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
    names = [folder.name.removeprefix(_PREFIX) for folder in checkpoints.glob(f"{_PREFIX}*")]
    return [checkpoints / f"{_PREFIX}{step}" for step in sorted(int(name) for name in names if name.isdecimal())]


def remove_checkpoints(checkpoints: Path, *, whole: bool = True) -> None:
    """Remove the checkpoints and the evaluations beside them, and the folder if it then is empty.

    Args:
        checkpoints: their folder. Other files in it stay.
        whole: also remove complete checkpoints, not only incomplete ones.
    """
    for folder in find_checkpoints(checkpoints):
        if whole or fault(folder) is not None:
            (folder / MARKER).unlink(missing_ok=True)  # first: what an interruption leaves is incomplete
            shutil.rmtree(folder)
    if whole:
        shutil.rmtree(checkpoints / "eval", ignore_errors=True)
        _remove_empty(checkpoints, checkpoints.parent)


# --- the folder ---


def last_checkpoint(output: str | os.PathLike[str]) -> str:
    """Return the newest checkpoint in ``output`` that a training can continue from.

    An interruption can leave the newest one half-written, and an older one half-deleted.

    Raises:
        ValueError: if there is none.
    """
    checkpoints = Path(output) / CHECKPOINTS
    found = find_checkpoints(checkpoints)
    for folder in reversed(found):
        if (reason := fault(folder, _NEEDED, read=True)) is None:
            return str(folder)
        logger.warning("%s is incomplete and passed over: %s.", folder, reason)
    known = found or read_manifest(checkpoints.parent)  # of a run that was killed before its first checkpoint
    state = "no complete one yet: start again with overwrite=True" if known else "none"
    raise ValueError(f"resume needs a checkpoint in {str(checkpoints)!r}, got {state}.")


def check_output(
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    unfinished: str = CHECKPOINTS,
    reports: Collection[str] = (),
) -> None:
    """Check that a run may write to ``output`` without replacing a file that no run wrote. Nothing is changed.

    Of several processes, only the first looks into the folder: it may begin to write before another one looks, and if
    it raises, the launcher ends them all.

    Args:
        output: the folder that the model will be saved to.
        resume: whether the run continues an interrupted one in it.
        overwrite: whether what an earlier run wrote to it may be replaced. Its other files stay.
        unfinished: name of the folder in ``output`` for what an interrupted run leaves.
        reports: names of files that the run writes beside the model.

    Raises:
        ValueError: if ``output`` is a file or lies below one, if it is not empty and neither ``resume`` nor
            ``overwrite`` is set, or if it holds a file of a name that a run writes and that no run of this package
            wrote.
    """
    output = Path(output)
    nearest = next((path for path in (output, *output.parents) if path.exists()), None)
    if nearest is not None and not nearest.is_dir():
        raise ValueError(f"output must be a folder, got {str(output)!r}: {str(nearest)!r} is a file.")
    if launched_rank() > 0 or not output.is_dir():
        return
    if not resume and not overwrite and any(output.iterdir()):
        left = output / unfinished
        resumable = left.is_dir() and any(left.iterdir())
        options = "overwrite=True or resume=True" if resumable else "overwrite=True"
        raise ValueError(
            f"output must be a new or empty folder, got {str(output)!r}: choose another folder, or set {options}."
        )
    own = {name.split("/")[0] for name in read_manifest(output)} | {MANIFEST}
    own |= {unfinished} if resume else set()
    for path in sorted(output.iterdir()):
        name = path.name
        if name not in own and (name in {unfinished, _STAGING, *reports} or _OF_A_MODEL.fullmatch(name)):
            raise ValueError(
                f"output must be a folder whose files may be replaced, got {str(output)!r} with {name!r}, which no "
                "earlier run wrote: choose another folder, or move that file."
            )


def claim(output: Path, unfinished: str = CHECKPOINTS) -> None:
    """Make the folder and record that it is a run's, before anything else is written to it.

    Args:
        output: the folder.
        unfinished: name of the folder in it for what an interruption leaves.
    """
    if launched_rank() == 0:  # the processes do not know each other yet
        output.mkdir(parents=True, exist_ok=True)
        _write_manifest(output, read_manifest(output) | {unfinished})


def is_claimed(output: Path, unfinished: str) -> bool:
    """Return whether a run of this package has claimed the folder ``unfinished`` in ``output`` and not released it."""
    return unfinished in read_manifest(output)


def release(output: Path, unfinished: str) -> None:
    """Record that the folder ``unfinished`` is no longer a run's, and remove the manifest if it then is empty."""
    if rest := read_manifest(output) - {unfinished}:
        _write_manifest(output, rest)
    else:
        (output / MANIFEST).unlink(missing_ok=True)


@contextmanager
def undone_if_it_fails(output: str | os.PathLike[str], *, trains: bool = False) -> Iterator[None]:
    """Remove everything from ``output`` that a run wrote if it fails before its first complete checkpoint.

    Later, an interruption logs the checkpoint that ``resume`` continues from.

    Args:
        output: the folder.
        trains: whether the run has checkpoints there. Those that another run, or nobody known, left stay.
    """
    output = Path(output)
    missing = [folder for folder in (output, *output.parents) if not folder.exists()]
    try:
        yield
    except BaseException as error:
        if get_rank() > 0:
            raise
        if trains:
            found = find_checkpoints(output / CHECKPOINTS)
            if complete := [folder for folder in found if fault(folder, _NEEDED) is None]:
                if isinstance(error, KeyboardInterrupt):
                    logger.warning("Training was interrupted: resume=True continues from %r.", str(complete[-1]))
                raise
            if is_claimed(output, CHECKPOINTS):
                remove_checkpoints(output / CHECKPOINTS)
                release(output, CHECKPOINTS)
        if is_claimed(output, _STAGING):
            shutil.rmtree(output / _STAGING, ignore_errors=True)
            release(output, _STAGING)
        if missing:
            _remove_empty(output, missing[-1].parent)
        raise


def save_model(model: SentenceTransformer, output: str | os.PathLike[str], *, reports: Collection[str] = ()) -> None:
    """Save a model to a folder, in the place of one that this package saved there before.

    Everything is written beside it first, so that a full disk leaves the earlier model; the folder gets a list of the
    files (``st_extras_files.json``), so that the next run replaces these and no others.

    Args:
        model: the model.
        output: the folder, new or checked with :func:`check_output`. Its other files stay.
        reports: names of files that will be written beside the model; the list has them, too.

    Raises:
        ValueError: if a file of the model would replace one that this package did not write.
        OSError: if the disk is full.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    staging, earlier = output / _STAGING, read_manifest(output)
    if _STAGING in earlier:
        shutil.rmtree(staging, ignore_errors=True)
    _check_free(output, {_STAGING} - earlier)
    _write_manifest(output, earlier | {_STAGING})
    with write_errors(output):
        model.save(str(staging))
        follow_umask(staging)
    new = {path.relative_to(staging).as_posix() for path in staging.rglob("*") if path.is_file()}
    _check_free(output, new - earlier)
    kept = {name for name in earlier if (output / name).is_dir()} - {_STAGING}  # unfinished work
    _remove_written(output, earlier - kept)
    _write_manifest(output, new | kept | {_STAGING, *reports})
    for name in sorted(new, key=lambda name: (name.endswith(".safetensors"), name != "modules.json", name)):
        (output / name).parent.mkdir(parents=True, exist_ok=True)  # the weights come last: half a model does not load
        os.replace(staging / name, output / name)
    shutil.rmtree(staging)
    _write_manifest(output, new | kept | set(reports))


def _check_free(output: Path, names: Iterable[str]) -> None:
    for name in sorted(names):
        if (output / name).exists():
            raise ValueError(
                f"{str(output / name)!r} is in the way of the model, and no earlier run wrote it: move it."
            )


def launched_rank() -> int:
    """Return the rank of this process, also before the process group exists; 0 in a single process."""
    if dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return int(get_rank())
    return int(os.environ.get("RANK", "0"))
