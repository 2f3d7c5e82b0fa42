"""Files that are whole or not there: JSON, and tensors (safetensors) with a checksum.

An interruption leaves the earlier file or the new one. What is read is checked, and an error names the file and what
to do.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from st_extras.checks import shown
from st_extras.functional import finite_rows

_HEX_DIGITS = 32
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FAILED = _FULL | {errno.EROFS, errno.EIO}


def digest(contents: Iterable[str | bytes | memoryview]) -> str:
    """Return 32 hexadecimal digits (BLAKE2b) that stand for these texts and bytes, in this order.

    The one digest of this package: it names what is found by its content, and shows damage. The borders count:
    ``["ab", "c"]`` and ``["a", "bc"]`` differ.
    """
    total = blake2b(digest_size=_HEX_DIGITS // 2)
    for content in contents:
        part = memoryview(content.encode("utf8", "surrogatepass") if isinstance(content, str) else content)
        total.update(part.nbytes.to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


def file_digest(path: Path) -> str:
    """Return the :func:`digest` of a file, read in blocks of 1 MiB."""
    with path.open("rb") as file:
        return digest(iter(lambda: file.read(2**20), b""))


def json_digest(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return the :func:`digest` of a value as JSON, without what has a key that JSON does not know.

    Args:
        value: the value.
        default: gives a value that JSON knows for one that it does not.
    """
    return digest([json.dumps(value, default=default, skipkeys=True)])


def is_digest(name: str) -> bool:
    """Whether ``name`` has the form of a :func:`digest`."""
    return len(name) == _HEX_DIGITS and not set(name) - set("0123456789abcdef")


@contextmanager
def write_errors(path: str | PathLike[str], unfinished: Path | None = None) -> Iterator[None]:
    """Raise what fails while a file or a folder is written as one OSError, which names it and says what to do.

    torch and safetensors have errors of their own for a full disk. Errors about something else pass.

    Args:
        path: the file or the folder.
        unfinished: what is written in its place meanwhile.

    Raises:
        OSError: if it cannot be written.
    """
    try:
        yield
    except OSError as error:
        is_named = unfinished is not None and error.filename == str(unfinished)
        if not is_named and (error.filename is not None or error.errno not in _FAILED):
            raise
        raise _write_error(error.errno, str(error.strerror), path) from error
    except (SafetensorError, RuntimeError) as error:
        reason = message_line(error)
        of_torch = "PytorchStreamWriter" in reason or "inline_container" in reason
        if not isinstance(error, SafetensorError) and not of_torch:
            raise
        number = re.search(r"os error (\d+)", reason)
        raise _write_error(int(number[1]) if number else errno.EIO, reason, path) from error


def _write_error(code: int | None, reason: str, path: str | PathLike[str]) -> OSError:
    if code in _FAILED:
        reason += f": {'free space there' if code in _FULL else 'look after that disk'} and do the same again"
    return OSError(code, reason, str(path))


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it is moved into place when the block ends without an error.

    An interruption leaves the earlier file or the new one, never half of one. The content reaches the disk before the
    move, and an error takes the unfinished file away.

    Raises:
        OSError: if the file cannot be written; see :func:`write_errors`.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with write_errors(target, partial):
            yield partial
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            follow_umask(partial)
            os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def follow_umask(path: Path) -> None:
    """Give a file, or all files of a folder, the permissions of new files: safetensors makes its own private."""
    mask = os.umask(0o077)
    os.umask(mask)
    for file in (path,) if path.is_file() else path.rglob("*"):
        if file.is_file():
            file.chmod(0o666 & ~mask)


def sync_files(folder: Path) -> None:
    """Wait until all files of a folder have reached the disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())


def write_checked_json(path: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum and its ``kind``: the format of the file."""
    described = {"format": kind, **content}
    write_json(path, {"checksum": json_digest(described), **described})


def read_checked_json(path: Path, kind: str, remedy: str) -> dict[str, Any]:
    """Return what :func:`write_checked_json` wrote; nothing if there is no such file.

    Raises:
        ValueError: if it is damaged or of another kind; the message ends with the ``remedy``.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
        if content.pop("checksum") == json_digest(content) and content.pop("format") == kind:
            return content
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise ValueError(f"{str(path)!r} must be {kind}, as it was written, got a damaged or another file: {remedy}.")


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that lock it too, where the system can; the lock ends with the process.

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


def finite_json(value: Any) -> Any:
    """Return a value for JSON, which has no NaN and no infinity: such numbers become None."""
    if isinstance(value, dict):
        return {key: finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON, so that an interruption leaves the earlier file or the new one."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(value, indent=1), encoding="utf8")


# --- tensors ---

_CHECKSUM = "checksum"


@dataclass(frozen=True)
class Expected:
    """What a tensor in a file must be; its values are always finite.

    Attributes:
        shape: its sizes; a letter in place of one stands for any, the same everywhere in the file. None: any shape.
        dtype: None: any floating-point one.
    """

    shape: tuple[int | str, ...] | None = None
    dtype: torch.dtype | None = None


def write_tensors(
    path: str | PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors, which share no memory, with their checksum; ``path`` appears only when it is complete.

    Raises:
        OSError: if the file cannot be written; it names the file.
    """
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_file(path) as partial:
        save_file(stored, partial, {**(metadata or {}), _CHECKSUM: _tensor_digest(stored)})


def read_tensors(
    path: str | PathLike[str],
    expected: Mapping[str, Expected],
    *,
    what: str,
    remedy: str,
    metadata: Mapping[str, str] | None = None,
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file, on the CPU, and its metadata.

    Args:
        path: the file.
        expected: what each tensor must be, by its name.
        what: what the file must be, for the message: "the state of a loss".
        remedy: what to do if it is not, for the message: "compute it again".
        metadata: what the file's metadata must say, such as its format.

    Raises:
        ValueError: if there is no such file, it is damaged, or it holds anything else; the message names it, and ends
            with the remedy.
    """
    stored: dict[str, Tensor] = {}
    found: dict[str, str] = {}
    difference = None if Path(path).is_file() else "no such file"
    try:
        if difference is None:
            with safe_open(str(path), framework="pt") as file:
                found = file.metadata() or {}
                stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dict
            difference = _difference(stored, found, expected, metadata or {})
    except SafetensorError as error:
        difference = f"a damaged file ({message_line(error)})"
    except OSError as error:
        difference = f"a file that cannot be read ({message_line(error)})"
    if difference is not None:
        raise ValueError(f"{str(path)!r} must be {what}, got {difference}: {remedy}.")
    return stored, found


def _difference(
    stored: Mapping[str, Tensor],
    found: Mapping[str, str],
    expected: Mapping[str, Expected],
    metadata: Mapping[str, str],
) -> str | None:
    """Return what is wrong with the content of a file; None if nothing is."""
    for name, value in metadata.items():
        if found.get(name) != value:
            return f"the {name} {shown(found.get(name))} instead of {value!r}"
    if missing := sorted(expected.keys() - stored.keys()):
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
        if not bool(finite_rows(tensor.reshape(1, -1))):
            return f"{name!r} with NaN or an infinite value"
    if _CHECKSUM in found and found[_CHECKSUM] != _tensor_digest(stored):
        return "a damaged file (its checksum differs)"
    return None


def _tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    contents: list[str | bytes | memoryview] = []
    for name in sorted(tensors):
        contents += [name, tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data]
    return digest(contents)


def message_line(error: Exception) -> str:
    """Return the message of an error in one line, without its final period."""
    return " ".join(str(error).split()).rstrip(".")
