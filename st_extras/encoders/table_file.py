"""The file of an EmbeddingTable: safetensors with the embeddings, all token ids in a row, and their lengths."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from st_extras.encoders.tensor_file import read_tensor_file
from st_extras.whole_file import whole_file

_METADATA = {"format": "st-extras embedding table", "version": "1"}
_TENSORS = ("embeddings", "ids", "lengths")


def write_table_file(
    path: str | PathLike[str], keys: Sequence[Sequence[int]], embeddings: Tensor, vocabulary: str | None
) -> None:
    """Write the token ids of N sentences, their embeddings, (N, D), and the hash of the ids' vocabulary, if known.

    ``path`` appears only when it is complete.

    Raises:
        ValueError: if the file's folder does not exist.
    """
    file = Path(path)
    if not file.parent.is_dir():
        raise ValueError(f"path must be in an existing folder, got {str(path)!r}.")
    tensors = {
        "embeddings": embeddings.cpu().contiguous(),
        "ids": torch.tensor([token for key in keys for token in key], dtype=torch.long),
        "lengths": torch.tensor([len(key) for key in keys], dtype=torch.long),
    }
    with whole_file(file) as partial:
        save_file(tensors, str(partial), _METADATA | {"vocabulary": vocabulary or ""})


def read_table_file(path: str | PathLike[str]) -> tuple[list[list[int]], Tensor, str | None]:
    """Return what :func:`write_table_file` wrote: token ids, embeddings (N, D), and the vocabulary's hash or None.

    Raises:
        ValueError: if there is no such file, or it is damaged or another one; the message names it.
    """
    stored, metadata = read_tensor_file(path)
    fault = _fault(stored, metadata)
    if fault:
        raise ValueError(f"{path} is not an embedding table of EmbeddingTable.save: {fault}; compute it again.")
    keys = [part.tolist() for part in torch.split(stored["ids"], stored["lengths"].tolist())]
    if len(set(map(tuple, keys))) < len(keys):
        raise ValueError(f"{path} is not an embedding table of EmbeddingTable.save: it holds a sentence twice.")
    return keys, stored["embeddings"], metadata.get("vocabulary") or None


def _fault(stored: dict[str, Tensor], metadata: dict[str, str]) -> str:
    """Return what is wrong with the content of a file, in words; empty if nothing is."""
    if {name: metadata.get(name) for name in _METADATA} != _METADATA:
        found = f"{metadata.get('format', 'no format')!r}, version {metadata.get('version', 'none')}"
        return f"it must say {_METADATA['format']!r}, version {_METADATA['version']}, and says {found}"
    if set(stored) != set(_TENSORS):
        return f"it must hold {', '.join(_TENSORS)}, and holds {', '.join(sorted(stored)) or 'nothing'}"
    embeddings, ids, lengths = (stored[name] for name in _TENSORS)
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        return f"embeddings must be (N, D) floating-point numbers, and is {_described(embeddings)}"
    for name, tensor in (("ids", ids), ("lengths", lengths)):
        if tensor.ndim != 1 or tensor.dtype != torch.long:
            return f"{name} must be a list of int64, and is {_described(tensor)}"
    if len(embeddings) != len(lengths) or len(lengths) == 0 or embeddings.size(1) == 0:
        return f"it must hold an embedding for each length, and holds {tuple(embeddings.shape)} for {len(lengths)}"
    if bool((lengths < 0).any()) or int(lengths.sum()) != len(ids):
        return f"lengths must be >= 0 and add up to the number of ids, {len(ids)}"
    if bool((ids < 0).any()):
        return f"ids must be >= 0, and the lowest is {int(ids.min())}"
    norms = embeddings.float().norm(dim=1)
    if not bool((((norms - 1).abs() < 1e-2) | (norms == 0)).all()):  # NaN is in neither
        return "embeddings must be finite and of norm 1"
    return ""


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"
