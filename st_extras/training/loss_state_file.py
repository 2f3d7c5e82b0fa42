"""The file of a loss's state in a checkpoint: safetensors with a version; each further rank has one of its own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from sentence_transformers.util import get_rank
from torch import Tensor

from st_extras.training.marker import fault
from st_extras.whole_file import whole_file

logger = logging.getLogger(__name__)
FILE_NAME = "loss_state.safetensors"
EXTRA = "_extra_state"
_METADATA = {"format": "st-extras loss state", "version": "1"}


def write_loss_state(checkpoint: Path, tensors: dict[str, Tensor]) -> None:
    """Write this rank's file, which appears only when it is complete."""
    with whole_file(checkpoint / _file_name(get_rank())) as partial:
        save_file(tensors, str(partial), _METADATA)


def read_loss_state(checkpoint: Path, current: dict[str, Any]) -> dict[str, Tensor]:
    """Return the stored state of this rank, which fits the ``current`` one.

    Raises:
        ValueError: if the checkpoint or a file is missing, incomplete, broken, of another version or another loss.
    """
    path = checkpoint / FILE_NAME
    if not path.is_file():
        raise ValueError(
            f"checkpoint must hold {FILE_NAME}, got {str(checkpoint)!r} without it: the checkpoint was saved without "
            "LossStateCallback and cannot be resumed."
        )
    if (reason := fault(checkpoint)) is not None:
        raise ValueError(f"checkpoint must be complete, got {str(checkpoint)!r}, where {reason}: take an earlier one.")
    stored = _load(path)
    if differing := sorted(stored.keys() ^ current.keys()):
        raise ValueError(f"The loss must have the same settings as in {str(path)!r}, got others: {differing} differ.")
    for name, tensor in stored.items():
        _check_tensor(path, name, tensor, current[name])
    rank = get_rank()
    own = checkpoint / _file_name(rank)
    if rank > 0 and own.is_file():
        more = _load(own)
        if differing := sorted(more.keys() - current.keys()):
            raise ValueError(f"{str(own)!r} must hold the state of this loss, got {differing} of another one.")
        for name, tensor in more.items():
            _check_tensor(own, name, tensor, current[name])
        stored.update(more)
    elif rank > 0:
        logger.warning("%s has no random state for rank %d: starting a new one.", checkpoint, rank)
        stored = {name: tensor for name, tensor in stored.items() if not name.endswith(EXTRA)}
    return stored


def _load(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(str(path), framework="pt") as file:
            version = (file.metadata() or {}).get("version", "1")  # the first files had none
        if version != _METADATA["version"]:
            raise ValueError(
                f"{str(path)!r} must be a loss state of version 1, got version {version!r}: it needs another version "
                "of st_extras."
            )
        return load_file(str(path))
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{str(path)!r} must be a safetensors file, got a broken one ({reason}).") from None


def _check_tensor(path: Path, name: str, stored: Tensor, current: Tensor) -> None:
    """Compare dtype and shape (of extra state, which may be empty, the dtype); values are finite, counts >= 0."""
    wanted, found = (
        f"{tensor.dtype}" if name.endswith(EXTRA) else f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        for tensor in (current, stored)
    )
    if wanted != found:
        raise ValueError(
            f"The loss must have the same settings as in {str(path)!r}, got others: {name} is {wanted} in the loss and "
            f"{found} in the file."
        )
    if not bool(stored.isfinite().all()):
        raise ValueError(f"{name} in {str(path)!r} must be finite, got NaN or an infinite value.")
    if not stored.is_floating_point() and bool((stored < 0).any()):  # whole numbers are counts
        raise ValueError(f"{name} in {str(path)!r} must be >= 0, got {int(stored.min())}.")


def _file_name(rank: int) -> str:
    return FILE_NAME if rank == 0 else f"loss_state_rank{rank}.safetensors"
