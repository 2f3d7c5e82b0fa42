"""Files that are whole or not there, and one error for what fails while they are written; folders: the file beside."""

import errno
import json
import math
import os
import threading
import time
from array import array
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from st_extras.files import digest, finite_json, whole_file, why_unreadable, write_json


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def test_a_whole_file_appears_when_its_block_ends(path):
    with whole_file(path) as partial:
        partial.write_text("1 2")
        assert not path.exists()
    assert path.read_text() == "1 2"
    assert list(path.parent.iterdir()) == [path]


def test_who_reads_the_earlier_file_has_it_whole(path):
    """The new one takes its name, and not its place on the disk."""
    path.write_text("earlier")
    other = path.with_name("other")
    other.hardlink_to(path)
    with path.open() as reader:
        with whole_file(path) as partial:
            partial.write_text("new")
        assert (reader.read(), other.read_text(), path.read_text()) == ("earlier", "earlier", "new")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_earlier_file_and_leaves_nothing_behind(path, error):
    path.write_text("earlier")
    with pytest.raises(error), whole_file(path) as partial:  # noqa: PT012
        partial.write_text("half")
        raise error
    assert path.read_text() == "earlier"
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_process_left_is_taken_away_an_hour_later(path):
    for target, beside in ((path, "file2"), (path.with_name("a[1].json"), "a1.json")):
        before = {*path.parent.iterdir()}
        old, new, other = (
            path.with_name(f".{name}.partial") for name in (f"{target.name}.1-1", f"{target.name}.2-2", f"{beside}.1-1")
        )
        for file in (old, new, other):
            file.write_text("half")
        for file in (old, other):
            os.utime(file, (time.time() - 4000,) * 2)
        with whole_file(target) as partial:
            partial.write_text("whole")
        assert {*path.parent.iterdir()} == before | {target, new, other}


def test_what_another_process_takes_away_at_the_same_time_is_no_error(path):
    path.with_name(".file.1-1.partial").symlink_to("gone")  # found by its name, and not there when it is looked at
    write_json(path, 1)
    assert path.read_text() == "1"


def test_two_threads_that_write_a_file_do_not_write_into_each_other(path):
    with whole_file(path) as mine:
        mine.write_text("mine")
        thread = threading.Thread(target=write_json, args=(path, "other"))
        thread.start()
        thread.join()
        assert (mine.read_text(), path.read_text()) == ("mine", '"other"')
    assert path.read_text() == "mine"


def test_a_full_disk_names_the_file(path, monkeypatch):
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path.write_bytes(b"earlier")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match=r"No space left on device.*: free space there") as error:
        write_json(path, {})
    assert (error.value.errno, Path(error.value.filename)) == (errno.ENOSPC, path)
    assert path.read_bytes() == b"earlier"


def fail(path: Path, error: Exception) -> None:
    with whole_file(path):
        raise error


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EDQUOT, "free space there"), (errno.EFBIG, "free space"), (errno.EIO, "look after")]
)
def test_the_number_of_an_error_of_safetensors_stays(path, number, remedy):
    message = f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})"
    with pytest.raises(OSError, match=remedy) as error:
        fail(path, SafetensorError(message))
    assert error.value.errno == number


def test_an_error_without_a_number_is_one_of_the_disk(path):
    for error in (
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
        RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0.\nfile write failed."),
        SafetensorError("Error while serializing: file write failed"),
    ):
        with pytest.raises(OSError, match=r"file write failed: look after that disk and do the same again") as found:
            fail(path, error)
        assert (found.value.errno, found.value.filename) == (errno.EIO, str(path))


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EROFS, ": look after that disk and do the same again"), (errno.EACCES, "")]
)
def test_an_error_about_the_unfinished_file_names_the_whole_one(path, number, remedy):
    with pytest.raises(OSError, match="why") as error, whole_file(path) as partial:
        raise OSError(number, "why", str(partial))
    assert (error.value.errno, error.value.strerror, error.value.filename) == (number, f"why{remedy}", str(path))


def test_errors_about_something_else_pass(path):
    with pytest.raises(PermissionError, match=r"^\[Errno 13\] not allowed$"):
        fail(path, PermissionError(errno.EACCES, "not allowed"))
    with pytest.raises(OSError, match=r"^\[Errno 28\] full: 'another'$"):
        fail(path, OSError(errno.ENOSPC, "full", "another"))
    with pytest.raises(RuntimeError, match=r"^shapes differ$"):
        fail(path, RuntimeError("shapes differ"))
    with pytest.raises(FileNotFoundError, match="another"):
        fail(path, FileNotFoundError(errno.ENOENT, "no such file", "another"))


def test_the_borders_of_texts_count_in_a_digest():
    assert digest(["ab", "c"]) == digest([b"ab", "c"]) != digest(["a", "bc"])
    assert len(digest([])) == 32
    numbers = array("i", [1, 2, 3])
    assert digest([memoryview(numbers)]) == digest([numbers.tobytes()])
    assert digest(["a \ud800"]) not in (digest(["a "]), digest(["a ?"])), "a text that is not valid has one, too"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_a_file_that_was_written_privately_follows_the_umask(path):
    before = os.umask(0o027)
    try:
        with whole_file(path) as partial:
            partial.touch(mode=0o600)  # as safetensors does
    finally:
        left = os.umask(before)
    assert left == 0o027, "it is only looked at"
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_shows_that_a_file_is_not_as_it_was_written(tmp_path):
    content = {"a": torch.arange(50)}
    torch.save(content, tmp_path / "old.bin", _use_new_zipfile_serialization=False)  # which has no check sums
    torch.save(content, tmp_path / "a.pt")
    save_file(content, tmp_path / "a.safetensors")
    write_json(tmp_path / "a.json", {"a": [1, 2]})
    files = sorted(tmp_path.iterdir())
    assert [why_unreadable(file) for file in files] == [None] * 4
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        assert bool(why_unreadable(file)) == (file.name != "old.bin")
        file.write_bytes(b"")
        assert why_unreadable(file) == "it is empty"
    assert "No such file" in why_unreadable(tmp_path / "none.json")


def test_a_changed_byte_of_an_archive_and_a_file_that_is_no_json_are_seen(tmp_path):
    torch.save({"a": torch.arange(500)}, tmp_path / "a.pth")
    whole = (tmp_path / "a.pth").read_bytes()
    place = whole.index(torch.arange(500).numpy().tobytes()[:800])
    (tmp_path / "a.pth").write_bytes(whole[: place + 80] + b"\xff" + whole[place + 81 :])
    assert "in it has another check sum" in why_unreadable(tmp_path / "a.pth")
    for name, content in (("a.json", b"\xff\xfe"), ("b.json", b"[" * 200_000), ("c.bin", b"text"), ("d.pt", b"\x80")):
        (tmp_path / name).write_bytes(content)
        reason = why_unreadable(tmp_path / name)
        assert reason
        assert not reason.endswith(".")
    (tmp_path / "a.txt").write_bytes(b"\xff")
    assert why_unreadable(tmp_path / "a.txt") is None, "nothing is known of other files"


def test_numbers_that_json_has_not_become_none(path):
    value = {"a": [math.nan, 1.5, (math.inf, -math.inf, {"b": math.nan})], "c": "NaN", "d": True, "e": 3}
    expected = {"a": [None, 1.5, [None, None, {"b": None}]], "c": "NaN", "d": True, "e": 3}
    assert finite_json(value) == expected
    write_json(path, finite_json(value))
    assert json.loads(path.read_text()) == expected
