"""The output folder of a training run: whether it may be used, where to resume, and saving the model."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import get_rank

from st_extras.encoders.distributed import launched_rank
from st_extras.training.checkpoints import find_checkpoints, has_whole, last_whole, remove_checkpoints
from st_extras.training.manifest import (
    CHECKPOINTS,
    MANIFEST,
    STAGING,
    conflict,
    read_manifest,
    remove_written,
    write_manifest,
)

_NO_SPACE = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EIO}


def check_output(
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    force: bool = False,
    overwrite: bool = False,
    reports: Collection[str] = (),
) -> tuple[Path, str | None]:
    """Check that a training may write to ``output``. Nothing is created or deleted.

    Of several processes, the first alone looks at what the folder holds: it may have begun to write to it before
    another one looks, and if it refuses, the launcher ends them all.

    Args:
        output: the folder that the trained model will be saved to.
        resume: whether training continues from a checkpoint in it.
        force: whether to resume although settings differ; refused without ``resume``.
        overwrite: whether what an earlier run wrote to it may be replaced. Its other files stay.
        reports: names of files that the run writes beside the model.

    Returns:
        The folder of the checkpoints and, with ``resume``, the checkpoint to continue from (else None).

    Raises:
        ValueError: if ``output`` is a file or lies below one, if it is not empty and neither ``resume`` nor
            ``overwrite`` is set, if it holds a file of a name that a run writes and that no run of this package
            wrote, if there is no whole checkpoint to resume from, or if ``force`` is set without ``resume``.
    """
    output = Path(output)
    checkpoints = output / CHECKPOINTS
    if force and not resume:
        raise ValueError("force needs resume, got it without: to replace an earlier training, set overwrite instead.")
    nearest = next((path for path in (output, *output.parents) if path.exists()), None)
    if nearest is not None and not nearest.is_dir():
        raise ValueError(f"output must be a folder, got {str(output)!r}: {str(nearest)!r} is a file.")
    last = _resumable(checkpoints) if resume else None
    if launched_rank() > 0:
        return checkpoints, last
    if not resume and not overwrite and output.is_dir() and any(output.iterdir()):
        raise ValueError(
            f"output must be a new or empty folder, got {str(output)!r}: choose another folder, or set overwrite or "
            "resume (--overwrite, --resume)."
        )
    name = conflict(output, reports) if output.is_dir() else None
    if name is not None and not (resume and name == CHECKPOINTS):
        raise ValueError(
            f"output must be a folder whose files may be replaced, got {str(output)!r} with {name!r}, which no earlier "
            "run wrote: choose another folder, or move that away."
        )
    return checkpoints, last


def _resumable(checkpoints: Path) -> str:
    last = last_whole(checkpoints)
    if last is not None:
        return str(last)
    if checkpoints.is_dir() and (find_checkpoints(checkpoints) or read_manifest(checkpoints.parent)):
        raise ValueError(
            f"resume needs a checkpoint in {str(checkpoints)!r}, got no whole checkpoint yet: start again with "
            "overwrite (--overwrite)."
        )
    raise ValueError(f"resume needs a checkpoint in {str(checkpoints)!r}, got none.")


@dataclass(frozen=True)
class OutputFolder:
    """The folder of a run. A run that fails before its first checkpoint leaves nothing in it.

    Attributes:
        path: the folder.
        made: the topmost folder that did not exist before the run; None if ``path`` did.
    """

    path: Path
    made: Path | None

    @classmethod
    def at(cls, output: str | os.PathLike[str]) -> OutputFolder:
        """Note which folders are there. Nothing is created."""
        path = Path(output)
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        return cls(path, missing[-1] if missing else None)

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and get_rank() == 0:
            self._abandon()

    def claim(self) -> None:
        """Make the folder and record that it is a run's, before anything else is written to it."""
        if launched_rank() == 0:  # the processes do not know each other yet
            self.path.mkdir(parents=True, exist_ok=True)
            write_manifest(self.path, read_manifest(self.path) | {CHECKPOINTS})

    def begin(self, *, resume: bool) -> None:
        """Remove the checkpoints of an earlier run, or with ``resume`` the incomplete ones."""
        if get_rank() == 0:
            remove_checkpoints(self.path / CHECKPOINTS, whole=not resume)

    def save(self, model: SentenceTransformer) -> None:
        """Save the trained model, in the main process."""
        if get_rank() == 0:
            save_model(model, self.path)

    def _abandon(self) -> None:
        """Remove what a failed run wrote, unless there is a whole checkpoint to resume from."""
        checkpoints = self.path / CHECKPOINTS
        if not self.path.is_dir() or has_whole(checkpoints):
            return
        remove_checkpoints(checkpoints)
        shutil.rmtree(self.path / STAGING, ignore_errors=True)
        rest = read_manifest(self.path) - {CHECKPOINTS}
        if rest:
            write_manifest(self.path, rest)
        else:
            (self.path / MANIFEST).unlink(missing_ok=True)
        if self.made is not None:
            for folder in (self.path, *self.path.parents):
                if any(folder.iterdir()):
                    break
                folder.rmdir()
                if folder == self.made:
                    break


def save_model(model: SentenceTransformer, output: str | os.PathLike[str]) -> None:
    """Save a model to a folder, in the place of one that this package saved there before.

    Everything is written beside it first, so that a full disk leaves the earlier model; the folder gets a list of the
    files (``st_extras_files.json``), so that the next run replaces these and no others.

    Args:
        model: the model.
        output: the folder, new or checked with :func:`check_output`. Its other files stay.

    Raises:
        ValueError: if a file of the model would replace one that this package did not write.
        OSError: if the disk is full.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    staging = output / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    with write_errors(output):
        model.save(str(staging))
    earlier = read_manifest(output)
    new = {path.relative_to(staging).as_posix() for path in staging.rglob("*") if path.is_file()}
    for name in sorted(new - earlier):
        if (output / name).exists():
            raise ValueError(
                f"{str(output / name)!r} is in the way of the model, and no earlier run wrote it: move it."
            )
    kept = earlier & {CHECKPOINTS}
    remove_written(output, earlier - kept)
    write_manifest(output, new | kept)
    for name in sorted(new, key=lambda name: (name.endswith(".safetensors"), name != "modules.json", name)):
        (output / name).parent.mkdir(parents=True, exist_ok=True)  # the weights come last: half a model does not load
        os.replace(staging / name, output / name)
    shutil.rmtree(staging)


@contextmanager
def write_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of a full disk, which torch and safetensors raise in their own ways, into one OSError."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        known = (
            error.errno in _NO_SPACE
            if isinstance(error, OSError)
            else isinstance(error, SafetensorError)
            or "PytorchStreamWriter" in str(error)
            or "inline_container" in str(error)
        )
        if not known:
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        raise OSError(
            f"Writing to {str(folder)!r} failed ({reason}): free space on the disk, then resume, or start again with "
            "overwrite if there is no checkpoint yet."
        ) from error
