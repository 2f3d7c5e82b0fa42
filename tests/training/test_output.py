"""The output folder: what may be replaced, the folder beside it, the swap, and what a kill leaves."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from st_extras.files import one_writer
from st_extras.training import output as output_module
from st_extras.training.output import FILES, RUN, OutputFolder, check_output, save_model
from tests.helpers import differing, snapshot, write


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def finished(output: Path, content: str = "model", **options: Any) -> Path:
    """Save a "model" of two files, as a job does."""
    folder = OutputFolder(output, **options)
    with folder.unfinished():
        write(folder.model / "1_Pooling" / "config.json", "{}")
        write(folder.model / "model.safetensors", content)
    return output


def killed(output: Path, **options: Any) -> Path:
    """Leave what a run leaves that is killed while it works."""
    folder = OutputFolder(output, **options)

    def job() -> None:
        with folder.unfinished(lambda: True):
            write(folder.work / "checkpoints" / "checkpoint-2" / "model.bin", "half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job()
    return folder.work


def test_a_new_or_empty_folder_is_used_and_nothing_is_left_beside_it(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("a/b/new", "empty"):
        out = finished(tmp_path / name)
        assert {path.name for path in out.iterdir()} == {"1_Pooling", "model.safetensors", FILES}
        assert [path.name for path in out.parent.glob("*.unfinished")] == []


@pytest.mark.parametrize("name", ["notes.txt", "1_Pooling/notes.txt", ".DS_Store", "empty/", "link", RUN])
def test_a_foreign_path_is_named_and_nothing_is_replaced(tmp_path, name):
    out = finished(tmp_path / "out")
    if name == "link":
        (out / name).symlink_to(tmp_path)
    elif name.endswith("/"):
        (out / name).mkdir()
    else:
        write(out / name, "mine")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"^output must hold only .* with '{name.rstrip('/')}', which no run wrote: "):
        check_output(out, overwrite=True)
    assert contents(tmp_path) == before


def test_a_changed_file_is_named_and_a_deleted_one_is_no_obstacle(tmp_path):
    out = finished(tmp_path / "out")
    (out / "1_Pooling" / "config.json").unlink()
    check_output(out, overwrite=True)
    write(out / "model.safetensors", "other")
    with pytest.raises(ValueError, match=r"with 'model\.safetensors', which was changed since a run wrote it: "):
        check_output(out, overwrite=True)


def test_an_earlier_result_needs_overwrite_and_is_replaced_as_a_whole(tmp_path):
    out = finished(tmp_path / "out", "first")
    with pytest.raises(ValueError, match=r"^output must be a new or empty folder, got .* set overwrite=True\.$"):
        check_output(out)
    finished(out, "second", overwrite=True)
    assert (out / "model.safetensors").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_cannot_be_a_folder_to_rename(tmp_path, monkeypatch):
    write(tmp_path / "mine", "mine")
    for below in ("mine", "mine/a/b"):
        with pytest.raises(ValueError, match=r"^output must be a folder, got .*/mine' is a file"):
            check_output(tmp_path / below, overwrite=True)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path)
    with pytest.raises(ValueError, match="the mount point"):
        check_output(tmp_path, overwrite=True)


def test_the_first_of_several_processes_alone_looks_and_writes(tmp_path, monkeypatch):
    write(tmp_path / "out" / "mine", "mine")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    folder = OutputFolder(tmp_path / "out")
    with folder.unfinished():
        assert not folder.work.exists()


# --- the folder beside it ---


@pytest.mark.parametrize(
    "name", ["checkpoints/checkpoint-500/model.bin", "model/config.json", "replaced/a", "encoded/a"]
)
def test_a_folder_beside_it_that_no_run_made_is_refused(tmp_path, name):
    write(tmp_path / "out.unfinished" / name, "mine")
    before = contents(tmp_path)
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(ValueError, match=rf"got '.*out\.unfinished' without {RUN}: move it"):
            check_output(tmp_path / "out", **options)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_or_link_of_its_name_is_refused(tmp_path, kind):
    other = killed(tmp_path / "other")
    if kind == "file":
        write(tmp_path / "out.unfinished", "mine")
    else:
        (tmp_path / "out.unfinished").symlink_to(other)
    with pytest.raises(ValueError, match=r"out\.unfinished' without"):
        check_output(tmp_path / "out", overwrite=True)


def test_someones_empty_folder_beside_it_stays(tmp_path):
    (tmp_path / "out.unfinished").mkdir()
    finished(tmp_path / "out")
    assert list((tmp_path / "out.unfinished").iterdir()) == []


def test_an_interrupted_run_is_resumed_or_removed_as_asked(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"^resume needs an interrupted run in '.*out\.unfinished', got none"):
        check_output(out, resume=True)
    work = killed(out)
    with pytest.raises(ValueError, match=r"^output must have no interrupted run .* overwrite=True to discard it\.$"):
        check_output(out)
    folder = OutputFolder(out, resume=True)
    with pytest.raises(KeyError), folder.unfinished():
        raise KeyError
    assert (work / "checkpoints" / "checkpoint-2" / "model.bin").exists(), "a resumed run leaves what it found"
    folder = OutputFolder(out, overwrite=True)
    with folder.unfinished():
        assert [path.name for path in work.iterdir()] == [RUN]
    assert not work.exists()


def test_a_run_is_resumed_by_its_own_job(tmp_path):
    killed(tmp_path / "out", job="adapt_search")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"^resume needs an interrupted run of adapt, got one of adapt_search in "):
        check_output(tmp_path / "out", resume=True, job="adapt")
    assert contents(tmp_path) == before
    check_output(tmp_path / "out", resume=True, job="adapt_search")


FOREIGN = [
    *("notes.txt", "checkpoints/notes.txt", "checkpoints/eval/notes.txt", "checkpoints/checkpoint-new/model.bin"),
    *("checkpoints/checkpoint-7", "checkpoints/runs/notes.txt", "encoded/notes.txt", "encoded/a.safetensors"),
    *("mine/model.safetensors", "theirs/1_Pooling/notes.txt"),
]


@pytest.mark.parametrize("moment", ["before it is overwritten", "while a run works", "before a run fails"])
def test_what_someone_put_into_a_runs_folder_stays_and_is_named(tmp_path, caplog, moment):
    out = finished(tmp_path / "out")
    work = killed(out, overwrite=True)
    write(work / "checkpoints" / "eval" / "scores.csv", "a run's")
    write(work / "checkpoints" / "runs" / "now" / "events.out.tfevents.1", "a run's")

    def plant() -> None:
        for name in FOREIGN:
            write(work / name, "mine")

    def job() -> None:
        folder = OutputFolder(out, overwrite=True)
        with folder.unfinished():
            if moment != "before it is overwritten":
                plant()
            write(folder.model / "config.json", "{}")
            if moment == "before a run fails":
                raise KeyError

    if moment == "before it is overwritten":
        plant()
    with pytest.raises(KeyError) if moment == "before a run fails" else nullcontext():
        job()
    left = {path.relative_to(work).as_posix(): path.read_text() for path in work.rglob("*") if path.is_file()}
    assert left == dict.fromkeys(FOREIGN, "mine")
    assert all(name in caplog.messages[-1] for name in (str(work), *FOREIGN))
    with pytest.raises(ValueError, match=rf"without {RUN}: move it"):
        check_output(out, overwrite=True)


def test_what_someone_put_into_an_earlier_result_that_is_being_replaced_stays(tmp_path, monkeypatch):
    out = finished(tmp_path / "out", "first")
    work = out.with_name("out.unfinished")
    swap = OutputFolder._swap
    planted = {"notes.txt": "mine", "model.safetensors": "changed", "1_Pooling/notes.txt": "mine"}

    def planting(folder: OutputFolder, source: Path) -> None:
        for name, content in planted.items():
            write(work / "replaced" / name, content)
        swap(folder, source)

    monkeypatch.setattr(OutputFolder, "_swap", planting)
    finished(out, "second", overwrite=True)
    assert (out / "model.safetensors").read_text() == "second"
    left = {path.relative_to(work / "replaced").as_posix(): path for path in work.rglob("*") if path.is_file()}
    assert {name: path.read_text() for name, path in left.items()} == planted


def test_a_folder_of_others_in_the_place_of_an_earlier_result_is_refused(tmp_path):
    out = finished(tmp_path / "out", "first")
    work = killed(out, overwrite=True)
    write(work / "replaced" / "notes.txt", "mine")
    before = contents(tmp_path)
    for options in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(ValueError, match=r"^output must have only a run's files beside it, got '.*replaced'"):
            finished(out, "second", **options)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("left", ["nothing", "a half-written marker"])
def test_a_kill_while_the_folder_is_made_is_no_obstacle(tmp_path, left):
    (tmp_path / "out.unfinished").mkdir()
    if left != "nothing":
        write(tmp_path / "out.unfinished" / f".{RUN}.123.partial", "{")
    finished(tmp_path / "out")


def test_a_failed_run_leaves_no_folder_that_it_made(tmp_path):
    out = tmp_path / "a" / "out"
    with pytest.raises(KeyError):
        finished_badly(out)
    assert list(tmp_path.iterdir()) == []
    out.mkdir(parents=True)
    with pytest.raises(KeyError):
        finished_badly(out)
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "out"]


def finished_badly(output: Path) -> None:
    folder = OutputFolder(output)
    with folder.unfinished():
        write(folder.model / "config.json", "{}")
        raise KeyError


def test_two_processes_do_not_share_it(tmp_path):
    work = killed(tmp_path / "out")
    with (
        one_writer(work),
        pytest.raises(ValueError, match="another process writes"),
        OutputFolder(tmp_path / "out", resume=True).unfinished(),
    ):
        pass


# --- the swap ---


def test_what_appears_in_the_output_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "out"
    folder = OutputFolder(out, overwrite=True)

    def job() -> None:
        with folder.unfinished():
            write(folder.model / "config.json", "{}")
            write(out / "mine", "mine")

    with pytest.raises(ValueError, match=r"'mine', which no run wrote: .*; the finished model is in '.*/model'\.$"):
        job()
    assert (out / "mine").read_text() == "mine"
    assert (folder.model / "config.json").exists()


@pytest.mark.parametrize("renames", [0, 1, 2])
@pytest.mark.parametrize("options", [{"resume": True}, {"overwrite": True}])
def test_a_kill_at_each_moment_of_the_swap_loses_nothing(tmp_path, renames, options):
    out = tmp_path / "out"
    killed_in_the_swap(out, renames)
    found = {path.read_text() for path in tmp_path.rglob("model.safetensors")}
    assert found == {"first", "second"}
    folder = OutputFolder(out, **options)
    with folder.unfinished():
        completed = renames or "resume" in options  # a finished model is discarded only if asked, and kept nowhere else
        assert (out / "model.safetensors").read_text() == ("second" if completed else "first")
        write(folder.model / "model.safetensors", "third")
    assert (out / "model.safetensors").read_text() == "third"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def finished_second(output: Path) -> None:
    folder = OutputFolder(output, overwrite=True)
    with folder.unfinished():
        write(folder.model / "model.safetensors", "second")


def killed_in_the_swap(output: Path, renames: int) -> Path:
    """Replace "first" by "second", killed after so many renames."""
    finished(output, "first")
    rename, done = os.rename, []

    def killing(source: Any, target: Any) -> None:
        if len(done) == renames:
            raise KeyboardInterrupt
        rename(source, target)
        done.append(target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", killing)
        patch.setattr(OutputFolder, "_remove_work", killing)
        with pytest.raises(KeyboardInterrupt):
            finished_second(output)
    return output.with_name(f"{output.name}.unfinished")


def test_the_only_copy_of_an_earlier_result_stays(tmp_path):
    work = killed_in_the_swap(tmp_path / "out", renames=1)
    with pytest.raises(ValueError, match=r"out\.unfinished', which also holds the earlier result: choose"):
        check_output(tmp_path / "out")
    finished(tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / "out")
    with (
        pytest.raises(ValueError, match=r"^output must be what .*/replaced' holds .*/out': move one of them away\.$"),
        OutputFolder(tmp_path / "out", overwrite=True).unfinished(),
    ):
        pass
    assert (work / "replaced" / "model.safetensors").read_text() == "first"


def test_a_rename_that_fails_puts_the_earlier_result_back(tmp_path, monkeypatch):
    out, rename = finished(tmp_path / "out", "first"), os.rename

    def failing(source: Any, target: Any) -> None:
        if Path(source).name == "model":
            raise OSError(errno.EACCES, "Permission denied")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing)
        with pytest.raises(OSError, match=r"Permission denied; the finished model is in '.*/model'$"):
            finished_second(out)
    assert (out / "model.safetensors").read_text() == "first"
    with pytest.raises(KeyError), OutputFolder(out, resume=True).unfinished():
        raise KeyError
    assert (out / "model.safetensors").read_text() == "second", "a run that is resumed completes it at once"


def test_a_run_that_another_process_has_ended_is_not_resumed(tmp_path):
    work = killed(tmp_path / "out")
    folder = OutputFolder(tmp_path / "out", resume=True)
    finished(tmp_path / "out", resume=True)
    with pytest.raises(ValueError, match=r"^resume needs an interrupted run in"), folder.unfinished():
        pass
    assert not work.exists()


def test_a_resumed_run_may_overwrite(tmp_path):
    out = tmp_path / "out"
    killed(out)
    finished(tmp_path / "other", "other").rename(out)
    with pytest.raises(ValueError, match=r"^output must be a new or empty folder"):
        check_output(out, resume=True)
    folder = OutputFolder(out, resume=True, overwrite=True)
    with folder.unfinished():
        assert (folder.work / "checkpoints").exists()
        write(folder.model / "model.safetensors", "second")
    assert (out / "model.safetensors").read_text() == "second"


def test_a_file_that_is_added_while_the_others_are_read_is_not_replaced(tmp_path, monkeypatch):
    out, read = finished(tmp_path / "out", "first"), output_module.file_digest

    def adding(path: Path) -> str:
        if path.is_relative_to(out):
            write(out / "a note", "mine")
        return read(path)

    with monkeypatch.context() as patch:
        folder = OutputFolder(out, overwrite=True)
        patch.setattr(output_module, "file_digest", adding)
        with pytest.raises(ValueError, match="'a note', which no run wrote"), folder.unfinished():
            write(folder.model / "model.safetensors", "second")
    assert (out / "a note").read_text() == "mine"


def test_files_reach_the_disk_before_the_earlier_result_goes(tmp_path, monkeypatch):
    out = finished(tmp_path / "out", "first")
    synced, fsync, rename = set(), os.fsync, os.rename

    def noting(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def checking(source: Path, target: Path) -> None:
        model = out.with_name("out.unfinished") / "model"
        assert {path.stat().st_ino for path in model.rglob("*") if path.is_file()} <= synced
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "rename", checking)
    finished_second(out)


# --- models ---


def test_a_model_replaces_an_earlier_one(make_encoder, tmp_path):
    out, earlier = tmp_path / "out", make_encoder()
    earlier.append(Normalize())
    save_model(earlier, out)
    assert (out / "2_Normalize").exists()
    model = make_encoder(hidden_size=8)
    save_model(model, out, overwrite=True)
    assert differing(snapshot(model), snapshot(SentenceTransformer(str(out), device="cpu"))) == set()
    assert not (out / "2_Normalize").exists()


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space"), SafetensorError("I/O error"), RuntimeError("PytorchStreamWriter failed")],
)
def test_a_full_disk_is_one_sentence(encoder, tmp_path, monkeypatch, error):
    def fail(path: str) -> None:
        (Path(path) / "1_Pooling").mkdir(parents=True)
        raise error

    save_model(encoder, tmp_path / "out")
    before = contents(tmp_path)
    monkeypatch.setattr(encoder, "save", fail)
    with pytest.raises(OSError, match=r"(free space there|look after that disk) and do the same again: '.*out.*'$"):
        save_model(encoder, tmp_path / "out", overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", [".", "..", "../../out", "link"])
def test_the_folder_that_one_works_in_is_not_renamed(tmp_path, monkeypatch, name):
    (tmp_path / "out/below").mkdir(parents=True)
    (tmp_path / "out/below/link").symlink_to(tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out/below")
    with pytest.raises(ValueError, match=r"^output must not be the working directory or a folder above it, got"):
        OutputFolder(name, overwrite=True)
    OutputFolder("new")
