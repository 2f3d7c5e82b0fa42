"""What went wrong, as one line and an exit code: 2 for a wrong request, 1 for a run that failed."""

from __future__ import annotations

import errno
import json
import sys

from safetensors import SafetensorError

WRONG_REQUEST = 2
FAILED_RUN = 1
INTERRUPTED = 130

FAILURES = (
    ValueError,
    ImportError,
    OSError,
    OverflowError,
    MemoryError,
    RuntimeError,
    FloatingPointError,
    SafetensorError,
)
"""What a user, their files or their machine can cause; any other exception is a fault of the program."""

_WRONG_PATH = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
_WRONG_NAME = {errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EROFS}
_NOT_OURS = (UnicodeError, json.JSONDecodeError, OverflowError, MemoryError, RuntimeError, SafetensorError)


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ended in ``error``, one of FAILURES."""
    if isinstance(error, OSError):
        return WRONG_REQUEST if isinstance(error, _WRONG_PATH) or error.errno in _WRONG_NAME else FAILED_RUN
    if isinstance(error, ValueError):
        training = sys.modules.get("st_extras.training.divergence")  # nothing diverged if this was never imported
        return FAILED_RUN if training is not None and isinstance(error, training.DivergenceError) else WRONG_REQUEST
    return WRONG_REQUEST if isinstance(error, ImportError | OverflowError) else FAILED_RUN


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` on one line; for an error of another library with its type."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename!r}: {error.strerror}"
    text = " ".join(text.split())
    if isinstance(error, _NOT_OURS) or not text:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if text.endswith(".") else f"{text}."
