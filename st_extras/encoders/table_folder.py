"""An EmbeddingTable on disk: chunks of vectors in the order in which they were read, and a sorted index of keys.

A key is a 128-bit hash of a sentence's token ids. A folder holds ``settings.json``, ``chunk-00000.safetensors`` and on,
and once it is complete ``index.bin`` (records of a key and a row number, sorted) and ``table.json``. Everything is
mapped into memory, not read: a lookup touches a few pages.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from st_extras.checks import shown
from st_extras.whole_file import whole_file

_FORMAT = {"format": "st-extras embedding table folder", "version": 1}
_KEY = 16  # bytes
_RECORD = _KEY + 8
_BLOCK = 1 << 18  # records compared at once
Settings = dict[str, Any]


def hash_keys(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the 128-bit hash of each row of token ids, (N,) of 16 bytes."""
    hashes = [blake2b(np.asarray(row, dtype="<i8").tobytes(), digest_size=_KEY).digest() for row in rows]
    return np.array(hashes, dtype=f"S{_KEY}")


class TableFolder:
    """A complete folder, open for lookups.

    Args:
        path: the folder.

    Attributes:
        path: the folder.
        settings: what the table was computed with.
        count: number of sentences.
        dimension: D.

    Raises:
        ValueError: if it is not a complete folder of an embedding table; the message names it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        content = _read_table(self.path)
        self.settings: Settings = content["settings"]
        self.count, self.dimension = content["count"], content["dimension"]
        self._names = [name for name, _, _ in content["chunks"]]
        self._starts = np.cumsum([0] + [rows for _, rows, _ in content["chunks"]])
        self._vectors: dict[int, np.ndarray] = {}
        total = int(self._starts[-1])
        file = self.path / "index.bin"
        sizes = [("index.bin", total * _RECORD), *((name, size) for name, _, size in content["chunks"])]
        for name, size in sizes:
            if not (self.path / name).is_file() or (self.path / name).stat().st_size != size:
                raise ValueError(f"{self.path / name} must have {size} bytes, got another file: compute it again.")
        self._bytes = np.memmap(file, np.uint8, "r", shape=(total, _RECORD))
        self._index = np.memmap(file, f"S{_RECORD}", "r", shape=(total,))

    def __reduce__(self) -> tuple[Any, ...]:
        return TableFolder, (self.path,)  # copies and worker processes map the same files

    def find(self, rows: Sequence[Sequence[int]]) -> list[int | None]:
        """Return the number of each sentence's vector; None if there is none."""
        keys = hash_keys(rows)
        places = np.searchsorted(self._index, keys.astype(f"S{_RECORD}")).clip(max=len(self._index) - 1)
        records = np.asarray(self._bytes[places])  # (B, 24)
        found = (records[:, :_KEY] == keys.view(np.uint8).reshape(-1, _KEY)).all(axis=1)
        numbers = np.ascontiguousarray(records[:, _KEY:]).view(">u8")[:, 0]
        return [int(number) if known else None for number, known in zip(numbers, found, strict=True)]

    def fetch(self, numbers: Sequence[int]) -> Tensor:
        """Return vectors by their numbers, (B, D) in float32 on the CPU."""
        rows = np.empty((len(numbers), self.dimension), dtype=np.float32)
        if max(numbers, default=0) >= self._starts[-1]:
            raise ValueError(f"{self.path / 'index.bin'} must name rows of the chunks, got others: compute it again.")
        chunks = np.searchsorted(self._starts, numbers, side="right") - 1
        for place, (chunk, number) in enumerate(zip(chunks.tolist(), numbers, strict=True)):
            if chunk not in self._vectors:
                shape = (int(self._starts[chunk + 1] - self._starts[chunk]), self.dimension)
                self._vectors[chunk] = _map_vectors(self.path / self._names[chunk], shape)
            rows[place] = self._vectors[chunk][number - self._starts[chunk]]
        norms = np.linalg.norm(rows, axis=1)
        if not ((np.abs(norms - 1) < 1e-2) | (norms == 0)).all():  # NaN is in neither
            raise ValueError(f"{self.path}: embeddings must be finite and of norm 1, got others: compute it again.")
        return torch.from_numpy(rows)


def begin(path: Path, settings: Settings) -> None:
    """Make the folder, or check that a computation with the same settings has begun in it.

    Raises:
        ValueError: if the settings differ, or the folder holds something else.
    """
    file = path / "settings.json"
    if not path.parent.is_dir():
        raise ValueError(f"folder must be in an existing folder, got {str(path)!r}.")
    if path.is_file() or (path.is_dir() and not file.is_file() and any(path.iterdir())):
        raise ValueError(f"folder must be new, empty or one of an earlier compute, got {str(path)!r}.")
    if file.is_file():
        known = _read_json(file)
        if other := sorted(key for key in known.keys() | settings.keys() if known.get(key) != settings.get(key)):
            raise ValueError(
                f"folder must have been begun with the same settings, got {str(path)!r} with another "
                f"{', '.join(other)}: take a new folder."
            )
        for unfinished in path.glob(".*.partial"):  # of a computation that was killed
            unfinished.unlink()
        return
    path.mkdir(exist_ok=True)
    _write_json(file, settings)


def write_chunk(path: Path, number: int, keys: np.ndarray, vectors: np.ndarray, read: int, digest: str) -> None:
    """Write chunk ``number``: keys (n,), vectors (n, D), and how many sentences were read for it, with their digest."""
    file = path / _chunk_name(number)
    tensors = {"keys": keys.view(np.uint8).reshape(len(keys), _KEY), "embeddings": np.ascontiguousarray(vectors)}
    with whole_file(file) as partial:
        save_file(tensors, str(partial), {"sentences": json.dumps([read, digest])})


def read_chunks(path: Path) -> Iterator[tuple[np.ndarray, int, int, str]]:
    """Yield keys (n,), D, sentences read and their digest of each chunk that is there, in order.

    Raises:
        ValueError: if a file is damaged; the message names it.
    """
    number = 0
    while (file := path / _chunk_name(number)).is_file():
        try:
            with safe_open(str(file), framework="np") as content:
                read, digest = json.loads(content.metadata()["sentences"])
                keys = content.get_tensor("keys")
                rows, dimension = content.get_slice("embeddings").get_shape()
            if keys.dtype != np.uint8 or keys.shape != (rows, _KEY):
                raise ValueError(f"keys of {keys.dtype} and the shape {keys.shape}")
        except (SafetensorError, OSError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{file}: not a complete chunk of an embedding table ({error}).") from error
        yield keys.reshape(-1).view(f"S{_KEY}"), dimension, read, digest
        number += 1


def finish(path: Path) -> TableFolder:
    """Write the index over all chunks and the file that marks the folder as complete, and open it.

    Of equal keys, the one read first counts.
    """
    sizes, dimension = [], 0
    for keys, dimension, _, _ in read_chunks(path):  # noqa: B007
        sizes.append(len(keys))
    with whole_file(path / "index.bin") as partial:
        count = _write_index(partial, path, sum(sizes))
    names = [_chunk_name(number) for number in range(len(sizes))]
    chunks = [[name, rows, (path / name).stat().st_size] for name, rows in zip(names, sizes, strict=True)]
    table = {"count": count, "dimension": dimension, "chunks": chunks, "settings": _read_json(path / "settings.json")}
    _write_json(path / "table.json", _FORMAT | table)
    return TableFolder(path)


def _write_index(file: Path, path: Path, total: int) -> int:
    """Write the sorted records of all chunks' ``total`` keys, and return the number of distinct keys."""
    records = np.memmap(file, np.uint8, "w+", shape=(total, _RECORD))
    start = 0
    for keys, *_ in read_chunks(path):
        end = start + len(keys)
        records[start:end, :_KEY] = keys.view(np.uint8).reshape(-1, _KEY)
        records[start:end, _KEY:] = np.arange(start, end, dtype=">u8").view(np.uint8).reshape(-1, 8)
        start = end
    records.view(f"S{_RECORD}")[:, 0].sort()  # in the file
    count = min(total, 1)
    for start in range(0, total - 1, _BLOCK):
        block = records[start : start + _BLOCK + 1, :_KEY]
        count += int((block[1:] != block[:-1]).any(axis=1).sum())
    records.flush()
    return count


def folder_path(name: str, value: Any) -> Path:
    """Return ``value`` as a path.

    Raises:
        ValueError: if it is none; the message begins with ``name``.
    """
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{name} must be the path of a folder, got {shown(value)}.")
    return Path(value)


def merge_folders(tables: Sequence[str | os.PathLike[str]], path: Path) -> TableFolder:
    """Put the chunks of several tables into one new folder, by hard links where the file system allows it.

    Raises:
        ValueError: if there is no table, one is not a complete folder, they were computed with other settings, or the
            folder is not new.
    """
    if isinstance(tables, str | bytes) or not isinstance(tables, Sequence) or not tables:
        raise ValueError(f"tables must be a list of at least one folder, got {shown(tables)}.")
    parts = [TableFolder(folder_path("tables, one by one,", table)) for table in tables]
    for part in parts:
        if (part.settings, part.dimension) != (parts[0].settings, parts[0].dimension):
            raise ValueError(f"tables must have the same settings, got {part.path} with others than {parts[0].path}.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"folder must be new or empty, got {str(path)!r}.")
    begin(path, parts[0].settings | {"merged": True})
    for number, file in enumerate(part.path / name for part in parts for name in part._names):
        target = path / _chunk_name(number)
        try:
            os.link(file, target)
        except OSError:
            shutil.copyfile(file, target)
    return finish(path)


def _chunk_name(number: int) -> str:
    return f"chunk-{number:05d}.safetensors"


def _map_vectors(file: Path, shape: tuple[int, int]) -> np.ndarray:
    """Map the embeddings of a chunk: the header of a safetensors file tells where they begin.

    Raises:
        ValueError: if they are not floating-point numbers of that shape, or the file is damaged; the message names it.
    """
    try:
        with safe_open(str(file), framework="np") as content:
            found = tuple(content.get_slice("embeddings").get_shape())
        with file.open("rb") as data:
            length = int.from_bytes(data.read(8), "little")
            entry = json.loads(data.read(length))["embeddings"]
        kind = {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]
    except (SafetensorError, OSError, LookupError, ValueError) as error:
        raise ValueError(f"{file}: not a complete chunk of an embedding table ({error}).") from error
    if found != shape:
        raise ValueError(f"{file} must hold embeddings of the shape {shape}, got {found}: compute it again.")
    return np.memmap(file, kind, "r", offset=8 + length + entry["data_offsets"][0], shape=shape)


def _read_table(path: Path) -> Settings:
    """Return what the file of a complete folder says: settings, count, dimension and [name, rows, bytes] of each chunk.

    Raises:
        ValueError: if there is none, or it is damaged or of another version; the message names it.
    """
    file = path / "table.json"
    content = _read_json(file)
    if {key: content.get(key) for key in _FORMAT} != _FORMAT:
        raise ValueError(
            f"{path} is not a complete folder of EmbeddingTable.compute: run compute again with this folder, which "
            "goes on where it stopped."
        )
    settings: Any = content.get("settings")
    chunks: Any = content.get("chunks")
    numbers = [(content["version"], 1), (content.get("count"), 1), (content.get("dimension"), 1)]
    good = isinstance(settings, dict) and isinstance(settings.get("vocabulary", 0), str | None)
    good = good and isinstance(chunks, list) and len(chunks) > 0
    for number, chunk in enumerate(chunks if good else []):
        good = good and isinstance(chunk, list) and len(chunk) == 3 and chunk[0] == _chunk_name(number)
        numbers += [(size, 0) for size in (chunk[1:] if good else [])]
    good = good and all(type(number) is int and lowest <= number < 2**48 for number, lowest in numbers)
    if not good or content["count"] > sum(rows for _, rows, _ in chunks):
        raise ValueError(f"{file} must be as EmbeddingTable.compute wrote it, got a damaged file: compute it again.")
    return content


def _read_json(file: Path) -> Settings:
    with suppress(FileNotFoundError):
        try:
            content = json.loads(file.read_text(encoding="utf8"))
        except ValueError as error:
            raise ValueError(f"{file} must be JSON, got a damaged file.") from error
        if isinstance(content, dict):
            return content
    return {}


def _write_json(file: Path, content: Settings) -> None:
    with whole_file(file) as partial:
        partial.write_text(json.dumps(content, indent=1), encoding="utf8")
