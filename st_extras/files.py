"""Files and folders that are replaced as a whole: an interruption leaves the earlier one or the new one."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from st_extras.checks import check_bool, shown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

logger = logging.getLogger(__name__)
FILES = "st_extras_files.json"
"""In a folder that :func:`replace_folder` wrote: the names of its files. What it does not list is somebody else's."""
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
        is_named = unfinished is not None and str(error.filename).startswith(str(unfinished))
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


# --- a folder ---


@contextmanager
def replace_folder(target: str | PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder beside ``target``; at the end of the block it becomes ``target``, unless an error was raised.

    Nothing that this package did not write is removed or overwritten, whatever fails and when. A kill leaves ``target``
    as it was, or the new one, and beside it the hidden folder ``.NAME.unfinished``, which the next call removes. Only
    after a kill between the last two renames there is no ``target``: the next call puts the earlier one back. Of
    several processes of one training, only the first may call this.

    Args:
        target: a new or empty folder, or with ``overwrite`` one that an earlier call wrote.
        overwrite: replace what an earlier call wrote, also files that somebody has edited since.

    Raises:
        ValueError: if the folder may not be replaced, see :func:`check_output`, or another process is writing it.
            What somebody puts into ``target`` during the block is noticed at its end; ``target`` is then as it was.
        OSError: if the new folder cannot be written or renamed; the message names ``target``.
    """
    output = check_output(target, overwrite=overwrite)
    work, new, replaced = _work_folders(output)
    with write_errors(output, work):
        work.mkdir(parents=True, exist_ok=True)
        with one_writer(work):
            (work / FILES).touch()
            if new.exists() and replaced.exists():  # killed between the two renames
                os.rename(replaced, output)
            _remove_own(new, replaced)
            new.mkdir()
            try:
                yield new
                follow_umask(new)
                list_files(new)
                sync_files(new)
                _swap(new, output, replaced, overwrite)
            finally:
                if not (new.exists() and replaced.exists()):  # else it could not be put back: the next call does it
                    _remove_own(new, replaced)
                    if left := sorted(_names(work) - {FILES}):
                        logger.warning("%s stays, with what no run wrote: %s.", work, ", ".join(left))
                    else:
                        (work / FILES).unlink()
                        work.rmdir()


def check_output(output: str | PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the absolute path of a folder that :func:`replace_folder` may replace now. Nothing is changed.

    Args:
        output: a new or empty folder, or with ``overwrite`` one that an earlier call wrote.
        overwrite: whether what an earlier call wrote may be replaced.

    Raises:
        ValueError: if ``output`` is a file or below one, a mount point, the working directory or above it, or holds
            anything that may not be replaced; or if something that no run wrote is in the way beside it.
    """
    check_bool("overwrite", overwrite)
    path = Path(output).resolve()
    if os.path.ismount(path):
        raise ValueError(
            f"output must be a folder that can be renamed, got the mount point {str(output)!r}: take one in it."
        )
    here = Path.cwd()
    if path in (here, *here.parents):
        raise ValueError(
            f"output must not be the working directory or a folder above it, got {str(output)!r}: give a folder in it, "
            "as programs that work there lose a folder that is replaced."
        )
    nearest = next(place for place in (path, *path.parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"output must be a folder, got {str(output)!r}: {str(nearest)!r} is a file.")
    work, new, replaced = _work_folders(path)
    mark = work / FILES  # empty, made first and removed last
    if os.path.lexists(work) and not (mark.is_file() and mark.stat().st_size == 0) and _foreign(work):
        raise ValueError(
            f"output must have no folder of others beside it named {work.name!r}, got {str(work)!r}: move it, or "
            "choose another output."
        )
    interrupted = new.exists() and replaced.exists()  # by a kill between the two renames
    if (interrupted and path.exists()) or (not interrupted and _foreign(replaced)):
        raise ValueError(
            f"output must have no earlier result beside it, got {str(replaced)!r}, which an interrupted run moved "
            "there: move it, or choose another output."
        )
    _refuse_loss(replaced if interrupted else path, overwrite)
    return path


def list_files(folder: Path) -> None:
    """Write the names of all files and empty folders of a folder into it: they then count as written by a run."""
    with whole_file(folder / FILES) as partial:
        partial.write_text(json.dumps(sorted(_names(folder) - {FILES, partial.name}), indent=1), encoding="utf8")


def listed_files(folder: Path) -> list[str]:
    """Return what :func:`list_files` wrote into a folder, and the name of the list; nothing if there is none."""
    try:
        names = json.loads((folder / FILES).read_text(encoding="utf8"))
    except (OSError, ValueError):
        return []
    known = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return [*names, FILES] if known else []


def _work_folders(output: Path) -> tuple[Path, Path, Path]:
    """Return the hidden folder beside ``output``, and in it the places of the new folder and of the earlier one."""
    work = output.with_name(f".{output.name}.unfinished")
    return work, work / "new", work / "replaced"


def _swap(new: Path, output: Path, replaced: Path, overwrite: bool) -> None:
    """Rename ``output`` to ``replaced`` and ``new`` to ``output``; if that fails, ``output`` is as it was."""
    try:
        if output.exists():
            os.rename(output, replaced)
            _refuse_loss(replaced, overwrite, output)  # what came meanwhile
        os.rename(new, output)
    except BaseException:
        if new.exists() and replaced.exists():
            os.rename(replaced, output)
        raise


def _names(folder: Path) -> set[str]:
    """Return the names of all files and empty folders in a folder, "." for a file in its place; follow no links."""
    if folder.is_symlink() or not folder.is_dir():
        return {"."} if os.path.lexists(folder) else set()
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
    }


def _foreign(folder: Path) -> set[str]:
    """Return the names in a folder that are not listed there."""
    return _names(folder) - set(listed_files(folder))


def _refuse_loss(folder: Path, overwrite: bool, output: Path | None = None) -> None:
    """Raise a ValueError if something would be lost with a folder, which is ``output`` or stood in its place."""
    if lost := _foreign(folder) if overwrite else _names(folder):
        kind = "hold only what an earlier run wrote" if overwrite else "be a new or empty folder"
        remedy = "move that away, or choose another folder" if overwrite else "choose another, or set overwrite=True"
        raise ValueError(f"output must {kind}, got {str(output or folder)!r} with {min(lost)!r}: {remedy}.")


def _remove_own(new: Path, replaced: Path) -> None:
    """Remove the new folder, and of the earlier result what is listed there, the list last: a kill may come."""
    shutil.rmtree(new, ignore_errors=True)
    for name in listed_files(replaced):
        path = replaced / name
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    for folder in (*sorted(replaced.rglob("*"), reverse=True), replaced):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


# --- checked JSON ---


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
                f"output must have one writer at a time, got {str(folder)!r}, which another process is writing: wait "
                "for it, or choose another output."
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
    from safetensors.torch import save_file

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
    from st_extras.functional import finite_rows

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
    import torch

    contents: list[str | bytes | memoryview] = []
    for name in sorted(tensors):
        contents += [name, tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data]
    return digest(contents)


def message_line(error: Exception) -> str:
    """Return the message of an error in one line, without its final period."""
    return " ".join(str(error).split()).rstrip(".")
