"""Write a file as a whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
