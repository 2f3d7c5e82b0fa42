"""The file of ``CorpusStatistics``: safetensors with count, mean and scatter, and what they were computed from."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from st_extras.encoders.source import PROBES, Source
from st_extras.whole_file import whole_file

_METADATA = {"format": "st-extras corpus statistics", "version": "1"}
_SYMMETRIC = 1e-9
"""Relative difference that the order of sums may leave between the two halves of a scatter."""


def write_statistics(
    path: str | PathLike[str], count: int, mean: Tensor, scatter: Tensor, source: Source | None
) -> None:
    """Write statistics; ``path`` appears only when it is complete.

    Raises:
        ValueError: if the file's folder does not exist.
    """
    file = Path(path)
    if not file.absolute().parent.is_dir() or file.is_dir():
        raise ValueError(f"path must be a file in an existing folder, got {str(path)!r}.")
    tensors = {"count": torch.tensor(count, dtype=torch.int64), "mean": mean, "scatter": scatter.contiguous()}
    metadata = dict(_METADATA)
    if source is not None:
        tensors["probes"] = source.probes.contiguous()
        metadata |= {"prompt": source.prompt, "max_seq_length": source.max_seq_length}
    with whole_file(file) as partial:
        save_file(tensors, str(partial), metadata)


def read_statistics(path: str | PathLike[str]) -> tuple[int, Tensor, Tensor, Source | None]:
    """Return what :func:`write_statistics` wrote: count, mean (D,), scatter (D, D) and source.

    Raises:
        ValueError: if there is no such file, or it is damaged or another one; the message names it.
    """
    stored, metadata = _read_tensor_file(path, ": compute it again")
    fault = _fault(stored, metadata)
    if fault:
        raise ValueError(f"{path} must be a file of CorpusStatistics.save, got {fault}: compute it again.")
    source = None
    if "probes" in stored:
        source = Source(metadata["prompt"], metadata["max_seq_length"], stored["probes"])
    return int(stored["count"]), stored["mean"], stored["scatter"], source


def _fault(stored: dict[str, Tensor], metadata: dict[str, str]) -> str | None:
    """Say in words what is wrong with the content of a file; None if nothing is."""
    if {name: metadata.get(name) for name in _METADATA} != _METADATA:
        found = f"{metadata.get('format', 'no format')}, version {metadata.get('version', 'none')}"
        return f"another format or version ({found[:80]})"
    names = {"count", "mean", "scatter", *(("probes",) if "prompt" in metadata else ())}
    if stored.keys() != names or ("prompt" in metadata) != ("max_seq_length" in metadata):
        return f"the tensors {', '.join(sorted(stored)) or 'none'} instead of {', '.join(sorted(names))}"
    count, mean, scatter = stored["count"], stored["mean"], stored["scatter"]
    size = mean.numel()
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "count": ((), torch.int64),
        "mean": ((size,), torch.float64),
        "scatter": ((size, size), torch.float64),
        "probes": ((len(PROBES), size), torch.float32),
    }
    for name, tensor in stored.items():
        shape, dtype = shapes[name]
        if tuple(tensor.shape) != shape or tensor.dtype != dtype or not size:
            return f"{name} with the shape {tuple(tensor.shape)} and {tensor.dtype}"
        if not tensor.isfinite().all():
            return f"{name} with values that are not finite"
    if count < 0:
        return f"the count {int(count)}"
    if not count and (mean.any() or scatter.any()):
        return "a mean or scatter of no sentences"
    if (scatter - scatter.T).abs().max() > _SYMMETRIC * scatter.abs().max():
        return "a scatter that is not symmetric"
    if (scatter.diagonal() < 0).any():
        return f"a scatter with {float(scatter.diagonal().min()):.3g} on its diagonal"
    return None


def _read_tensor_file(path: str | PathLike[str], advice: str = "") -> tuple[dict[str, Tensor], dict[str, str]]:
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
