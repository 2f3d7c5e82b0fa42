"""Reading a safetensors file: its tensors and what its metadata says."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor


def read_tensor_file(path: str | PathLike[str], advice: str = "") -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file.

    Args:
        path: the file.
        advice: what the message ends with if the file is damaged, such as ": compute it again".

    Raises:
        ValueError: if there is no such file, or it is damaged; the message names it.
    """
    if not Path(path).is_file():
        raise ValueError(f"path must be an existing file, got {str(path)!r}.")
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118, no dict
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a complete safetensors file ({error}){advice}.") from error
