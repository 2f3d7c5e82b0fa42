"""The output folder of a training run: whether it may be used, where to resume, and saving the model."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_extras.training.loss_state import FILE_NAME

logger = logging.getLogger(__name__)
_PREFIX = "checkpoint-"


def check_output(
    output: str | os.PathLike[str], *, resume: bool = False, overwrite: bool = False
) -> tuple[Path, str | None]:
    """Check that a training may write to ``output``. Nothing is created or deleted.

    Args:
        output: the folder that the trained model will be saved to.
        resume: whether training continues from a checkpoint in it.
        overwrite: whether what it holds may be replaced.

    Returns:
        The folder of the checkpoints and, with ``resume``, the checkpoint to continue from (else None).

    Raises:
        ValueError: if ``output`` is a file or lies below one, if it is not empty and neither ``resume`` nor
            ``overwrite`` is set, or if there is no checkpoint to resume from.
    """
    output = Path(output)
    checkpoints = output / "checkpoints"
    nearest = next((path for path in (output, *output.parents) if path.exists()), None)
    if nearest is not None and not nearest.is_dir():
        raise ValueError(f"output must be a folder, got {str(output)!r}: {str(nearest)!r} is a file.")
    if resume:
        last = _last_checkpoint(checkpoints)
        if last is None:
            raise ValueError(f"resume needs a checkpoint in {str(checkpoints)!r}, got none.")
        return checkpoints, last
    if output.is_dir() and any(output.iterdir()) and not overwrite:
        raise ValueError(
            f"output must be a new or empty folder, got {str(output)!r}: choose another folder, or set overwrite or "
            "resume."
        )
    return checkpoints, None


def _last_checkpoint(checkpoints: Path) -> str | None:
    """The newest complete checkpoint, as an interruption can leave the newest one incomplete.

    If none is complete, the newest one: restoring it then says what is missing. None if there is no checkpoint.
    """
    names = [folder.name.removeprefix(_PREFIX) for folder in checkpoints.glob(f"{_PREFIX}*")]
    steps = sorted(int(name) for name in names if name.isdecimal())
    found = [checkpoints / f"{_PREFIX}{step}" for step in steps]
    if not found:
        return None
    complete = [folder for folder in found if (folder / FILE_NAME).is_file()]  # this file is written last
    last = (complete or found)[-1]
    if last != found[-1]:
        logger.warning("%s is incomplete: resuming from %s.", found[-1], last)
    return str(last)


def save_model(model: SentenceTransformer, output: Path) -> None:
    """Save to ``output``, beside the checkpoints, so that an interruption cannot leave a half-written file there."""
    staging = output / ".saving"
    shutil.rmtree(staging, ignore_errors=True)
    model.save(str(staging))
    for item in staging.iterdir():
        target = output / item.name
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(item, target)
    staging.rmdir()
