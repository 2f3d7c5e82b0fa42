"""Rows of numbers that are only appended; in a folder, they are whole after a kill, checked, and mapped into memory.

``rows.bin`` holds the rows, each with a checksum; ``rows.json`` says what they consist of, how many are whole, and
what its user adds. It is written after the rows: what a process that was killed wrote behind them is cut off.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from st_extras.whole_file import naming_file, one_writer, read_checked_json, write_checked_json

_STATE, _ROWS = "rows.json", "rows.bin"
_AGAIN = "delete the folder and start again"
State = dict[str, Any]


def checked_rows(fields: list[Any], **columns: Any) -> np.ndarray:
    """Return rows of these numpy fields with the values of each, and a checksum of them all."""
    rows = np.empty(len(next(iter(columns.values()))), np.dtype([*fields, ("check", "<u4")]))
    for name, values in columns.items():
        rows[name] = values
    rows["check"] = _checks(rows)
    return rows


def require_whole(rows: np.ndarray, folder: Path | None, **columns: np.ndarray) -> np.ndarray:
    """Return the rows, if they are as :func:`checked_rows` made them, with these values of some fields.

    Raises:
        ValueError: if one is damaged; the message names the folder.
    """
    other = any((rows[name] != values).any() for name, values in columns.items())
    if other or _checks(rows) != rows["check"].tolist():
        raise ValueError(f"{str(folder)!r} holds a damaged row: {_AGAIN}.")
    return rows


class RowFile:
    """Rows in a folder or in memory, open to append to; see :meth:`open`.

    Attributes:
        path: the folder; None in memory.
        settings: what the rows depend on.
        state: what was last said with :meth:`commit`; empty at first.
    """

    def __init__(self, path: Path | None, kind: str, about: State, file: BinaryIO) -> None:
        self.path, self._kind, self._about, self._file = path, kind, about, file
        self.settings: State = about["settings"]
        self.state: State = about["state"]

    @classmethod
    @contextmanager
    def open(
        cls,
        folder: str | PathLike[str] | None,
        kind: str,
        settings: State,
        differing: Callable[[State, State], list[str]],
        *,
        new: bool = False,
    ) -> Iterator[RowFile]:
        """Begin rows in a folder, or go on with those that were begun with these settings, unless it must be ``new``.

        Args:
            folder: the folder. None: they are kept in memory.
            kind: the format of the rows and its version.
            settings: what the rows depend on.
            differing: gives the names of the settings in which two differ.
            new: refuse to go on with earlier rows.

        Raises:
            ValueError: if the rows were begun with other settings, the folder holds something else or is damaged, or
                another process writes to it.
        """
        begun: State = {"settings": settings, "rows": 0, "fields": [], "state": {}}
        if folder is None:
            yield cls(None, kind, begun, BytesIO())
            return
        path = Path(folder)
        found = {file.name for file in path.iterdir() if file.suffix != ".partial"} if path.is_dir() else set()
        if path.is_file() or not path.parent.is_dir() or (found and (new or _STATE not in found)):
            earlier = "" if new else " or one of an earlier call"
            raise ValueError(f"folder must be new or empty{earlier}, in an existing folder, got {str(path)!r}.")
        path.mkdir(exist_ok=True)
        with one_writer(path):
            for unfinished in path.glob(".*.partial"):  # of a process that was killed
                unfinished.unlink()
            about = read_checked_json(path / _STATE, kind, _AGAIN) or begun
            if other := differing(about["settings"], settings):
                raise ValueError(
                    f"folder must have been begun with the same settings, got {str(path)!r} with another "
                    f"{', '.join(other)}: take a new folder."
                )
            write_checked_json(path / _STATE, kind, about)  # before the rows: their file is ours
            with (path / _ROWS).open("ab+") as file:
                file.truncate(_checked_size(path, about))
                yield cls(path, kind, about, file)

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Yield the rows that are there, that many at a time."""
        self._file.seek(0)
        row = _row_type(self._about)
        while block := self._file.read(size * row.itemsize):
            yield require_whole(np.frombuffer(block, row), self.path)

    def append(self, rows: np.ndarray) -> None:
        """Append rows, which :func:`checked_rows` made.

        Raises:
            ValueError: if they do not consist of what the earlier ones consist of.
        """
        if self._about["rows"] and rows.dtype != _row_type(self._about):
            raise ValueError(f"{str(self.path)!r} must get rows of {_row_type(self._about)}, got {rows.dtype}.")
        with naming_file(getattr(self._file, "name", "")):
            self._file.write(rows.tobytes())
        self._about |= {"fields": rows.dtype.descr, "rows": self._about["rows"] + len(rows)}

    def commit(self, **state: Any) -> None:
        """Say that all rows so far are whole, with this state."""
        self.state = self._about["state"] = state
        if self.path is not None:
            with naming_file(self._file.name):
                self._file.flush()
                os.fsync(self._file.fileno())
            write_checked_json(self.path / _STATE, self._kind, self._about)

    def rows(self) -> np.ndarray:
        """Return all rows of a file in memory, in one array."""
        return np.frombuffer(cast(BytesIO, self._file).getbuffer(), _row_type(self._about))


def map_rows(folder: str | PathLike[str], kind: str) -> tuple[np.ndarray, State, State]:
    """Return the rows of a folder, mapped into memory, with their settings and their last state.

    Raises:
        ValueError: if there are none, or the folder is damaged.
    """
    path = Path(folder)
    about = read_checked_json(path / _STATE, kind, _AGAIN)
    if not about.get("rows"):
        raise ValueError(f"{str(path)!r} must be a folder of {kind}, got another one or an empty one.")
    _checked_size(path, about)
    return np.memmap(path / _ROWS, _row_type(about), "r", shape=(about["rows"],)), about["settings"], about["state"]


def _row_type(about: State) -> np.dtype:
    return np.dtype([(name, number, *map(tuple, shape)) for name, number, *shape in about["fields"]])


def _checked_size(path: Path, about: State) -> int:
    """Return the bytes of the rows that are whole, which must be there."""
    wanted = int(about["rows"]) * _row_type(about).itemsize
    found = (path / _ROWS).stat().st_size if (path / _ROWS).is_file() else 0
    if found < wanted:
        raise ValueError(f"{str(path / _ROWS)!r} must have {wanted} bytes, got {found}: {_AGAIN}.")
    return wanted


def _checks(rows: np.ndarray) -> list[int]:
    content = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, rows.dtype.itemsize)[:, :-4]
    return [zlib.crc32(row.data) for row in content]
