"""The folder that a job saves its model to, and the one beside it in which the job works until the model is complete.

A job works in ``NAME.unfinished`` and ends by renaming the complete model to ``NAME``: a failure or a kill at any
moment leaves an earlier result as it was, or, between the two renames, in ``NAME.unfinished``; the next run then
completes the second one. Only what a run can show to be its own is removed: an earlier result of which
``st_extras_files.json`` lists every path and digest, and what runs write to a ``NAME.unfinished`` that holds
``st_extras_run.json``. Other files in it stay, and a warning names them.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from sentence_transformers import SentenceTransformer

from st_extras.checks import check_bool
from st_extras.encoders.embedding_store import EmbeddingStore
from st_extras.files import (
    file_digest,
    follow_umask,
    one_writer,
    read_checked_json,
    sync_files,
    write_checked_json,
    write_errors,
)
from st_extras.training.checkpoints import remove_checkpoints
from st_extras.training.processes import launched_rank

logger = logging.getLogger(__name__)
FILES = "st_extras_files.json"
"""In a saved model's folder: each of its paths with a digest, so that a run sees that it replaces nothing else."""
RUN = "st_extras_run.json"
"""In ``NAME.unfinished``: shows that a run made it, and that what has a run's names in it goes when the run ends."""
_FILES, _RUN = "st-extras list of files", "st-extras run"


class OutputFolder:
    """Where a job saves its model, and where it works until then.

        folder = OutputFolder(output, job="adapt", overwrite=True)  # raises before anything is computed
        with folder.unfinished():
            folder.save(model)  # and more files into folder.model, if there are any

    Of several processes, only the first reads or writes: it may begin to write before another one looks, and if it
    raises, the launcher ends them all.

    Args:
        output: the folder that the model will be saved to: a new or empty one.
        job: name of the function that saves there; it resumes only its own runs.
        resume: continue the interrupted run in ``NAME.unfinished``.
        overwrite: replace an earlier result in ``output``; without ``resume``, also discard an interrupted run.

    Attributes:
        output: the folder, links resolved.
        work: ``NAME.unfinished`` beside it.
        model: the folder in ``work`` that will become ``output``.
        checkpoints: the folder in ``work`` of a training's checkpoints.
        encoded: the folder in ``work`` of stored embeddings.

    Raises:
        ValueError: if ``output`` is a file, below one, a mount point, the working directory or above it, or holds
            anything but an earlier result that may be replaced, if there is no interrupted run of this job to resume or
            one that is neither to be resumed nor to be removed, or if ``work`` is no run's.
    """

    def __init__(
        self, output: str | os.PathLike[str], *, job: str = "", resume: bool = False, overwrite: bool = False
    ) -> None:
        self.resume, self.overwrite = check_bool("resume", resume), check_bool("overwrite", overwrite)
        self.output = Path(output).resolve()
        if os.path.ismount(self.output):
            raise ValueError(
                f"output must be a folder that can be renamed, got the mount point {str(output)!r}: take one in it."
            )
        here = Path.cwd()
        if self.output in (here, *here.parents):
            raise ValueError(
                f"output must not be the working directory or a folder above it, got {str(output)!r}: give a folder in "
                "it, as programs that work there lose a folder that is replaced."
            )
        self.work = self.output.with_name(f"{self.output.name}.unfinished")
        self.model, self._replaced = self.work / "model", self.work / "replaced"
        self.checkpoints, self.encoded = self.work / "checkpoints", self.work / "encoded"
        self._run: dict[str, Any] = {"run": uuid4().hex, "job": job, "overwrite": self.overwrite}
        nearest = next(path for path in (self.output, *self.output.parents) if path.exists())
        if not nearest.is_dir():
            raise ValueError(f"output must be a folder, got {str(output)!r}: {str(nearest)!r} is a file.")
        if launched_rank() > 0:
            return
        self._check_work()
        self._check_replaceable()

    def _check_work(self) -> None:
        """Check that there is an interrupted run to resume, or none that is not to be discarded.

        Raises:
            ValueError: if it is otherwise.
        """
        interrupted = self._interrupted()
        if self.resume:
            if not interrupted:
                raise ValueError(f"resume needs an interrupted run in {str(self.work)!r}, got none: run it without.")
            if interrupted["job"] != self._run["job"]:
                raise ValueError(
                    f"resume needs an interrupted run of {self._run['job']}, got one of {interrupted['job']} in "
                    f"{str(self.work)!r}: resume that one, or choose another output."
                )
            self._run = interrupted | {"overwrite": self.overwrite or interrupted["overwrite"]}
        elif interrupted and not self.overwrite:
            halfway = self._replaced.exists() and not is_filled(self.output)  # between the two renames
            kept = ", which also holds the earlier result" if halfway else ""
            raise ValueError(
                f"output must have no interrupted run beside it, got {str(self.work)!r}{kept}: choose another folder, "
                "or set resume=True to continue it, or overwrite=True to discard it."
            )

    def _interrupted(self) -> dict[str, Any]:
        """Return what the run in ``work`` recorded; nothing if there is no such folder, or an empty one.

        Raises:
            ValueError: if it is no run's folder.
        """
        if not os.path.lexists(self.work):
            return {}
        plain = self.work.is_dir() and not self.work.is_symlink()
        recorded = read_checked_json(self.work / RUN, _RUN, "move the folder") if plain else {}
        unmarked = not plain or any(not path.match(f".{RUN}.*.partial") for path in self.work.iterdir())
        if not recorded and unmarked:
            raise ValueError(
                f"output must have a run's folder or none beside it, got {str(self.work)!r} without {RUN}: move it, or "
                "choose another output."
            )
        return recorded

    def _check_replaceable(self) -> None:
        """Check that nothing but an earlier result would be lost if the output was replaced now.

        Raises:
            ValueError: if something would be, which is named.
        """
        if not is_filled(self.output):
            return
        listed = read_checked_json(self.output / FILES, _FILES, "choose another folder")
        if not self._run["overwrite"] and listed.get("run") != self._run["run"]:  # killed right after it was put there
            raise ValueError(
                f"output must be a new or empty folder, got {str(self.output)!r} with "
                f"{min(path.name for path in self.output.iterdir())!r}: choose another folder, or set overwrite=True."
            )
        earlier, found = listed.get("files", {}), contents(self.output)
        added = paths(self.output).keys() - found.keys()  # while the others were read
        for name, content in (found | dict.fromkeys(added, "")).items():
            if content != earlier.get(name):
                reason = "was changed since a run wrote it" if name in earlier else "no run wrote"
                raise ValueError(
                    f"output must hold only what an earlier run saved there, got {str(self.output)!r} with {name!r}, "
                    f"which {reason}: move that away, or choose another folder."
                )

    @contextmanager
    def unfinished(self, resumable: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Make ``work`` for the block, or take it over to resume; then put what was saved in the place of ``output``.

        If the block fails, ``work`` is removed, unless it was taken over or is worth keeping.

        Args:
            resumable: whether ``work`` holds anything that a run with ``resume`` would use.

        Raises:
            ValueError: if another process works there, has ended the run to resume, or put something into ``output``;
                a model that was saved then stays in ``work``.
            OSError: if a folder cannot be renamed; likewise.
        """
        if launched_rank() > 0:  # the processes do not know each other yet
            yield
            return
        missing = [path for path in (self.work, *self.work.parents) if not path.exists()]
        if not self.resume:
            self.work.mkdir(parents=True, exist_ok=True)
        with one_writer(self.work):
            self._check_work()  # again: another process may have made it, or ended it, since
            empty = not missing and not any(self.work.iterdir())  # someone's: it is used, and left empty
            if self.resume and not os.path.lexists(self._replaced) and self._is_of_this_run(self.model):
                self._put_in_place()
            self._complete_swap()
            if self.resume:
                shutil.rmtree(self.model, ignore_errors=True)  # half-saved
            else:
                self._remove_own()
            write_checked_json(self.work / RUN, _RUN, self._run)
            try:
                yield
            except BaseException as error:
                if self.resume or resumable():
                    logger.warning(
                        "The run was interrupted (%s): resume=True (--resume) continues it.", type(error).__name__
                    )
                else:
                    self._remove_work(missing)
                raise
            if self.model.exists():
                self._put_in_place()
            self._remove_work([] if empty else [self.work])

    def _remove_work(self, folders: list[Path]) -> None:
        """Remove the run's files, and the ``folders``, each in the next, that are empty then; name what is left."""
        self._remove_own()
        (self.work / RUN).unlink(missing_ok=True)  # last, so that a kill leaves a folder that is a run's
        if left := sorted(path.relative_to(self.work).as_posix() for path in self.work.rglob("*")):
            logger.warning("%s stays, with what no run wrote: %s.", self.work, ", ".join(left))
        for folder in folders:
            if any(folder.iterdir()):
                break
            folder.rmdir()

    def _remove_own(self) -> None:
        """Remove what runs write to ``work``, but for RUN."""
        _remove_listed(self._replaced)
        if self.model.is_dir() and not self.model.is_symlink():
            shutil.rmtree(self.model)
        remove_checkpoints(self.checkpoints)
        EmbeddingStore(self.encoded).remove()
        for partial in self.work.glob(f".{RUN}.*.partial"):
            partial.unlink()

    def save(self, model: SentenceTransformer) -> None:
        """Save a model to ``self.model``.

        Raises:
            OSError: if the disk is full.
        """
        with write_errors(self.work):
            model.save(str(self.model))

    def _put_in_place(self) -> None:
        """Rename the model's folder to ``output``, in the place of an earlier result.

        Raises:
            ValueError: if something appeared in ``output`` meanwhile; the model then stays in ``work``.
            OSError: if a folder cannot be renamed; likewise.
        """
        follow_umask(self.model)
        sync_files(self.model)
        write_checked_json(self.model / FILES, _FILES, {"run": self._run["run"], "files": contents(self.model)})
        moved = False
        try:
            self._check_replaceable()
            if is_filled(self.output):
                os.rename(self.output, self._replaced)
                moved = True
            self._swap(self.model)
        except (ValueError, OSError) as error:
            if moved:
                self._swap(self._replaced)
            kept = f"the finished model is in {str(self.model)!r}"
            if isinstance(error, OSError):
                raise OSError(error.errno, f"{error.strerror or error}; {kept}", error.filename) from error
            raise ValueError(f"{str(error).rstrip('.')}; {kept}.") from None

    def _complete_swap(self) -> None:
        """Complete what a kill after the first or the second of the two renames left.

        Raises:
            ValueError: if ``output`` was since filled by something else, or no run wrote what is in the place of the
                earlier result.
        """
        if (self._replaced / FILES).is_file():
            if not is_filled(self.output):
                self._swap(self.model if self._is_of_this_run(self.model) else self._replaced)
            elif not self._is_of_this_run(self.output):
                raise ValueError(
                    f"output must be what the interrupted run saved, as {str(self._replaced)!r} holds the earlier "
                    f"result, got another {str(self.output)!r}: move one of them away."
                )
            _remove_listed(self._replaced)
        if os.path.lexists(self._replaced):
            raise ValueError(
                f"output must have only a run's files beside it, got {str(self._replaced)!r}, which no run wrote: "
                "move it, or choose another output."
            )

    def _is_of_this_run(self, folder: Path) -> bool:
        """Whether the run that ``work`` records saved a whole model in this folder."""
        recorded = read_checked_json(self.work / RUN, _RUN, "move the folder")
        saved = read_checked_json(folder / FILES, _FILES, "move the folder")
        return bool(saved) and saved["run"] == recorded["run"]

    def _swap(self, folder: Path) -> None:
        """Rename a folder to ``output``, which is missing or empty."""
        if os.name == "nt" and self.output.exists():  # elsewhere, a rename replaces an empty folder
            self.output.rmdir()
        os.rename(folder, self.output)


def check_output(
    output: str | os.PathLike[str], *, job: str = "", resume: bool = False, overwrite: bool = False
) -> None:
    """Check that a job may save its model to ``output``, before anything is computed. Nothing is changed.

    Args:
        output: a new or empty folder.
        job: name of the function that will save there; it resumes only its own runs.
        resume: whether an interrupted run is to be continued.
        overwrite: whether an earlier result may be replaced and, without ``resume``, an interrupted run discarded.

    Raises:
        ValueError: if it may not; see :class:`OutputFolder`.
    """
    OutputFolder(output, job=job, resume=resume, overwrite=overwrite)


def save_model(model: SentenceTransformer, output: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Save a model to a folder that is replaced as a whole, so that a full disk or a kill leaves the earlier one.

    Args:
        model: the model.
        output: a new or empty folder.
        overwrite: whether an earlier result in it, with no other file and none changed, may be replaced.

    Raises:
        ValueError: if ``output`` may not be used; see :class:`OutputFolder`.
        OSError: if the disk is full.
    """
    folder = OutputFolder(output, job="save_model", overwrite=overwrite)
    with folder.unfinished():
        folder.save(model)


def is_filled(folder: Path) -> bool:
    """Whether there is a folder that holds anything."""
    return folder.exists() and any(folder.iterdir())


def paths(folder: Path) -> dict[str, Path]:
    """Return all paths in a folder by their names within it, sorted; without FILES."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    found.pop(FILES, None)
    return found


def contents(folder: Path) -> dict[str, str]:
    """Return what each path in a folder is: "folder", a link and its target, or the digest of a file; without FILES."""
    found = {}
    for name, path in paths(folder).items():
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file():
            found[name] = file_digest(path)
        else:
            found[name] = "folder" if path.is_dir() else "neither file nor folder"
    return found


def _remove_listed(folder: Path) -> None:
    """Remove what FILES lists in a folder and is unchanged. FILES goes last: after a kill, the rest can be removed."""
    if (folder / FILES).is_file():
        listed = read_checked_json(folder / FILES, _FILES, "move the folder")["files"]
        for name, found in reversed(contents(folder).items()):  # files before their folders
            path = folder / name
            if found == listed.get(name) and found != "folder":
                path.unlink()
            elif found == listed.get(name) and not any(path.iterdir()):
                path.rmdir()
        (folder / FILES).unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
