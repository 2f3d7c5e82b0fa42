"""Write a file as a whole or not at all, and say in one sentence that a disk is full."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FAILED = _FULL | {errno.EROFS, errno.EIO}


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it is moved into place when the block ends without an error.

    An interruption leaves the earlier file or the new one, never half of one. The content reaches the disk before the
    move, and an error takes the unfinished file away.

    Raises:
        OSError: if the file cannot be written; it names the file, and says what to do about a full disk.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(partial)):  # it is about something else
            raise
        advice = ": free space there and do the same again" if error.errno in _FULL else ""
        raise OSError(error.errno, f"{error.strerror}{advice}", str(target)) from error
    finally:
        partial.unlink(missing_ok=True)


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
