"""Files of tensors (safetensors): written whole or not at all, and checked when they are read."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from st_extras.checks import shown
from st_extras.whole_file import whole_file

_CHECKSUM = "checksum"


@dataclass(frozen=True)
class Expected:
    """What a tensor in a file must be.

    Attributes:
        shape: its sizes; a letter in place of one stands for any, the same everywhere in the file. None: any shape.
        dtype: None: any floating-point one.
        finite: whether all values must be finite.
    """

    shape: tuple[int | str, ...] | None = None
    dtype: torch.dtype | None = None
    finite: bool = True


def write_tensors(
    path: str | PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors, which share no memory, with their checksum; ``path`` appears only when it is complete.

    Raises:
        OSError: if the file cannot be written; it names the file.
    """
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_file(path) as partial:
        try:
            save_file(stored, partial, {**(metadata or {}), _CHECKSUM: _checksum(stored)})
        except SafetensorError as error:
            full = "os error 28" in str(error)  # safetensors has no error of its own for a full disk
            raise OSError(errno.ENOSPC if full else errno.EIO, " ".join(str(error).split()).rstrip(".")) from error


def read_tensors(
    path: str | PathLike[str],
    expected: Mapping[str, Expected],
    *,
    what: str,
    remedy: str,
    metadata: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file, on the CPU, and its metadata.

    Args:
        path: the file.
        expected: what each tensor must be, by its name.
        what: what the file must be, for the message: "a file of CorpusStatistics.save".
        remedy: what to do if it is not, for the message: "compute it again".
        metadata: what the file's metadata must say, such as its format and version.
        optional: names of ``expected`` that may be absent.

    Raises:
        ValueError: if there is no such file, it is damaged, or it holds anything else; the message names it, and ends
            with the remedy.
    """
    stored: dict[str, Tensor] = {}
    found: dict[str, str] = {}
    fault = None if Path(path).is_file() else "no such file"
    try:
        if fault is None:
            with safe_open(str(path), framework="pt") as file:
                found = file.metadata() or {}
                stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dict
            fault = _fault(stored, found, expected, metadata or {}, optional)
    except SafetensorError as error:
        fault = f"a damaged file ({_one_line(error)})"
    except OSError as error:
        fault = f"a file that cannot be read ({_one_line(error)})"
    if fault is not None:
        raise ValueError(f"{str(path)!r} must be {what}, got {fault}: {remedy}.")
    return stored, found


def _fault(
    stored: Mapping[str, Tensor],
    found: Mapping[str, str],
    expected: Mapping[str, Expected],
    metadata: Mapping[str, str],
    optional: Collection[str],
) -> str | None:
    """Say what is wrong with the content of a file; None if nothing is."""
    for name, value in metadata.items():
        if found.get(name) != value:
            return f"the {name} {shown(found.get(name))} instead of {value!r}"
    if missing := sorted(expected.keys() - stored.keys() - set(optional)):
        return f"no tensor {', '.join(map(repr, missing))} in it"
    if other := sorted(stored.keys() - expected.keys()):
        return f"another tensor in it, {other[0]!r}"
    sizes: dict[str, int] = {}
    for name, tensor in stored.items():
        wanted = expected[name]
        shape = wanted.shape
        if shape is not None and len(shape) == tensor.ndim:
            pairs = zip(shape, tensor.shape, strict=True)
            shape = tuple(sizes.setdefault(size, n) if isinstance(size, str) else size for size, n in pairs)
        if shape is not None and tuple(tensor.shape) != shape:
            return f"{name!r} of the shape {tuple(tensor.shape)} instead of {shape}"
        if not (tensor.is_floating_point() if wanted.dtype is None else tensor.dtype == wanted.dtype):
            return f"{name!r} of {tensor.dtype} instead of {wanted.dtype or 'floating-point numbers'}"
        if wanted.finite and not bool(tensor.isfinite().all()):
            return f"{name!r} with NaN or an infinite value"
    if _CHECKSUM in found and found[_CHECKSUM] != _checksum(stored):
        return "a damaged file (its checksum differs)"
    return None


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
