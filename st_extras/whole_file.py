"""Files that are whole or not there, folders that one process writes to at a time, and errors of a full disk."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FAILED = _FULL | {errno.EROFS, errno.EIO}


@contextmanager
def naming_file(path: str | os.PathLike[str], unfinished: Path | None = None) -> Iterator[None]:
    """Name the file that is written to in the system's errors of the block, and say what to do about a full disk.

    Args:
        path: the file.
        unfinished: what is written in its place meanwhile.

    Raises:
        OSError: if the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(unfinished)):  # it is about something else
            raise
        advice = ": free space there and do the same again" if error.errno in _FULL else ""
        raise OSError(error.errno, f"{error.strerror}{advice}", str(path)) from error


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it is moved into place when the block ends without an error.

    An interruption leaves the earlier file or the new one, never half of one. The content reaches the disk before the
    move, and an error takes the unfinished file away.

    Raises:
        OSError: if the file cannot be written; see :func:`naming_file`.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with naming_file(target, partial):
            yield partial
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def write_checked_json(path: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum and its ``kind``: the format of the file and its version."""
    described = {"format": kind, **content}
    write_json(path, {"checksum": _checksum(described), **described})


def read_checked_json(path: Path, kind: str, remedy: str) -> dict[str, Any]:
    """Return what :func:`write_checked_json` wrote; nothing if there is no such file.

    Raises:
        ValueError: if it is damaged or of another kind; the message ends with the ``remedy``.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
        if content.pop("checksum") == _checksum(content) and content.pop("format") == kind:
            return content
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise ValueError(f"{str(path)!r} must be {kind}, as it was written, got a damaged or another file: {remedy}.")


def _checksum(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for it out of a folder, where the system has such locks; a killed one's is gone.

    Raises:
        ValueError: if another process is in it.
    """
    with ExitStack() as stack:
        try:
            import fcntl

            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"folder must have one writer, got {str(folder)!r}, to which another process writes: wait for it, or "
                "take another folder."
            ) from None
        except (ImportError, OSError):
            pass
        yield


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON, so that an interruption leaves the earlier file or the new one."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(value, indent=1), encoding="utf8")


@contextmanager
def write_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of a full disk, which torch and safetensors raise in their own ways, into one OSError."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        full = isinstance(error, SafetensorError) or getattr(error, "errno", None) in _FAILED
        if not full and "PytorchStreamWriter" not in str(error) and "inline_container" not in str(error):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        raise OSError(
            f"Writing to {str(folder)!r} failed ({reason}): free space on the disk, then resume, or start again with "
            "overwrite if there is no checkpoint yet."
        ) from error
