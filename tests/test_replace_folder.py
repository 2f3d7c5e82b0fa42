"""``replace_folder``: what others wrote stays byte for byte, and a kill leaves the earlier folder or the new one."""

import errno
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from st_extras import files
from st_extras.files import FILES, MARK, check_output, replace_folder
from tests.helpers import some_fast

NAMES = [FILES, MARK, "new/a", "replaced/a", "model.safetensors", "sub/config.txt", ".DS_Store", "notes/thesis.txt"]


def content(folder: Path) -> dict[str, str | None]:
    """The text of each file by its name, None for a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else None for path in folder.rglob("*")
    }


def fill(folder: Path, text: str) -> None:
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "model.safetensors").write_text(text)
    (folder / "sub" / "config.txt").write_text(text)


def replace(target: Path, text: str, **options: Any) -> None:
    with replace_folder(target, **options) as folder:
        fill(folder, text)


@pytest.fixture
def out(tmp_path):
    """A folder that an earlier call wrote."""
    replace(tmp_path / "out", "one")
    return tmp_path / "out"


@pytest.fixture
def hidden(tmp_path):
    return tmp_path / ".out.unfinished"


def test_a_result_is_replaced_as_a_whole_and_only_with_overwrite(out, tmp_path):
    assert content(out).keys() == {"model.safetensors", "sub", "sub/config.txt", "sub/empty", FILES}
    before = content(tmp_path)
    with pytest.raises(ValueError, match=r"^output must be a new or empty folder, got '.*out' with .* overwrite=True"):
        replace(out, "two")
    assert content(tmp_path) == before
    with replace_folder(out, overwrite=True) as folder:
        assert list(folder.iterdir()) == []
        assert {name: text for name, text in content(tmp_path).items() if name.startswith("out")} == before
        (folder / "model.safetensors").write_text("two")
    assert content(out).keys() == {"model.safetensors", FILES}
    assert list(tmp_path.iterdir()) == [out]


def test_a_missing_and_an_empty_folder_are_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    for target in (tmp_path / "empty", tmp_path / "a" / "new"):
        replace(target, "one")
        assert (target / "model.safetensors").read_text() == "one"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("result", [True, False])
def test_what_others_wrote_is_refused_before_the_block(tmp_path, name, result):
    out = tmp_path / "out"
    if result and name in ("new/a", "replaced/a", ".DS_Store", "notes/thesis.txt"):
        replace(out, "one")
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("mine")
    before = content(tmp_path)
    for options in ({}, {"overwrite": True}):
        for call in (check_output, lambda *a, **b: replace_folder(*a, **b).__enter__()):
            with pytest.raises(ValueError, match=r"^output must .*out'") as caught:
                call(out, **options)
            assert "overwrite" not in str(caught.value)
    assert content(tmp_path) == before


def test_an_edited_file_of_an_earlier_call_is_replaced(out):
    (out / "sub" / "config.txt").write_text("edited")
    replace(out, "two", overwrite=True)
    assert (out / "sub" / "config.txt").read_text() == "two"


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_comes_into_the_folder_meanwhile_stays(tmp_path, overwrite):
    out = tmp_path / "out"
    if overwrite:
        replace(out, "one")
    before = content(tmp_path)
    with pytest.raises(ValueError, match=r"out' with 'notes.txt'"), replace_folder(out, overwrite=overwrite) as folder:  # noqa: PT012
        fill(folder, "two")
        out.mkdir(exist_ok=True)
        (out / "notes.txt").write_text("mine")
    assert content(tmp_path) == before | {"out": None, "out/notes.txt": "mine"}


def test_what_comes_beside_the_folder_meanwhile_stays(out, hidden, caplog):
    with replace_folder(out, overwrite=True) as folder:
        fill(folder, "two")
        (hidden / "notes.txt").write_text("mine")
    assert (out / "model.safetensors").read_text() == "two"
    assert content(hidden) == {MARK: "", "notes.txt": "mine"}
    assert "notes.txt" in caplog.text
    replace(out, "three", overwrite=True)
    assert content(hidden) == {MARK: "", "notes.txt": "mine"}


@pytest.mark.parametrize("name", NAMES)
def test_a_hidden_folder_of_others_is_refused(out, hidden, tmp_path, name):
    (hidden / name).parent.mkdir(parents=True)
    (hidden / name).write_text("mine")
    before = content(tmp_path)
    with pytest.raises(ValueError, match=r"^output must have no folder of others beside it named '\.out\.unfinished'"):
        replace(out, "two", overwrite=True)
    assert content(tmp_path) == before


def test_a_list_that_names_files_of_others_removes_nothing_there(out, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    names = json.loads((out / FILES).read_text())
    (out / FILES).write_text(json.dumps(["../thesis.txt", str(tmp_path / "thesis.txt"), *names]))
    replace(out, "two", overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "thesis.txt"}


@pytest.mark.parametrize("listed", ['{"model.safetensors": 1}', '["model.safetensors", 1]', "[", "3", ""])
def test_a_list_that_no_run_wrote_names_nothing(out, tmp_path, listed):
    (out / FILES).write_text(listed)
    before = content(tmp_path)
    with pytest.raises(ValueError, match=r"^output must hold only what an earlier run wrote, got '.*out' with "):
        replace(out, "two", overwrite=True)
    assert content(tmp_path) == before


def test_what_comes_into_the_earlier_folder_while_it_is_removed_stays(out, hidden, monkeypatch):
    def removed(new: Path, replaced: Path) -> None:
        if replaced.exists():
            (replaced / "sub" / "notes.txt").write_text("mine")
        return remove(new, replaced)

    remove = files._remove_own
    monkeypatch.setattr(files, "_remove_own", removed)
    replace(out, "two", overwrite=True)
    assert (out / "model.safetensors").read_text() == "two"
    assert {name: text for name, text in content(hidden).items() if text} == {"replaced/sub/notes.txt": "mine"}
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"^output must have no files of others in .*, got 'sub/notes.txt' in "):
        replace(out, "three", overwrite=True)


# --- failures ---


def fail_in_the_block(target: Path, error: BaseException) -> None:
    with replace_folder(target, overwrite=True) as folder:
        fill(folder, "half")
        raise error


@pytest.mark.parametrize("error", [KeyError(), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_all_as_it_was(out, tmp_path, error):
    before = content(tmp_path)
    with pytest.raises(type(error)):
        fail_in_the_block(out, error)
    assert content(tmp_path) == before


def fail_at(number: int, call: Callable[..., Any], fault: Callable[[], Any]) -> Callable[..., Any]:
    """The call, but for its ``number``-th time, when ``fault`` is called in its place."""
    calls: list[Any] = []

    def failing(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return fault() if len(calls) == number else call(*arguments, **options)

    return failing


def no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("number", [1, 2])
def test_a_rename_that_fails_leaves_all_as_it_was(out, tmp_path, monkeypatch, number):
    before = content(tmp_path)
    monkeypatch.setattr(os, "rename", fail_at(number, os.rename, no_space))
    with pytest.raises(OSError, match=r"No space left on device: free space there.*out'"):
        replace(out, "two", overwrite=True)
    assert content(tmp_path) == before


def test_a_folder_that_cannot_be_put_back_is_put_back_by_the_next_call(out, hidden, monkeypatch):
    before = content(out)
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda a, b: rename(a, b) if Path(b) != out else no_space())
    with pytest.raises(OSError, match="No space"):
        replace(out, "two", overwrite=True)
    assert content(hidden / "replaced") == before
    monkeypatch.undo()
    with pytest.raises(ValueError, match="must be a new or empty folder"):
        replace(out, "two")
    replace(out, "three", overwrite=True)
    assert (out / "model.safetensors").read_text() == "three"
    assert not hidden.exists()


def test_a_full_disk_is_one_error_that_names_the_folder(out, hidden, tmp_path):
    before = content(tmp_path)
    with pytest.raises(OSError, match=r"^\[Errno 28\] .*do the same again: '.*out'$"):
        fail_in_the_block(
            out, OSError(errno.ENOSPC, "No space left on device", str(hidden / "new" / "model.safetensors"))
        )
    assert content(tmp_path) == before


# --- kills ---

CHILD = """
import os, sys
from st_extras import files

point, target = sys.argv[1], Path(sys.argv[2])
def kill_after(owner, name, number):
    call, calls = getattr(owner, name), []
    def killing(*arguments, **options):
        result = call(*arguments, **options)
        calls.append(1)
        if len(calls) == number:
            os._exit(9)
        return result
    setattr(owner, name, killing)
if point != "block":
    owner, name, number = point.split()
    kill_after({"os": os, "files": files, "Path": Path}[owner], name, int(number))
with files.replace_folder(target, overwrite=True) as folder:
    fill(folder, "two")
    if point == "block":
        os._exit(9)
"""
POINTS = [
    *("Path mkdir 1", "Path touch 1", "Path mkdir 2", "block", "files follow_umask 1", "files list_files 1"),
    *("files sync_files 1", "os rename 1", "os rename 2", "files _swap 1"),
    *(f"Path unlink {number}" for number in (2, 3, 4)),  # two files of the earlier folder, and their list
    *(f"Path rmdir {number}" for number in (1, 2, 3)),  # two folders in it, and itself
]


@pytest.mark.parametrize("point", some_fast(POINTS, ["block", "os rename 1", "Path rmdir 1"]))
def test_a_kill_leaves_the_earlier_folder_or_the_new_one(out, hidden, tmp_path, point):
    (tmp_path / "thesis.txt").write_text("mine")
    before = content(out)
    script = f"from pathlib import Path\n{inspect.getsource(fill)}\n{CHILD}"  # without the seconds of imports here
    code = subprocess.run([sys.executable, "-c", script, point, str(out)], check=False).returncode
    assert code == 9
    left = content(out if out.exists() else hidden / "replaced")
    assert left == before or left["model.safetensors"] == left["sub/config.txt"] == "two"
    assert out.exists() == (point != "os rename 1")
    with pytest.raises(KeyError):
        fail_in_the_block(out, KeyError())
    assert content(tmp_path) == {"thesis.txt": "mine", "out": None} | {
        f"out/{name}": text for name, text in left.items()
    }
    replace(out, "three", overwrite=True)
    assert (out / "model.safetensors").read_text() == "three"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "thesis.txt"}
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def between_renames(out: Path, hidden: Path) -> None:
    (hidden / "new").mkdir(parents=True)
    (hidden / MARK).touch()
    out.rename(hidden / "replaced")


def test_an_earlier_folder_in_whose_place_something_came_is_named(out, hidden, tmp_path):
    between_renames(out, hidden)
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(ValueError, match=r"^output must be free for .*replaced', got '.*out', which exists: "):
        replace(out, "two", overwrite=True)
    assert content(tmp_path) == before


def test_what_came_into_an_earlier_folder_after_a_kill_stays(out, hidden, tmp_path):
    between_renames(out, hidden)
    (hidden / "replaced" / "notes.txt").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(ValueError, match=r"with 'notes.txt'"):
        replace(out, "two", overwrite=True)
    (hidden / "new").rmdir()  # as after the second rename
    del before[".out.unfinished/new"]
    with pytest.raises(ValueError, match=r"^output must have no files of others in .*, got 'notes.txt' in "):
        replace(out, "two", overwrite=True)
    assert content(tmp_path) == before


# --- places, processes, permissions ---


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_permissions_follow_the_umask(tmp_path):
    with replace_folder(tmp_path / "out") as folder:
        (folder / "sub").mkdir()
        for name in ("private", "sub/private"):
            (folder / name).touch(0o600)
    mask = os.umask(0o077)
    os.umask(mask)
    for name in ("private", "sub/private", FILES):
        assert (tmp_path / "out" / name).stat().st_mode & 0o777 == 0o666 & ~mask


def test_files_reach_the_disk_before_the_rename(tmp_path, monkeypatch):
    order: list[str] = []
    sync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda file: order.append("sync") or sync(file))
    monkeypatch.setattr(os, "rename", lambda *places: order.append("rename") or rename(*places))
    replace(tmp_path / "out", "one")
    assert order == ["sync"] * 4 + ["rename"]  # the list, which is synced as any whole file is; then all three


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_another_process_that_writes_there_is_refused(out, hidden):
    with replace_folder(out, overwrite=True) as folder:
        fill(folder, "two")
        with pytest.raises(ValueError, match=r"^output must have one writer"):
            replace(out, "three", overwrite=True)
    assert (out / "model.safetensors").read_text() == "two"
    assert not hidden.exists()


def test_places_that_cannot_be_replaced_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "work" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "below")
    for place, reason in [
        ("/proc" if Path("/proc").is_mount() else "/", "mount point"),
        (".", "working directory"),
        ("..", "working directory"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "out", "file' is a file"),
        (tmp_path / "b\udce4r" / "out", "valid text in UTF-8"),
    ]:
        for overwrite in (True, False):
            with pytest.raises(ValueError, match=rf"^output must .*{reason}"):
                check_output(place, overwrite=overwrite)
    with pytest.raises(ValueError, match=r"^overwrite must be True or False"):
        check_output(tmp_path / "out", overwrite="yes")


def test_links_in_an_earlier_result_go_and_what_they_lead_to_stays(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.txt").write_text("mine")
    (tmp_path / "data" / "thesis.txt").chmod(0o400)
    with replace_folder(tmp_path / "out") as folder:
        (folder / "linked").symlink_to(tmp_path / "data")
        (folder / "thesis.txt").symlink_to(tmp_path / "data" / "thesis.txt")
    replace(tmp_path / "out", "two", overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "out"}
    assert (tmp_path / "data" / "thesis.txt").read_text() == "mine"
    assert (tmp_path / "data" / "thesis.txt").stat().st_mode & 0o777 == 0o400, "neither opened to others nor written"


def test_a_link_to_a_folder_stays_a_link(out, tmp_path):
    (tmp_path / "link").symlink_to(out)
    replace(tmp_path / "link", "two", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert (out / "model.safetensors").read_text() == "two"


def test_a_folder_that_may_not_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != tmp_path)  # root may write everywhere else
    for place in (tmp_path / "out", tmp_path / "new" / "out"):
        with pytest.raises(ValueError, match=r"^output must be in a folder that may be written to, got .*out'"):
            check_output(place)
    (tmp_path / "inner").mkdir()
    check_output(tmp_path / "inner" / "out")
