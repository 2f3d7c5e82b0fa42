"""Files and folders that are replaced as a whole: an interruption leaves the earlier one or the new one.

Also what else is one in this package: the digest of contents, and numbers as JSON can hold them.
"""

from __future__ import annotations

import errno
import glob
import json
import logging
import math
import os
import re
import shutil
import threading
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError, safe_open

from st_extras.checks import check_bool

logger = logging.getLogger(__name__)
FILES = "st_extras_files.json"
"""In a folder that :func:`replace_folder` wrote: the names of its files. What it does not list is somebody else's.

It is written last. So it also shows which checkpoints of a training are complete.
"""
MARK = "st_extras_unfinished"
"""Empty; made first and removed last in the hidden folder ``.NAME.unfinished``, it shows that the folder is ours."""
_ABANDONED = 3600.0  # seconds after which nobody writes to an unfinished file any more
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FAILED = _FULL | {errno.EROFS, errno.EIO}


def digest(contents: Iterable[str | bytes | memoryview]) -> str:
    """Return 32 hexadecimal digits (BLAKE2b) that stand for these texts and bytes, in this order.

    The one digest of this package. The borders count: ``["ab", "c"]`` and ``["a", "bc"]`` differ.
    """
    total = blake2b(digest_size=16)
    for content in contents:
        part = memoryview(content.encode("utf8", "surrogatepass") if isinstance(content, str) else content)
        total.update(part.nbytes.to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


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
        reason = " ".join(str(error).split()).rstrip(".")
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
def whole_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it is moved into place when the block ends without an error.

    An interruption leaves the earlier file or the new one, never half of one. The content reaches the disk before the
    move, and an error takes the unfinished file away; that of a killed process is taken away an hour later.

    Raises:
        OSError: if the file cannot be written; see :func:`write_errors`.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.partial")
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        with suppress(OSError):  # of another user, or just taken away
            if time.time() - left.stat().st_mtime > _ABANDONED:
                left.unlink()
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
    # The umask can only be read by setting it. For that moment, other threads make private files: the safe side. Not
    # once at import, as a program that sets another one later would have its files opened to others here.
    mask = os.umask(0o077)
    os.umask(mask)
    for file in (path,) if path.is_file() else _files(path):
        file.chmod(0o666 & ~mask)


def sync_files(folder: Path) -> None:
    """Wait until all files of a folder have reached the disk."""
    for file in _files(folder):
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())


def _files(folder: Path) -> Iterator[Path]:
    """Return the files in a folder and below it, without links: what they lead to may be of others."""
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def check_writable(name: str, path: Path) -> None:
    """Check that a file or folder can be made beside ``path``, before the work that it is for.

    Args:
        name: what the message calls it.
        path: it may be missing, and so may the folders around it.

    Raises:
        ValueError: if the folder may not be written to, or its disk is read-only.
    """
    folder = next(place for place in path.absolute().parents if place.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{name} must be in a folder that may be written to, got {str(path)!r}: choose another.")


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
            (work / MARK).touch()
            if _is_interrupted(new, replaced):
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
                if not _is_interrupted(new, replaced):  # else it could not be put back: the next call does it
                    _remove_own(new, replaced)
                    if left := sorted(_names(work) - {MARK}):
                        logger.warning("%s stays, with what no run wrote: %s.", work, ", ".join(left))
                    else:
                        (work / MARK).unlink()
                        work.rmdir()


def check_output(output: str | PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the absolute path of a folder that :func:`replace_folder` may replace now. Nothing is changed.

    Args:
        output: a new or empty folder, or with ``overwrite`` one that an earlier call wrote.
        overwrite: whether what an earlier call wrote may be replaced.

    Raises:
        ValueError: if ``output`` is a file or below one, a mount point, the working directory or above it, or holds
            anything that may not be replaced; if something that no run wrote is in the way beside it; or if its path is
            no text in UTF-8 or nothing may be written there.
    """
    check_bool("overwrite", overwrite)
    path = Path(output).resolve()
    try:
        str(path).encode()
    except UnicodeEncodeError:  # safetensors could not write there, after all the work
        raise ValueError(
            f"output must be a folder whose path is valid text in UTF-8, got {str(path)!a}: choose another."
        ) from None
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
    check_writable("output", path)
    work, new, replaced = _work_folders(path)
    mark = work / MARK
    if not (mark.is_file() and mark.stat().st_size == 0) and _names(work):
        raise ValueError(
            f"output must have no folder of others beside it named {work.name!r}, got {str(work)!r}: move it, or "
            "choose another output."
        )
    interrupted = _is_interrupted(new, replaced)
    if interrupted and path.exists():
        raise ValueError(
            f"output must be free for its earlier result, which an interrupted run moved to {str(replaced)!r}, got "
            f"{str(output)!r}, which exists: move one of them, or choose another output."
        )
    if not interrupted and (others := _names(replaced) - _own(replaced)):
        raise ValueError(
            f"output must have no files of others in what is left of its earlier result, got {min(others)!r} in "
            f"{str(replaced)!r}: move it, or choose another output."
        )
    _refuse_loss(replaced if interrupted else path, overwrite)
    return path


def list_files(folder: Path) -> None:
    """Write the names of all files and empty folders of a folder into it: they then count as written by a run."""
    with whole_file(folder / FILES) as partial:
        partial.write_text(json.dumps(sorted(_names(folder) - {FILES, partial.name}), indent=1), encoding="utf8")


def why_unreadable(file: Path) -> str | None:
    """Return why a file of weights, of torch or of JSON is not as it was written; None if nothing shows that.

    An archive of torch has check sums, a file of safetensors its length; nothing in the file is run.
    """
    start = b"?"
    try:
        with file.open("rb") as opened:
            start = opened.read(2)
        if file.suffix in (".pt", ".pth", ".bin") and start != b"\x80\x02":  # how torch before 1.6 began, without sums
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()
            return None if damaged is None else f"{damaged} in it has another check sum"
        if file.suffix == ".safetensors":
            with safe_open(file, framework="numpy"):
                pass
        if file.suffix == ".json":
            json.loads(file.read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError, SafetensorError, zipfile.BadZipFile, zlib.error) as error:
        return " ".join(str(error).split()).removesuffix(".") if start else "it is empty"
    return None


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


def _is_interrupted(new: Path, replaced: Path) -> bool:
    """Return whether a run ended between the last two renames: the earlier folder is to be put back."""
    return new.exists() and replaced.exists()


def _swap(new: Path, output: Path, replaced: Path, overwrite: bool) -> None:
    """Rename ``output`` to ``replaced`` and ``new`` to ``output``; if that fails, ``output`` is as it was."""
    try:
        if output.exists():
            os.rename(output, replaced)
            _refuse_loss(replaced, overwrite, output)  # what came meanwhile
        os.rename(new, output)
    except BaseException:
        if _is_interrupted(new, replaced):
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


def _own(folder: Path) -> set[str]:
    """Return the names that are listed in a folder, and those of the folders around them."""
    listed = map(PurePosixPath, listed_files(folder))
    return {path.as_posix() for name in listed for path in (name, *name.parents)}


def _refuse_loss(folder: Path, overwrite: bool, output: Path | None = None) -> None:
    """Raise a ValueError if something would be lost with a folder; ``output``: where it will be back for the reader."""
    if lost := _names(folder) - (_own(folder) if overwrite else set()):
        kind = "hold only what an earlier run wrote" if overwrite else "be a new or empty folder"
        remedy = "move that away, or choose another folder"
        if not overwrite and lost <= _own(folder):
            remedy = "choose another, or set overwrite=True (--overwrite)"
        raise ValueError(f"output must {kind}, got {str(output or folder)!r} with {min(lost)!r}: {remedy}.")


def _remove_own(new: Path, replaced: Path) -> None:
    """Remove the new folder, and of the earlier result what is listed there, the list last: a kill may come.

    What somebody puts there meanwhile stays, as it would not if the folder were removed as a whole.
    """
    shutil.rmtree(new, ignore_errors=True)
    own = _own(replaced)
    for path in sorted(replaced.rglob("*"), reverse=True):  # the content of a folder before the folder
        if path.relative_to(replaced).as_posix() not in own - {FILES}:
            continue
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()
    if FILES in own:
        (replaced / FILES).unlink()
    if replaced.is_dir() and not any(replaced.iterdir()):
        replaced.rmdir()


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
